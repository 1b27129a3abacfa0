//! The broker's behaviour from the specification alone: messages in plain maps, one state each,
//! linear scans everywhere. One file for each topic of the specification.
//!
//! State in memory is predicted: every answer, every transfer, every number. The store is compared
//! after every batch ([`look`]): new records must be the next predicted ones, and every change must
//! have a cause. A crash may keep any batches: the oracle accepts any state that it went through.

mod count;
mod duplicate;
mod expire;
mod look;
mod publish;
mod receive;
mod retry;
mod send;
mod session;
mod settle;
mod transaction;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peeklock_core::condition::Condition;
use peeklock_core::description::EntityStatus;
use peeklock_core::machine::StageNumber;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::image::Record;
use crate::rules::Rule;

pub use retry::Retry;
pub use session::Hold;
pub use settle::Settled;
pub use transaction::{Done, Piece, Undertaking};
pub use transfer::{Fate, Handed, Stages};

/// Duration for which ids are remembered.
pub const WINDOW: TimeSpan = TimeSpan::from_seconds(30);
/// Reasons for which the broker removes or moves messages.
const EXPIRED: &str = "TTLExpiredException";
const TOO_MANY: &str = "MaxDeliveryCountExceeded";
const HOPS: &str = "MaxTransferHopCountExceeded";
/// Above all tickets of commands.
const OWN: u64 = 1 << 40;
const NO_SESSION: &str = "Session ID is null.";

/// A lock on a message.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    /// Known once the delivery is reported.
    pub token: Option<u128>,
    pub until: Timestamp,
    pub holder: Option<u64>,
    /// The session lock that it belongs to.
    pub hold: Option<u64>,
}

/// A change that is not known to be durable. Its message is not delivered (LIF-01).
#[derive(Clone, PartialEq, Debug)]
pub enum Doing {
    Gone(&'static str),
    /// A failure, and the end of the delay, if any.
    Count(u32, Option<Timestamp>),
    /// With the count of the delivery (SET-33).
    Defer(u32),
    /// Deferred again or abandoned in a sub-queue, which counts nothing: the store shows no change
    /// (SET-38).
    Unchanged,
    Move {
        into: SubQueue,
        count: u32,
        reason: Option<String>,
    },
}

/// A durable message, with further knowledge about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Card {
    pub record: Record,
    /// Failed deliveries, including those that are not durable yet (SET-27).
    pub count: u32,
    pub lock: Option<Lock>,
    pub doing: Option<(Doing, u64)>,
    /// It is in a transfer in progress.
    pub is_frozen: bool,
    /// The store no longer has it, but its destination has not been checked.
    pub has_vanished: bool,
    /// A dead letter that its destination will never accept, so receivers can get it (FWD-28).
    pub stays: bool,
    /// For a scheduled message: earliest next attempt.
    pub not_before: Timestamp,
    /// End of its delay, also if that is not durable yet, and the delay after each failure.
    pub delayed_until: Option<Timestamp>,
    pub failures: BTreeMap<u32, Option<Timestamp>>,
}

/// History of a message from another entity.
#[derive(Clone, Copy, Default)]
pub struct Journey {
    pub hops: u8,
    /// Copies already counted for it.
    pub spent: u16,
    /// Its first number.
    pub first: u64,
    /// Its own time to live, if an earlier entity has lowered it (EXP-16).
    pub lowered: Option<TimeSpan>,
}

/// The next records to be stored, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Incoming {
    New {
        sequence: u64,
        record: Box<Record>,
        group: u64,
    },
    /// A message of another entity is removed with the batch of this one.
    Left {
        from: u64,
        sequence: u64,
        group: u64,
    },
}

/// A waiting call.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub ticket: u64,
    pub lane: Lane,
    pub count_max: usize,
    pub deadline: Timestamp,
    pub holder: Option<u64>,
    pub takes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    Of(SubQueue),
    Session(u64),
    /// Waits for a session.
    Accept,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Queue,
    Topic,
    Subscription,
}

/// Constant properties of an entity in a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Nature {
    pub kind: Kind,
    pub path: String,
    pub detects: bool,
    pub requires_session: bool,
    pub delivery_count_max: u32,
    pub lock: TimeSpan,
    pub keeps_expired: bool,
    pub time_to_live: TimeSpan,
    pub dead_letters_errors: bool,
}

/// Properties that an update changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Mutable {
    pub status: EntityStatus,
    pub forward_to: Option<String>,
    pub forward_dead: Option<String>,
    pub catch_all: bool,
    /// RTY-16, RTY-23
    pub retry: Option<Retry>,
    pub passes: bool,
}

pub struct Entity {
    pub nature: Nature,
    pub now: Mutable,
    /// Result of the unanswered updates.
    pub durable: Mutable,
    pub updates: BTreeMap<u64, Mutable>,
    pub rules: BTreeMap<String, Rule>,
    pub durable_rules: Vec<BTreeMap<String, Rule>>,
    /// The highest number, and the highest that was acknowledged or seen in the store.
    pub last: u64,
    pub last_number: u64,
    pub cards: BTreeMap<u64, Card>,
    pub incoming: VecDeque<Incoming>,
    pub calls: VecDeque<Call>,
    pub holds: BTreeMap<u64, Hold>,
    pub states: BTreeMap<u64, u8>,
    pub durable_states: Vec<BTreeMap<u64, u8>>,
    pub ids: BTreeMap<String, duplicate::Acceptance>,
    pub ways: BTreeMap<transfer::Exit, transfer::Way>,
    /// Arrived at the destination, but the source does not know it yet.
    pub departing: BTreeSet<u64>,
    /// For a subscription: number up to which messages may leave, and number up to which they may
    /// from a stage on.
    pub proved: u64,
    pub proving: Option<(StageNumber, u64)>,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Done,
    Numbers(Vec<u64>),
    /// Number and shown count.
    Messages(Vec<(u64, u32)>),
    /// With the end of the delay of each (RTY-12).
    Peeked(Vec<(u64, u32, SlotState, Option<Timestamp>)>),
    Until(Timestamp),
    Accepted(u64),
    State(Option<u8>),
    Committed(Vec<Done>),
    Refused(Condition),
}

pub struct Oracle {
    pub now: Timestamp,
    pub entities: BTreeMap<u64, Entity>,
    /// Predicted replies of unanswered commands.
    pub replies: BTreeMap<u64, Reply>,
    /// Number of effects of each unfinished command in the store.
    pub groups: BTreeMap<u64, usize>,
    pub expires_whole_sessions: bool,
    pub failures_into: SubQueue,
    /// Limit of copies of one message over all its hops (FWD-33).
    pub copy_count_max: u16,
    pub next_name: u64,
    pub ticket: u64,
    /// The session locks that tokens belong to.
    pub token_holds: BTreeMap<u128, u64>,
    pub reached: BTreeMap<&'static str, u64>,
}

impl Entity {
    pub fn new(nature: Nature, now: Mutable, rules: BTreeMap<String, Rule>) -> Self {
        Self {
            nature,
            durable: now.clone(),
            now,
            updates: BTreeMap::new(),
            durable_rules: vec![rules.clone()],
            rules,
            last: 0,
            last_number: 0,
            cards: BTreeMap::new(),
            incoming: VecDeque::new(),
            calls: VecDeque::new(),
            holds: BTreeMap::new(),
            states: BTreeMap::new(),
            durable_states: vec![BTreeMap::new()],
            ids: BTreeMap::new(),
            ways: BTreeMap::new(),
            departing: BTreeSet::new(),
            proved: 0,
            proving: None,
        }
    }

    pub fn forwards(&self) -> bool {
        self.now.forward_to.is_some()
    }

    /// The instant at which a message expires: by its own time to live, else by the default
    /// (EXP-13).
    pub fn expiry(&self, record: &Record) -> Timestamp {
        if record.expires_at.is_never() {
            record.enqueued_at.plus(self.nature.time_to_live)
        } else {
            record.expires_at
        }
    }

    pub fn is_expired(&self, record: &Record, now: Timestamp) -> bool {
        record.sub_queue == SubQueue::Main
            && !matches!(record.state, SlotState::Scheduled | SlotState::Pending)
            && self.expiry(record) <= now
    }

    /// A new description: refused messages are offered again immediately.
    fn reset_ways(&mut self) {
        for (exit, way) in &mut self.ways {
            if !matches!(exit, transfer::Exit::Pending(_)) {
                way.not_before = Timestamp::NONE;
            }
        }
    }

    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Incoming {
    pub const fn group(&self) -> u64 {
        match self {
            Self::New { group, .. } | Self::Left { group, .. } => *group,
        }
    }
}

impl Card {
    /// Whether it is durable, unlocked, and not in transit.
    pub fn rests(&self) -> bool {
        self.lock.is_none() && self.doing.is_none() && !self.is_frozen && !self.has_vanished
    }
}

impl Oracle {
    pub fn reach(&mut self, rule: &'static str) {
        *self.reached.entry(rule).or_default() += 1;
    }

    pub fn of(&mut self, id: u64) -> &mut Entity {
        self.entities.get_mut(&id).unwrap()
    }

    /// Starts an action of the broker itself, which is no part of a command.
    fn begin_own(&mut self) {
        self.next_name += 1;
        self.ticket = OWN + self.next_name;
    }

    /// Counts one effect of the command, all of which are stored together.
    fn in_group(&mut self) -> u64 {
        *self.groups.entry(self.ticket).or_default() += 1;
        self.ticket
    }

    pub fn do_with(&mut self, id: u64, sequence: u64, doing: Doing) {
        let group = if doing == Doing::Unchanged { self.ticket } else { self.in_group() };
        let card = self.of(id).cards.get_mut(&sequence).unwrap();
        assert!(card.doing.is_none(), "{id}/{sequence} is changed twice at once");
        card.lock = None;
        card.doing = Some((doing, group));
    }

    /// Actions of a machine before a command: due events (file 23).
    pub fn advance(&mut self, id: u64) {
        self.end_locks(id);
        self.end_holds(id);
        self.materialise(id);
        self.expire(id);
    }

    /// Actions of a machine after its commands.
    pub fn serve(&mut self, id: u64, stages: Stages) -> Vec<Handed> {
        self.expire(id);
        let lists = self.hand_over(id, stages);
        self.give_sessions(id);
        self.give_messages(id);
        self.time_out(id);
        lists
    }
}
