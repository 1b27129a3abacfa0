//! The ledger of requests and outcomes, and the types that load, inspection and judge share. Each
//! request is recorded before it is sent.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Requested or actual properties of a queue.
pub type Description = serde_json::Map<String, serde_json::Value>;

/// Id of a message across all queues and rounds. Its MessageId contains it.
pub type Id = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    Main,
    DeadLetter,
}

/// Length and hash of a body and its property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Print {
    pub bytes: usize,
    pub hash: u64,
}

impl Print {
    pub fn of(body: &[u8], property: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(body);
        hasher.write(property.as_bytes());
        Self { bytes: body.len(), hash: hasher.finish() }
    }
}

/// A message as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: Id,
    pub print: Print,
    /// The instant for which it is scheduled, in milliseconds.
    pub due: Option<u64>,
}

/// State of a message when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Active,
    Deferred,
    Scheduled,
}

/// A message as it was received or peeked.
#[derive(Clone, Debug)]
pub struct Seen {
    pub message_id: String,
    pub number: u64,
    pub print: Print,
    pub standing: Standing,
    /// Delivery count as shown, which includes the delivery of a received message.
    pub count: u64,
    pub reason: Option<String>,
    /// The property that the last settlement set.
    pub mark: Option<String>,
    /// End of its delay in milliseconds, if it was peeked as Delayed (RTY-12).
    pub delayed_until: Option<u64>,
    /// Whether AMQP shows the state Scheduled, which an enqueued message keeps there (PEK-05).
    /// `None` over other transports, which show only the current state.
    pub shows_scheduled: Option<bool>,
}

impl Seen {
    /// Id of the message, or `None` if no test sent it.
    pub fn id(&self) -> Option<Id> {
        self.message_id.strip_prefix('m')?.parse().ok()
    }
}

pub fn message_id(id: Id) -> String {
    format!("m{id}")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

/// A request to a queue.
#[derive(Clone, Debug)]
pub enum Op {
    Create(Description),
    /// Changes the given properties.
    Update(Description),
    Delete,
    /// All or none.
    Send {
        sender: usize,
        messages: Vec<Sent>,
    },
    Receive {
        part: Part,
        deletes: bool,
        count_max: u64,
        /// Whether one command takes all messages. AMQP grants credit and then drains the rest, so
        /// a message with a lower number may return in between and be delivered.
        at_once: bool,
    },
    /// All or none.
    ReceiveDeferred {
        ids: Vec<Id>,
        deletes: bool,
    },
    Settle {
        id: Id,
        verdict: Verdict,
        mark: Option<String>,
        reason: Option<String>,
        /// Delay that an abandon requests.
        delay_ms: Option<u64>,
    },
    /// All or none.
    Cancel {
        ids: Vec<Id>,
    },
}

/// Outcome of a request for its client.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    /// Accepted with these sequence numbers.
    Numbers(Vec<u64>),
    Delivered(Vec<Seen>),
    /// Refused with this condition.
    Refused(String),
    /// The connection ended before the answer.
    Unknown,
    /// The request was never sent.
    NotSent,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    pub queue: String,
    pub op: Op,
    pub outcome: Outcome,
    /// Ticks of one logical clock: before the request was sent, and after its answer was read.
    pub begun: u64,
    pub ended: u64,
    /// Wall-clock times before the request was sent and after its answer, in milliseconds.
    pub begun_at: u64,
    pub ended_at: u64,
}

/// Identifies an entry without an outcome.
pub struct Ticket(usize);

/// The requests of a round in the order of their start.
#[derive(Default)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    tick: u64,
    entries: Vec<Entry>,
    complaints: Vec<String>,
}

impl Ledger {
    /// Records a request before it is sent. Until [`Ledger::end`] its outcome is unknown.
    pub fn begin(&self, queue: &str, op: Op) -> Ticket {
        let mut pages = self.pages.lock().unwrap();
        pages.tick += 1;
        let begun = pages.tick;
        let outcome = Outcome::Unknown;
        let (queue, ended, at) = (queue.to_owned(), u64::MAX, now());
        let entry = Entry { queue, op, outcome, begun, ended, begun_at: at, ended_at: at };
        pages.entries.push(entry);
        Ticket(pages.entries.len() - 1)
    }

    pub fn end(&self, ticket: &Ticket, outcome: Outcome) {
        let mut pages = self.pages.lock().unwrap();
        pages.tick += 1;
        let ended = pages.tick;
        let entry = &mut pages.entries[ticket.0];
        entry.outcome = outcome;
        entry.ended = ended;
        entry.ended_at = now();
    }

    /// Records a fault that does not depend on the judge.
    pub fn complain(&self, complaint: String) {
        self.pages.lock().unwrap().complaints.push(complaint);
    }

    /// Removes and returns the entries and complaints of the round.
    pub fn take(&self) -> (Vec<Entry>, Vec<String>) {
        let mut pages = self.pages.lock().unwrap();
        (std::mem::take(&mut pages.entries), std::mem::take(&mut pages.complaints))
    }
}

/// Wall-clock time in milliseconds.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
