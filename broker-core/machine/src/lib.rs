//! The state machines of queues, subscriptions and topics: pure and synchronous. They are step 3 of
//! the data path in ARCHITECTURE.md.
//!
//! A machine never reads a clock, waits, stores, draws a random number or walks an unordered map.
//! Time and lock tokens come in with [`Ctx`]; changes and effects go out with [`StepOutput`]. So
//! the model test, the simulator and the actor drive the same code.
//!
//! Modules in reading order:
//!
//! - [`queue`]: the machine of queues and subscriptions, one file for each operation; `intake`,
//!   `take_over` and `act` have the checks that it shares with topics
//! - [`topic`]: the machine of topics; [`family`] has the data that it shares with its
//!   subscriptions, `allowance` the limit of copies
//! - [`any`]: either machine, for the driver
//! - [`event`]: events of messages that are no changes
//! - [`slot`], [`lock_table`], [`sequence_set`], [`due`], [`peers`], `duplicate_history`: data
//!   structures
//! - [`config`], `usage`, `idle`: settings, and the time of the last use
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::wildcard_enum_match_arm,
    clippy::indexing_slicing
)]

mod act;
mod allowance;
pub mod any;
pub mod config;
pub mod due;
mod duplicate_history;
pub mod event;
mod excerpt;
pub mod family;
mod idle;
mod intake;
pub mod lock_table;
pub mod peers;
pub mod queue;
pub mod sequence_set;
pub mod slot;
mod take_over;
pub mod topic;
mod usage;

use bytes::Bytes;

use self::event::{EventKind, LockEnd, MessageEvent, low_half};
use self::family::Family;
use crate::change::{Change, Durability};
use crate::command::{Command, Stored};
use crate::effect::{Answer, Effect};
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::record::{Batch, Key, Reserved};
use crate::rule::{RulePlace, SampledMessage};
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::Part;

/// Number of a stage of a tree; grows by one with every submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StageNumber(pub u64);

/// Input of a step in addition to the machine's own state.
pub struct Ctx<'a> {
    /// Instant of this step; never earlier than the step before.
    pub now: Timestamp,
    /// The stage that will carry the changes of this step.
    pub stage: StageNumber,
    /// Bytes that the whole tree holds, removals that are not yet durable included.
    pub stored_bytes: u64,
    /// Result of the reservation in the store for a command that needs room. A send without room is
    /// refused at its place in SND-19, and changes nothing (QUO-05).
    pub room: Reserved,
    /// Remaining capacity of the broker over all its machines.
    pub remaining: RemainingCapacity,
    /// Limits of the namespace.
    pub limits: &'a Limits,
    /// Fresh random bits for lock tokens.
    pub tokens: &'a mut dyn FnMut() -> u64,
}

/// Maximum bytes to reserve for the copies of a published message whose rules were not evaluated
/// before ([`Machine::prepare`]). A topic skips this evaluation only if the command meets few
/// rules. Such a command makes few copies, which need less than this maximum, even if the topic has
/// many subscriptions.
const SEND_OVERHEAD_MAX: u64 = 4 << 20;

/// Memory that a machine uses, or all machines of a broker together, in units with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Messages, and the overlays on them; each overlay counts as one (SET-41).
    pub messages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Message ids of duplicate histories.
    pub duplicate_ids: u64,
    /// Scheduled, deferred and Delayed messages.
    pub delayed: u64,
    /// Rules of subscriptions.
    pub rules: u64,
    /// Bytes of rules, and of texts in descriptions.
    pub described_bytes: u64,
    /// Bytes of copies that were judged and are not stored yet.
    pub judged_bytes: u64,
}

/// Remaining capacity of a broker over all its machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemainingCapacity {
    /// Messages.
    pub messages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Message ids of duplicate histories.
    pub duplicate_ids: u64,
    /// Scheduled, deferred and Delayed messages.
    pub delayed: u64,
    /// Rules of subscriptions.
    pub rules: u64,
    /// Bytes of rules, and of texts in descriptions.
    pub described_bytes: u64,
    /// Bytes of copies that were judged and are not stored yet.
    pub judged_bytes: u64,
}

impl RemainingCapacity {
    /// Unlimited capacity, for a machine outside a broker.
    pub const ALL: Self = Self {
        messages: u64::MAX,
        sessions: u64::MAX,
        duplicate_ids: u64::MAX,
        delayed: u64::MAX,
        rules: u64::MAX,
        described_bytes: u64::MAX,
        judged_bytes: u64::MAX,
    };
}

/// Work that a machine can prepare.
#[derive(Clone, Copy)]
pub enum Preparation<'c> {
    /// A command that will be applied.
    Command {
        /// Ticket of the command.
        ticket: Ticket,
        /// The command.
        command: &'c Command,
    },
    /// A content that will be passed to [`Machine::loaded`].
    Loaded {
        /// The number of its message.
        sequence: SequenceNumber,
        /// The loaded content.
        content: &'c Bytes,
    },
}

/// Limit on the messages that a step moves because time has passed (EXP-34, SCH-07). The next step
/// does the rest; the machine requests it at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MoveLimit {
    /// For a turn while other entities wait.
    Few,
    /// For a long turn, or if no other entity waits.
    #[default]
    Many,
}

impl MoveLimit {
    /// Returns the number.
    #[must_use]
    pub const fn max(self) -> usize {
        match self {
            Self::Few => 1_024,
            Self::Many => 10_000,
        }
    }
}

/// Whether `work` exceeds the limit of a turn while other entities wait.
pub(crate) const fn is_long(work: u64) -> bool {
    work > MoveLimit::Few.max() as u64
}

/// Output of a call to a machine: a command, or a method such as [`Machine::advance`]. The driver
/// reuses it for the next call.
#[derive(Debug, Default)]
pub struct StepOutput {
    /// Durable facts, in order; all changes of a command are stored together.
    pub changes: Vec<Change>,
    /// Consequences of the changes.
    pub effects: Vec<Effect>,
    /// Number of messages that were moved, with or without a change.
    pub moves: u64,
    /// Bytes that count for the quota from now on.
    pub bytes_added: u64,
    /// Bytes that stop counting when the changes are durable.
    pub bytes_freed: u64,
    /// Bytes of messages that have left for another entity. They stop counting at once, because
    /// the batch of the destination has already removed the messages.
    pub bytes_departed: u64,
    /// The strongest durability that a change of this step requires.
    pub durability: Option<Durability>,
    /// Number of deliveries that ended without a settlement, because a lock or a connection ended.
    pub unsettled_count: u64,
    /// Number of failures that a retry policy would have delayed if there had been room (RTY-32).
    pub undelayed_count: u64,
    /// Number of messages that were dropped as duplicates (DUP-02).
    pub duplicate_count: u64,
    /// Whether `events` are noted; the driver sets it.
    pub notes_events: bool,
    /// Events of messages, in order: facts that are no change.
    pub events: Vec<MessageEvent>,
    /// Whether `samples` are noted; the driver sets it.
    pub notes_samples: bool,
    /// Messages that the step published, in order.
    pub samples: Vec<SampledMessage>,
    /// Times under lock of the messages whose lock ended.
    pub lock_spans: Vec<TimeSpan>,
    /// Number of locks among them that ended because their time was over.
    pub locks_expired: u32,
}

impl StepOutput {
    /// Raises the durability of the step.
    pub fn require(&mut self, durability: Durability) {
        self.durability = self.durability.max(Some(durability));
    }

    /// Notes an event of a message, before the change that is its consequence.
    pub fn note(&mut self, sequence: SequenceNumber, holder: Option<ReceiverId>, kind: EventKind) {
        if self.notes_events {
            self.events.push(MessageEvent::after(&self.changes, sequence, holder, kind));
        }
    }

    /// Notes the end of the lock of a message that was locked for `span`.
    fn note_lock_end(
        &mut self,
        sequence: SequenceNumber,
        holder: Option<ReceiverId>,
        (span, end): (TimeSpan, LockEnd),
    ) {
        self.lock_spans.push(span);
        self.note(sequence, holder, EventKind::LockEnded { end });
    }

    /// Counts and notes a message that is dropped as a duplicate. Its sender gets `number`.
    fn note_duplicate(&mut self, number: SequenceNumber, id_hash: Option<u128>) {
        self.duplicate_count += 1;
        if let Some(id_hash) = id_hash {
            self.note(number, None, EventKind::Duplicate { id_hash: low_half(id_hash) });
        }
    }
}

/// Messages that an entity has accepted and that are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedMessages {
    /// The highest number that was examined.
    pub last: SequenceNumber,
    /// Number of messages up to there that are still stored.
    pub count: u64,
}

/// A record that the machine cannot read; the store is damaged or was written by a later version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {key:?} cannot be read: {}", .problem)]
pub struct CorruptRecord {
    /// Key of the record.
    pub key: Vec<u8>,
    /// Description of the error.
    pub problem: &'static str,
}

/// The state machine of an entity.
pub trait Machine {
    /// Runs one command against a sub-queue. A rejected command has changed nothing.
    ///
    /// # Errors
    /// The condition of the first check that fails.
    fn apply(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        command: Command,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection>;

    /// Prepares a command or a loaded content for about a millisecond, without changing the state:
    /// a topic judges its rules. Returns whether the command can run now. Until then the driver
    /// calls only this method again, with the same argument.
    fn prepare(&mut self, _ahead: Preparation<'_>, _ctx: &mut Ctx<'_>) -> bool {
        true
    }

    /// Whether the rest of [`Machine::prepare`], or the command itself, exceeds a turn while other
    /// entities wait, so that it needs a long turn.
    fn is_long(&self, _ahead: Preparation<'_>, _now: Timestamp, _limits: &Limits) -> bool {
        false
    }

    /// Maximum number of units of work that a command would take now: messages that it moves, shows
    /// or copies, with their overlays; at least one.
    fn work_of(&self, _command: &Command, _now: Timestamp, _limits: &Limits) -> u64 {
        1
    }

    /// Returns the steps that rule evaluation has taken since the last call, and resets them. One
    /// such step is about one examined byte, far less than a unit of [`Machine::work_of`].
    fn take_evaluation_steps(&mut self) -> u64 {
        0
    }

    /// Sets the maximum number of messages that [`Machine::advance`] moves per step.
    fn set_move_limit(&mut self, _limit: MoveLimit) {}

    /// Whether more work is due than the last step has done.
    fn is_behind(&self) -> bool {
        false
    }

    /// Lets time pass up to `ctx.now` and does due work, within a budget. If work is left,
    /// [`Machine::next_deadline`] is in the past. Called before every list of commands.
    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput);

    /// Lets all locks end later by this time, in which the broker was suspended (CLU-22).
    fn prolong_locks(&mut self, _span: TimeSpan) {}

    /// Delivers available messages to waiting receivers. Called once after every list of commands.
    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput);

    /// Marks every stage up to `stage` durable.
    fn committed(&mut self, stage: StageNumber);

    /// Returns the durable messages above the number `seen`, up to the first message that is not
    /// durable; `None` for a machine that keeps no accepted messages (CON-34).
    fn accepted_after(&self, _seen: SequenceNumber) -> Option<AcceptedMessages> {
        None
    }

    /// Next instant at which [`Machine::advance`] has work to do.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Next instant of work outside held sessions, which have drivers of their own.
    fn own_deadline(&self) -> Option<Timestamp> {
        self.next_deadline()
    }

    /// Next instant of work in the session that `holder` holds.
    fn deadline_of(&self, _holder: ReceiverId) -> Option<Timestamp> {
        None
    }

    /// Carries a change out. Only this method alters durable state.
    fn enact(&mut self, change: &Change, stage: StageNumber);

    /// Appends the absolute value of every key that the change touched.
    fn records(&self, change: &Change, batch: &mut Batch);

    /// Appends the counters that changed since the last call, once per list of commands. Returns
    /// the durability that they require.
    fn checkpoint(&mut self, now: Timestamp, batch: &mut Batch) -> Option<Durability>;

    /// Restores one record. Records come in ascending order of keys.
    ///
    /// # Errors
    /// If the record cannot be read.
    fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord>;

    /// Completes the restore after the last record. Then the machine is as it was, without locks
    /// and demand (LIF-04).
    fn restored(&mut self, now: Timestamp);

    /// Takes the data of the other machines of its tree: copies from a topic, settings and use from
    /// subscriptions. Called before every list of commands, if the tree has other machines.
    fn take_from_family(&mut self, _family: &mut Family, _now: Timestamp) {}

    /// Reports its data to the other machines of its tree. Called after every list of commands, if
    /// the tree has other machines.
    fn report_to_family(&self, _family: &mut Family) {}

    /// Receives the contents that it requested with [`Effect::Load`], in that order; a content is
    /// `None` if the store could not read it.
    fn loaded(
        &mut self,
        _contents: Vec<(SequenceNumber, Option<Bytes>)>,
        _ctx: &mut Ctx<'_>,
        _step: &mut StepOutput,
    ) {
    }

    /// Checks parts of a transaction that another machine of the tree coordinates (TXN-08). Changes
    /// nothing; a [`Command::Commit`] of the same parts directly after it succeeds.
    ///
    /// # Errors
    /// The condition of the first part that fails.
    fn check_parts(&self, _parts: Vec<Part>, _ctx: &Ctx<'_>) -> Result<(), Rejection> {
        Err(Rejection::invalid_operation(
            "this entity cannot take part in a transaction of another entity",
        ))
    }

    /// Name of the rule at a place of the topic, as its copies name it.
    fn rule_name(&self, _rule: RulePlace) -> Option<&str> {
        None
    }

    /// Number of overlays on the message that a part of a transaction settles here; they are work
    /// in addition to the part itself (TXN-08). An overlay is a record of properties that were set
    /// on a message after its send.
    fn overlays_of_settled(&self, _part: &Part) -> u64 {
        0
    }

    /// Memory that it uses, in units with a limit.
    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }

    /// Bytes that a published message may need in the store in addition to its content and one
    /// record.
    fn send_overhead(&self) -> u64 {
        0
    }

    /// Bytes that the command judged last by [`Machine::prepare`] needs in the store in addition
    /// to its contents, if known exactly.
    fn judged_bytes(&self) -> Option<u64> {
        None
    }

    /// Maximum bytes that rules can set on the copies of the command judged last, if
    /// [`Machine::judged_bytes`] is unknown.
    fn rule_bytes_max(&self) -> u64 {
        0
    }

    /// Bytes that the next command needs in the store: contents, their records, and properties that
    /// rules set on copies.
    fn room_of(&self, stored: Stored) -> u64 {
        let overhead = self.judged_bytes().unwrap_or_else(|| {
            let records = self.send_overhead().saturating_mul(stored.published);
            records.min(SEND_OVERHEAD_MAX).saturating_add(self.rule_bytes_max())
        });
        stored.bytes.saturating_add(overhead)
    }

    /// Key of the content of a message.
    fn content_key(&self, sequence: SequenceNumber) -> Key;

    /// Key of the `index`-th overlay of a message.
    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key;
}

// The crates below keep their names in every crate of the core: `crate::error` here is
// `peeklock_core::error` there.
pub(crate) use peeklock_model::{change, command, effect, inspect, transaction, transfer};
pub(crate) use peeklock_record as record;
pub(crate) use peeklock_words::{
    condition, description, error, ids, limits, message, path, rule, time,
};
