//! What clients asked for and were told: the words in which load, inspection and judge talk, and the
//! book in which every request stands from before it leaves.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Properties of a queue that were asked for, or that it has.
pub type Description = serde_json::Map<String, serde_json::Value>;

/// Names a message over all queues and rounds; its MessageId is made of it.
pub type Id = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    Main,
    DeadLetter,
}

/// Length and hash of a body and of the property that goes with it.
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

/// How a message stood when it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Active,
    Deferred,
    Scheduled,
}

/// A message as it was received or looked at.
#[derive(Clone, Debug)]
pub struct Seen {
    pub message_id: String,
    pub number: u64,
    pub print: Print,
    pub standing: Standing,
    /// As shown: with this delivery, if it was received.
    pub count: u64,
    pub reason: Option<String>,
    /// The property that the last settlement set.
    pub mark: Option<String>,
    /// Until when it is Delayed, in milliseconds, if it was looked at and is (RTY-12).
    pub delayed_until: Option<u64>,
    /// Whether AMQP shows the state Scheduled, which an enqueued message keeps there (PEK-05). `None` over other
    /// transports: they show the standing only.
    pub shows_scheduled: Option<bool>,
}

impl Seen {
    /// Which message it is; none if it is none of ours.
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

/// What a client asks of a queue.
#[derive(Clone, Debug)]
pub enum Op {
    Create(Description),
    /// Changes the properties that it names.
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
        /// By one command. Over AMQP credit is given, and then what is left of it asked back: a message with a
        /// lower number may come back, and be given, between the two.
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
        /// Of an abandon that says for how long nobody gets the message.
        delay_ms: Option<u64>,
    },
    /// All or none.
    Cancel {
        ids: Vec<Id>,
    },
}

/// What the client learned.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done,
    /// Accepted under these numbers.
    Numbers(Vec<u64>),
    Delivered(Vec<Seen>),
    /// With the condition.
    Refused(String),
    /// The connection ended before the answer.
    Unknown,
    /// It was never sent.
    NotSent,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    pub queue: String,
    pub op: Op,
    pub outcome: Outcome,
    /// Ticks of one clock: before the request left, and after its answer was read.
    pub begun: u64,
    pub ended: u64,
    /// The times of day before it left and after its answer, in milliseconds.
    pub begun_at: u64,
    pub ended_at: u64,
}

/// Names an entry that waits for its outcome.
pub struct Ticket(usize);

/// The requests of a round, in the order in which they began.
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
    /// Writes down what is about to be asked. Until [`Ledger::end`] its outcome is unknown.
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

    /// Something that is wrong whatever the judge finds.
    pub fn complain(&self, complaint: String) {
        self.pages.lock().unwrap().complaints.push(complaint);
    }

    /// Takes the round out.
    pub fn take(&self) -> (Vec<Entry>, Vec<String>) {
        let mut pages = self.pages.lock().unwrap();
        (std::mem::take(&mut pages.entries), std::mem::take(&mut pages.complaints))
    }
}

/// The time of day in milliseconds.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
