//! Decides which contents a broker may have after a kill, given the outcomes that clients received
//! before.
//!
//! The judge does not depend on how the load works. For each message it keeps every possible state:
//! an acknowledged request moves all of them, a request with an unknown outcome adds the moved
//! ones, and the state found after the restart must be one of those. From then on only the found
//! state is possible.
//!
//! ```text
//!  NotStored ──send──► There{Active | Scheduled} ◄─abandon, defer, dead-letter─► There{...}
//!                        └──complete, receive and delete, cancel──► Gone
//! ```

mod book;
mod message;
mod seen;
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use self::book::QueueBook;
use self::message::State;
use crate::inspection::Snapshot;
use crate::ledger::{Description, Entry, Op, Outcome, Part, Sent, Verdict};

/// Knowledge of the clients over all rounds.
pub struct Judge {
    queues: BTreeMap<String, Queue>,
    round: u32,
    complaints: Vec<String>,
    /// Number of occurrences by event.
    tally: BTreeMap<String, u64>,
}

/// State of one queue.
#[derive(Default)]
struct Queue {
    /// Possible descriptions. `None` means that the queue may be absent.
    descriptions: Vec<Option<Description>>,
    book: QueueBook,
}

impl Judge {
    /// Creates a judge for an empty broker.
    pub const fn new() -> Self {
        Self { queues: BTreeMap::new(), round: 0, complaints: Vec::new(), tally: BTreeMap::new() }
    }

    /// Number of occurrences by request and outcome.
    pub const fn tally(&self) -> &BTreeMap<String, u64> {
        &self.tally
    }

    /// Judges a round: the requests and the contents after the restart. Returns complaints.
    pub fn judge(&mut self, entries: Vec<Entry>, snapshot: &Snapshot) -> Vec<String> {
        self.enter(entries);
        self.look(snapshot);
        self.round += 1;
        for queue in self.queues.values_mut() {
            queue.book.close_round();
        }
        std::mem::take(&mut self.complaints)
    }

    /// Applies the requests of a round in the order in which they took effect, message by message.
    /// A receive has no effect before its answer exists, and any other request has none before it
    /// is sent. Only one client uses a message at a time.
    fn enter(&mut self, mut entries: Vec<Entry>) {
        let took_effect = |entry: &Entry| match (&entry.op, &entry.outcome) {
            (Op::Receive { .. } | Op::ReceiveDeferred { .. }, Outcome::Delivered(_)) => entry.ended,
            _ => entry.begun,
        };
        entries.sort_by_key(took_effect);
        for entry in entries {
            self.count(&entry);
            if !matches!(entry.outcome, Outcome::NotSent) {
                self.carry_out(entry);
            }
        }
    }

    fn count(&mut self, entry: &Entry) {
        let op = match &entry.op {
            Op::Create(_) => "create".to_owned(),
            Op::Update(_) => "update".to_owned(),
            Op::Delete => "delete".to_owned(),
            Op::Send { messages, .. } => match &**messages {
                [Sent { due: Some(_), .. }, ..] => "schedule".to_owned(),
                [_] => "send".to_owned(),
                _ => "batch".to_owned(),
            },
            Op::Receive { deletes: true, .. } => "receive and delete".to_owned(),
            Op::Receive { .. } => "receive".to_owned(),
            Op::ReceiveDeferred { .. } => "receive deferred".to_owned(),
            Op::Settle { verdict, .. } => format!("{verdict:?}").to_lowercase(),
            Op::Cancel { .. } => "cancel".to_owned(),
        };
        let outcome = match &entry.outcome {
            Outcome::Done => "done",
            Outcome::Numbers(numbers) if numbers.contains(&0) => "duplicate",
            Outcome::Numbers(_) => "done",
            Outcome::Delivered(seen) if seen.is_empty() => "empty",
            Outcome::Delivered(_) => "done",
            Outcome::Refused(_) => "refused",
            Outcome::Unknown => "unknown",
            Outcome::NotSent => "not sent",
        };
        *self.tally.entry(format!("{op}: {outcome}")).or_default() += 1;
    }

    fn carry_out(&mut self, entry: Entry) {
        let Entry { queue: name, op, outcome, begun, begun_at, ended_at, .. } = entry;
        let complaints = &mut self.complaints;
        let mut complain = |what: String| complaints.push(format!("queue {name}: {what}"));
        let queue = self.queues.entry(name.clone()).or_default();
        if let Outcome::Refused(condition) = &outcome {
            // A full or slow store refuses sends and stores nothing then (ERR-06).
            let is_busy = condition == "ServerBusy" && matches!(op, Op::Send { .. });
            let is_late = condition == "MessageNotFound"
                && matches!(&op, Op::Cancel { ids } if queue.book.may_be_due(ids, ended_at));
            if !is_busy && !is_late {
                complain(format!("{op:?} was refused with {condition}"));
            }
        }
        let book = &mut queue.book;
        match op {
            Op::Create(description) => match outcome {
                Outcome::Done => {
                    if queue.descriptions.iter().any(Option::is_some) {
                        complain("created though it was there".to_owned());
                    }
                    *queue = Queue { descriptions: vec![Some(description)], ..Queue::default() };
                }
                Outcome::Unknown => {
                    queue.book = QueueBook::default();
                    queue.descriptions = vec![None, Some(description)];
                }
                _ => {}
            },
            Op::Update(changes) => {
                let mut changed = queue.descriptions.clone();
                for description in changed.iter_mut().flatten() {
                    description.extend(changes.clone());
                }
                match outcome {
                    Outcome::Done => queue.descriptions = changed,
                    Outcome::Unknown => queue.descriptions.extend(changed),
                    _ => {}
                }
            }
            Op::Delete => match outcome {
                Outcome::Done => *queue = Queue { descriptions: vec![None], ..Queue::default() },
                Outcome::Unknown => queue.descriptions.push(None),
                _ => {}
            },
            Op::Send { sender, messages } => {
                let round = self.round;
                book.send(round, (sender, begun, ended_at), messages, &outcome, &mut complain);
            }
            Op::Receive { part, deletes, count_max, at_once } => match outcome {
                Outcome::Delivered(seen) => {
                    if at_once && !seen.is_sorted_by(|one, next| one.number < next.number) {
                        complain("a receive gave messages out of order".to_owned());
                    }
                    book.deliver(part, deletes, ended_at, &seen, &mut complain);
                }
                Outcome::Unknown if deletes => book.lose(part, count_max),
                _ => {}
            },
            Op::ReceiveDeferred { ids, deletes } => match outcome {
                Outcome::Delivered(seen) => {
                    if seen.len() != ids.len() {
                        complain(format!("{} of {} deferred were given", seen.len(), ids.len()));
                    }
                    book.deliver(Part::Main, deletes, ended_at, &seen, &mut complain);
                }
                Outcome::Unknown if deletes => book.change(&ids, false, |_| State::Gone),
                _ => {}
            },
            Op::Settle { id, verdict, mark, reason, delay_ms } => {
                let policy = policy_of(&queue.descriptions);
                let delay = |is_main: bool| {
                    let asked = delay_ms.map(|delay_ms| (delay_ms, delay_ms));
                    let asked = asked.or_else(|| policy.filter(|_| is_main));
                    asked.filter(|_| verdict == Verdict::Abandon)
                };
                let count_max = most_deliveries(&queue.descriptions);
                let settle = |state: &State| {
                    state.settled(verdict, mark.as_ref(), reason.as_ref(), count_max)
                };
                let is_certain = matches!(outcome, Outcome::Done);
                if is_certain || matches!(outcome, Outcome::Unknown) {
                    let at = (begun_at, ended_at);
                    queue.book.delay(id, is_certain, at, delay, settle);
                    queue.book.change(&[id], is_certain, settle);
                }
            }
            Op::Cancel { ids } => match outcome {
                Outcome::Done => book.change(&ids, true, |_| State::Gone),
                Outcome::Unknown => book.cancel_unknown(ids, ended_at),
                _ => {}
            },
        }
    }

    /// Compares the contents with the possible ones. From then on only the found ones are possible.
    fn look(&mut self, snapshot: &Snapshot) {
        let complaints = &mut self.complaints;
        for name in snapshot.queues.keys() {
            self.queues.entry(name.clone()).or_default();
        }
        for (name, queue) in &mut self.queues {
            let mut complain = |what: String| complaints.push(format!("queue {name}: {what}"));
            let Some(seen) = snapshot.queues.get(name) else {
                let may_be_absent =
                    queue.descriptions.is_empty() || queue.descriptions.contains(&None);
                if !may_be_absent {
                    let count = queue.book.message_count();
                    complain(format!("is gone, with {count} messages"));
                }
                *queue = Queue { descriptions: vec![None], ..Queue::default() };
                continue;
            };
            let fits = |wanted: &&Description| {
                wanted.iter().all(|(key, value)| seen.description.get(key) == Some(value))
            };
            match queue.descriptions.iter().flatten().find(fits) {
                Some(description) => queue.descriptions = vec![Some(description.clone())],
                None => {
                    let wanted = &queue.descriptions;
                    let found = &seen.description;
                    complain(format!("should be one of {wanted:?}, and is {found:?}"));
                }
            }
            seen::count(seen, &mut complain);
            queue.book.look(self.round, seen, snapshot.taken_at, &mut complain);
            for (what, count) in queue.book.take_findings() {
                *self.tally.entry(what.to_owned()).or_default() += count;
            }
        }
    }

    /// Whether no message is left in any queue.
    pub fn is_settled(&self) -> bool {
        self.queues.values().all(|queue| queue.book.message_count() == 0)
    }
}

fn most_deliveries(descriptions: &[Option<Description>]) -> u64 {
    let named = |description: &Description| description.get("maxDeliveryCount")?.as_u64();
    descriptions.iter().flatten().find_map(named).unwrap_or(10)
}

/// Minimum and maximum delay of a fixed retry policy, which differ by its jitter.
fn policy_of(descriptions: &[Option<Description>]) -> Option<(u64, u64)> {
    let policy = descriptions.iter().flatten().find_map(|all| all.get("retryPolicy"))?;
    let seconds = policy["delay"].as_str()?.strip_prefix("PT")?.strip_suffix('S')?;
    let most = Duration::from_secs(seconds.parse().ok()?);
    let least = most.mul_f64(1.0 - policy["jitter"].as_f64()?);
    let [least, most] = [least, most].map(|span| u64::try_from(span.as_millis()));
    Some((least.ok()?, most.ok()?))
}
