//! Reads all entities and messages of a broker, with contents, without changing anything.

use std::collections::BTreeMap;

use crate::client::{json_body, queue_target, read_messages, refusal};
use crate::connection::{Connection, Response};
use crate::ledger::{Description, Part, Seen, Standing, now};
use crate::load::PILE;

/// Queues in one answer, and messages in one peek.
const PAGE: usize = 100;
const PEEK: usize = 250;

/// Contents of a broker.
pub struct Snapshot {
    pub queues: BTreeMap<String, QueueSeen>,
    /// Number of messages in the queue of waiting ones, which are not read.
    pub pile: Option<u64>,
    /// Time at which the snapshot was complete, in milliseconds.
    pub taken_at: u64,
}

/// A queue with all its messages, ascending by number.
pub struct QueueSeen {
    /// All properties and counts.
    pub description: Description,
    pub main: Vec<Seen>,
    pub dead: Vec<Seen>,
}

impl Snapshot {
    /// Reads every queue, and peeks every message of the queue and its dead-letter queue.
    ///
    /// # Errors
    /// If the broker fails to answer or answers incorrectly.
    pub fn take(address: &str) -> Result<Self, String> {
        let mut connection = Connection::new(address.to_owned());
        let (mut queues, mut pile) = (BTreeMap::new(), None);
        for name in names(&mut connection)? {
            if name == PILE {
                let answer = get(&mut connection, &queue_target(&name, Part::Main))?;
                pile = json_body(&answer)?["runtime"]["activeMessageCount"].as_u64();
                continue;
            }
            let main = peek_all(&mut connection, &name, Part::Main)?;
            let dead = peek_all(&mut connection, &name, Part::DeadLetter)?;
            let answer = get(&mut connection, &queue_target(&name, Part::Main))?;
            let description = json_body(&answer)?;
            let description = description.as_object().ok_or("no description")?.clone();
            queues.insert(name, QueueSeen { description, main, dead });
        }
        Ok(Self { queues, pile, taken_at: now() })
    }

    pub fn message_count(&self) -> usize {
        self.queues.values().map(|queue| queue.main.len() + queue.dead.len()).sum()
    }
}

fn get(connection: &mut Connection, target: &str) -> Result<Response, String> {
    let answer = connection.ask("GET", target, &[], &[]);
    let answer = answer.map_err(|lost| format!("GET {target}: {lost:?}"))?;
    if answer.status != 200 {
        return Err(format!("GET {target}: {} {}", answer.status, refusal(&answer)));
    }
    Ok(answer)
}

fn names(connection: &mut Connection) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    loop {
        let target = format!("/$api/v1/queues?skip={}&top={PAGE}", names.len());
        let page = json_body(&get(connection, &target)?)?;
        let queues = page["queues"].as_array().ok_or("no list of queues")?;
        if queues.is_empty() {
            break;
        }
        names.extend(queues.iter().filter_map(|queue| queue["path"].as_str()).map(str::to_owned));
    }
    let topics = json_body(&get(connection, "/$api/v1/topics")?)?;
    for topic in topics["topics"].as_array().ok_or("no list of topics")? {
        let topic = topic["path"].as_str().ok_or("a topic without path")?;
        let target = format!("/$api/v1/topics/{topic}/subscriptions");
        let all = json_body(&get(connection, &target)?)?;
        let all = all["subscriptions"].as_array().ok_or("no list of subscriptions")?;
        names.extend(all.iter().filter_map(|one| one["path"].as_str()).map(str::to_owned));
    }
    Ok(names)
}

fn peek_all(connection: &mut Connection, queue: &str, part: Part) -> Result<Vec<Seen>, String> {
    let mut messages: Vec<Seen> = Vec::new();
    loop {
        let from = messages.last().map_or(0, |last| last.number + 1);
        let page = peek(connection, queue, part, from, PEEK)?;
        if page.is_empty() {
            break;
        }
        for seen in page {
            if messages.last().is_some_and(|last| last.number >= seen.number) {
                return Err(format!("{queue}: peek shows {} out of order", seen.number));
            }
            messages.push(seen);
        }
    }
    forget_materialised(connection, queue, part, &mut messages)?;
    Ok(messages)
}

/// Removes duplicates of messages that were enqueued while the pages were read. Such a message
/// appears twice: scheduled, and active under its new number. The scheduled one is removed if a
/// second peek no longer finds it.
fn forget_materialised(
    connection: &mut Connection,
    queue: &str,
    part: Part,
    messages: &mut Vec<Seen>,
) -> Result<(), String> {
    let mut gone = Vec::new();
    for (place, seen) in messages.iter().enumerate() {
        let is_again = |later: &Seen| later.message_id == seen.message_id;
        if seen.standing != Standing::Scheduled || !messages[place + 1..].iter().any(is_again) {
            continue;
        }
        let now = peek(connection, queue, part, seen.number, 1)?;
        if now.first().is_none_or(|now| now.number != seen.number) {
            gone.push(seen.number);
        }
    }
    messages.retain(|seen| !gone.contains(&seen.number));
    Ok(())
}

fn peek(
    connection: &mut Connection,
    queue: &str,
    part: Part,
    from: u64,
    count: usize,
) -> Result<Vec<Seen>, String> {
    let target = format!("{}/messages?from={from}&count={count}", queue_target(queue, part));
    let page = read_messages(&get(connection, &target)?)?;
    Ok(page.into_iter().map(|held| held.seen).collect())
}
