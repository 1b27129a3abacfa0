//! A chain of queues under kill: each message acknowledged at its head is at its end exactly once,
//! in the order of its sender, however often the broker is killed while messages move (FND-03,
//! FWD-10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{json_body, queue_target};
use crate::connection::{Connection, Lost};
use crate::inspection::Snapshot;
use crate::ledger::Part;
use crate::process::Place;
use crate::random::Random;

const SENDERS: usize = 3;
const LIFE_MS_MAX: u64 = 700;
/// Time in which all messages must arrive after a start.
const REST_MAX: Duration = Duration::from_secs(30);
const CHAIN: [&str; 3] = ["head", "middle", "end"];

/// Outcome of a send for its sender, by message id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendOutcome {
    Stored,
    Unknown,
}

pub struct Chain<'a> {
    place: &'a Place,
    random: Random,
    outcomes: BTreeMap<String, SendOutcome>,
    next: [u64; SENDERS],
    /// Rounds in which the kill left messages between the queues.
    pub caught: u64,
}

impl<'a> Chain<'a> {
    pub const fn new(place: &'a Place, random: Random) -> Self {
        Self { place, random, outcomes: BTreeMap::new(), next: [0; SENDERS], caught: 0 }
    }

    pub fn message_count(&self) -> usize {
        self.outcomes.len()
    }

    pub fn rounds(&mut self, rounds: u64) -> Result<(), String> {
        for round in 0..rounds {
            let broker = self.place.spawn().ready()?;
            if round == 0 {
                create(&broker.address)?;
            }
            let killed = AtomicBool::new(false);
            let address = broker.address.clone();
            let life = Duration::from_millis(self.random.between(30, LIFE_MS_MAX));
            let next = self.next;
            let outcomes = thread::scope(|scope| {
                let senders: Vec<_> = next
                    .into_iter()
                    .enumerate()
                    .map(|(sender, first)| {
                        let (address, killed) = (address.clone(), &killed);
                        scope.spawn(move || send(&address, killed, sender, first))
                    })
                    .collect();
                thread::sleep(life);
                killed.store(true, Ordering::SeqCst);
                broker.kill();
                senders.into_iter().map(|sender| sender.join().unwrap()).collect::<Vec<_>>()
            });
            for (sender, outcomes) in outcomes.into_iter().enumerate() {
                self.next[sender] += outcomes.len() as u64;
                self.outcomes.extend(outcomes);
            }
            let broker = self.place.spawn().ready()?;
            if waiting(&broker.address)? > 0 {
                self.caught += 1;
            }
            rest(&broker.address)?;
            self.judge(&broker.address).map_err(|what| format!("round {round}: {what}"))?;
            broker.stop()?;
        }
        Ok(())
    }

    fn judge(&self, address: &str) -> Result<(), String> {
        let snapshot = Snapshot::take(address)?;
        for (name, queue) in &snapshot.queues {
            if name != "end" && !(queue.main.is_empty() && queue.dead.is_empty()) {
                return Err(format!("{name} still has messages"));
            }
            if queue.description["runtime"]["transferDeadLetterMessageCount"] != json!(0) {
                return Err(format!("{name} has transfer dead letters"));
            }
        }
        let end = snapshot.queues.get("end").ok_or("the end of the chain is gone")?;
        let mut arrived = BTreeSet::new();
        let mut last = [None; SENDERS];
        for seen in &end.main {
            let id = seen.message_id.clone();
            if !self.outcomes.contains_key(&id) {
                return Err(format!("{id} was never sent"));
            }
            let (sender, number) = id.split_once('-').ok_or("an id is a sender and a number")?;
            let sender: usize = sender.parse().map_err(|_| "no sender")?;
            let number: u64 = number.parse().map_err(|_| "no number")?;
            if last[sender].is_some_and(|last| last >= number) {
                return Err(format!("{id} is not in its order, or twice (FWD-10)"));
            }
            last[sender] = Some(number);
            arrived.insert(id);
        }
        let lost: Vec<&String> = self
            .outcomes
            .iter()
            .filter(|(id, outcome)| **outcome == SendOutcome::Stored && !arrived.contains(*id))
            .map(|(id, _)| id)
            .collect();
        if lost.is_empty() { Ok(()) } else { Err(format!("{} lost: {lost:?}", lost.len())) }
    }
}

fn create(address: &str) -> Result<(), String> {
    let mut connection = Connection::new(address.to_owned());
    let mut next: Option<&str> = None;
    for name in CHAIN.into_iter().rev() {
        let body = next.map_or_else(|| json!({}), |next| json!({ "forwardTo": next }));
        let body = serde_json::to_vec(&body).unwrap();
        let target = queue_target(name, Part::Main);
        let headers = [("Content-Type", "application/json")];
        let answer = connection.ask("PUT", &target, &headers, &body);
        let answer = answer.map_err(|lost| format!("{name} was not created: {lost:?}"))?;
        if answer.status >= 300 {
            return Err(format!("{name} was not created: {}", answer.status));
        }
        next = Some(name);
    }
    Ok(())
}

/// Sends one message after another until the broker is killed.
fn send(
    address: &str,
    killed: &AtomicBool,
    sender: usize,
    first: u64,
) -> Vec<(String, SendOutcome)> {
    let mut connection = Connection::new(address.to_owned());
    let mut outcomes = Vec::new();
    for number in first.. {
        let id = format!("{sender}-{number}");
        let properties = json!({ "MessageId": id }).to_string();
        // Occasionally a body that is stored in parts.
        let body = vec![b'x'; if number % 50 == 0 { 300_000 } else { 100 }];
        let headers = [("BrokerProperties", &*properties)];
        match connection.ask("POST", "/head/messages", &headers, &body) {
            Ok(answer) => {
                assert_eq!(answer.status, 201, "a send is refused");
                outcomes.push((id, SendOutcome::Stored));
            }
            Err(lost) => {
                assert!(killed.load(Ordering::SeqCst), "alive, but {lost:?}");
                let _: Lost = lost;
                outcomes.push((id, SendOutcome::Unknown));
                return outcomes;
            }
        }
    }
    outcomes
}

/// Number of messages that have not reached the end.
fn waiting(address: &str) -> Result<u64, String> {
    let mut connection = Connection::new(address.to_owned());
    let mut count = 0;
    for name in CHAIN.into_iter().filter(|name| *name != "end") {
        let target = queue_target(name, Part::Main);
        let answer = connection.ask("GET", &target, &[], &[]);
        let description: Value = json_body(&answer.map_err(|lost| format!("{name}: {lost:?}"))?)?;
        let runtime = &description["runtime"];
        count += runtime["activeMessageCount"].as_u64().ok_or("no count of active messages")?;
        count += runtime["transferMessageCount"].as_u64().ok_or("no count of transfers")?;
    }
    Ok(count)
}

fn rest(address: &str) -> Result<(), String> {
    let begun = Instant::now();
    while waiting(address)? > 0 {
        if begun.elapsed() > REST_MAX {
            return Err("messages do not come to rest".to_owned());
        }
        thread::yield_now();
    }
    Ok(())
}
