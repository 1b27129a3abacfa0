//! Types of the model test: requests, and the visible parts of answers. The oracle, the machine's
//! driver and the generator share these plain values.

use std::collections::BTreeMap;

use peeklock_core::command::{Act, ActResult, Counts, Drain, LinkEnd, MessageState, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{HeadQuery, HeadState, LockFacts};
use peeklock_core::message::{Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

/// One event of a sequence.
#[derive(Clone, Debug)]
pub enum Step {
    /// Time passes; due events happen at their instants.
    Wait(TimeSpan),
    /// Time passes as above, but events due at its end meet the requests in one list.
    List(TimeSpan, Vec<Request>),
    /// Time passes without a wake-up, and all due events meet the requests in one list.
    Late(TimeSpan, Vec<Request>),
    /// The store is below its floor of free space, or no longer (QUO-05).
    Full(bool),
    /// The process crashes and restarts after this time (LIF-04).
    Crash(TimeSpan),
}

/// A command with its address.
#[derive(Clone, Debug)]
pub struct Request {
    pub ticket: u64,
    pub sub_queue: SubQueue,
    pub operation: Operation,
}

/// Identifies a lock by its position in the order of grants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockName(pub u64);

/// A command in the terms of the oracle.
#[derive(Clone, Debug)]
pub enum Operation {
    Send(Draft),
    SendBatch(Vec<Draft>),
    CancelScheduled(Vec<u64>),
    Receive {
        mode: ReceiveMode,
        count_max: u32,
        bytes_max: u64,
        wait: TimeSpan,
        holder: Option<u64>,
    },
    CancelReceive {
        call: u64,
    },
    ReceiveDeferred {
        mode: ReceiveMode,
        sequences: Vec<u64>,
        holder: Option<u64>,
    },
    Attach {
        receiver: u64,
        mode: ReceiveMode,
    },
    Grant {
        receiver: u64,
        /// Total since the attach.
        delivery_limit: u64,
        byte_limit: u64,
        drain: Drain,
    },
    Detach {
        receiver: u64,
        end: LinkEnd,
    },
    Settle {
        lock: LockName,
        settlement: Decision,
    },
    RenewLock {
        lock: LockName,
    },
    Peek {
        from: u64,
        count_max: u32,
    },
    DeleteBatch {
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    },
    DeleteDeferred {
        sequence: u64,
    },
    /// Ends locks of other holders (CON-26).
    BreakLocks {
        sequences: Vec<u64>,
        counts: bool,
    },
    /// A step of an operator's job (CON-12).
    Act(Box<Act>),
    /// The end of a job.
    ForgetJob(JobId),
    Update {
        description: Box<QueueDescription>,
        /// The version that the caller has read.
        read_at: Option<Timestamp>,
    },
    Describe,
    /// A page of messages for an operator (CON-02).
    Inspect(Box<HeadQuery>),
    /// Whether a part of a transaction could be carried out now (TXN-07).
    Check(Box<Part>),
    /// A whole transaction (TXN-01).
    Commit(Vec<Part>),
}

/// A part of a transaction: a send, a batch, a settlement or a renewal, with its address.
#[derive(Clone, Debug)]
pub struct Part {
    pub sub_queue: SubQueue,
    pub operation: Operation,
}

/// A settlement by a receiver.
#[derive(Clone, Debug)]
pub enum Decision {
    Complete,
    /// With its delay, if any.
    Abandon(Option<Properties>, Option<TimeSpan>),
    Defer(Option<Properties>),
    DeadLetter(Option<Properties>),
    Release,
}

/// Application properties that a settlement sets.
#[derive(Clone, Debug)]
pub struct Properties {
    pub pairs: Vec<(String, String)>,
    /// Length of their encoding.
    pub bytes: u32,
}

/// A message before it is sent.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Unique number in its body.
    pub marker: u64,
    pub id: Option<u8>,
    pub time_to_live: Option<TimeSpan>,
    pub scheduled_at: Option<Timestamp>,
    /// Padding that is counted but not stored, so that quotas are reached with few bytes.
    pub pretended_bytes: u32,
    /// Header bytes that are counted but not stored.
    pub pretended_header_bytes: u32,
    /// Encoded size plus the padding.
    pub size: u32,
    pub header_size: u32,
    pub flaw: Option<Flaw>,
}

/// A fault that the edge detects in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// It exceeds a size limit of the edge (SND-23).
    Size,
    /// It has an invalid property.
    Property(Condition),
}

/// The answer to a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Done,
    Accepted(u64),
    AcceptedBatch(Vec<u64>),
    Received(Vec<Seen>),
    Peeked(Vec<Seen>),
    Renewed(Timestamp),
    Granted(u64),
    Deleted(u64),
    LocksBroken(u64),
    /// Results by number.
    Acted(Vec<(u64, ActResult)>),
    Described(Box<Report>),
    /// The messages of a page, and whether there may be more.
    Inspected(Vec<Inspected>, bool),
    Committed(Vec<Self>),
    /// Refused with one of these conditions; the machine returns one, the oracle all that are
    /// right.
    Refused(Vec<Condition>),
}

/// A message as a receiver sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    pub marker: u64,
    pub sequence: u64,
    pub enqueued_sequence: u64,
    pub enqueued_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub time_to_live: Option<TimeSpan>,
    /// The stored count (SET-29).
    pub delivery_count: u32,
    /// The shown count (SET-30).
    pub shown_count: u32,
    pub state: MessageState,
    pub delayed_until: Option<Timestamp>,
    pub sub_queue: SubQueue,
    pub lock: Option<SeenLock>,
    pub size: u32,
    /// Properties set by settlements and the broker, the last value of each key.
    pub set: BTreeMap<String, String>,
}

/// A message as an operator sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct Inspected {
    pub sequence: u64,
    pub state: HeadState,
    /// The expiry in force.
    pub expires_at: Timestamp,
    pub is_expired: bool,
    pub lock: Option<LockFacts>,
}

/// A lock as a receiver sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenLock {
    pub name: LockName,
    pub until: Timestamp,
}

/// The answer to a describe.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    pub description: QueueDescription,
    pub counts: Counts,
    pub size_bytes: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub accessed_at: Timestamp,
}

/// All outputs of one turn of the oracle or the machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Turn {
    pub replies: BTreeMap<u64, Reply>,
    pub deliveries: BTreeMap<u64, Vec<Seen>>,
    /// Links that the entity closed.
    pub detached: BTreeMap<u64, Vec<Condition>>,
    /// The entity has requested its deletion (TMP-07).
    pub idle_elapsed: bool,
}

impl Operation {
    /// The messages that it sends, including those of a transaction.
    pub fn drafts(&self) -> Vec<&Draft> {
        match self {
            Self::Send(draft) => vec![draft],
            Self::SendBatch(drafts) => drafts.iter().collect(),
            Self::Commit(parts) => parts.iter().flat_map(|part| part.operation.drafts()).collect(),
            _ => Vec::new(),
        }
    }
}

impl Draft {
    /// The message as its sender builds it.
    pub fn message(&self) -> Message {
        let mut message = Message::new(self.marker.to_string().into_bytes());
        if let Some(id) = self.id {
            message = message.with_message_id(format!("id-{id}"));
        }
        message.time_to_live = self.time_to_live;
        message.scheduled_enqueue_time = self.scheduled_at;
        message
    }

    /// Computes the sizes from the encoding, plus the padding.
    pub fn measured(mut self) -> Self {
        let content = self.message().encode();
        self.size = content.size() + self.pretended_bytes + self.pretended_header_bytes;
        self.header_size = content.header_size() + self.pretended_header_bytes;
        self
    }
}

impl Properties {
    pub fn new(pairs: Vec<(String, String)>) -> Self {
        let mut properties = Self { pairs, bytes: 0 };
        properties.bytes = properties.overlay().size_bytes();
        properties
    }

    pub fn overlay(&self) -> Overlay {
        let pairs: Vec<(String, Value)> = self
            .pairs
            .iter()
            .map(|(key, value)| (key.clone(), Value::String(value.clone())))
            .collect();
        Overlay::encode(&pairs).expect("the generator makes legal properties")
    }
}
