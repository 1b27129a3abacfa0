//! The state machines: pure and synchronous. (Data path, step 3.)
//!
//! Nothing here reads a clock, waits, stores, draws a random number or walks an unordered map: time
//! and lock tokens come in with [`Ctx`], changes and effects go out with [`Step`]. That is what lets
//! the model test, the simulator and the actor drive the same code.
#![deny(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::wildcard_enum_match_arm,
    clippy::indexing_slicing
)]

mod allowance;
pub mod any;
pub mod config;
pub mod due;
mod duplicate_history;
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

use self::family::Family;
use crate::change::{Change, Durability};
use crate::command::{Command, Stored};
use crate::effect::{Answer, Effect};
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::store::{Batch, Key, Reserved};
use crate::time::Timestamp;
use crate::transaction::Part;

/// Numbers the stages of a tree; grows by one with every submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StageNumber(pub u64);

/// What a machine may know beside its own state.
pub struct Ctx<'a> {
    /// The instant of this step; never earlier than that of the step before.
    pub now: Timestamp,
    /// The stage that will carry the changes of this step.
    pub stage: StageNumber,
    /// Bytes that the whole tree holds, removals that are not yet durable included.
    pub stored_bytes: u64,
    /// What the store has said to a send that asks for room; a send without room is refused at its
    /// place in SND-19, with nothing changed (QUO-05).
    pub room: Reserved,
    /// What the machines of the broker together may keep still.
    pub left: Left,
    /// The numbers of the namespace.
    pub limits: &'a Limits,
    /// Fresh random bits for lock tokens.
    pub tokens: &'a mut dyn FnMut() -> u64,
}

/// What is reserved at most for the copies of a command that was not judged ahead. Such a one has not as many rules
/// to meet that it could become more, whatever number of subscriptions its topic has.
const SEND_OVERHEAD_MAX: u64 = 4 << 20;

/// What a machine keeps in memory, or all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Messages, and what was set on them, each time by itself (SET-41).
    pub messages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Message ids of duplicate histories.
    pub duplicate_ids: u64,
    /// Scheduled and deferred messages, and those that are Delayed.
    pub delayed: u64,
    /// Rules of subscriptions.
    pub rules: u64,
    /// Bytes of rules, and of what entities say of themselves in texts.
    pub described_bytes: u64,
    /// Bytes of copies that were judged and are not stored yet.
    pub judged_bytes: u64,
}

/// How many of each there may be more, over all machines of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Messages.
    pub messages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Message ids of duplicate histories.
    pub duplicate_ids: u64,
    /// Scheduled and deferred messages, and those that are Delayed.
    pub delayed: u64,
    /// Rules of subscriptions.
    pub rules: u64,
    /// Bytes of rules, and of what entities say of themselves in texts.
    pub described_bytes: u64,
    /// Bytes of copies that were judged and are not stored yet.
    pub judged_bytes: u64,
}

impl Left {
    /// For a machine by itself.
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

/// What a machine is asked to prepare.
#[derive(Clone, Copy)]
pub enum Ahead<'c> {
    /// A command that is to be applied.
    Command {
        /// Its name.
        ticket: Ticket,
        /// What is asked.
        command: &'c Command,
    },
    /// A content that is to be given to [`Machine::loaded`].
    Loaded {
        /// The number of its message.
        sequence: SequenceNumber,
        /// What was loaded.
        content: &'c Bytes,
    },
}

/// How many messages a step moves because time has passed (EXP-34, SCH-07). What is left is done by the next
/// step, which the machine asks for at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Moves {
    /// In a turn among those of other entities.
    Few,
    /// In a long turn, or where nobody else waits.
    #[default]
    Many,
}

impl Moves {
    /// So many.
    #[must_use]
    pub const fn max(self) -> usize {
        match self {
            Self::Few => 1_024,
            Self::Many => 10_000,
        }
    }
}

/// Whether so many messages are more than a turn among those of others moves.
pub(crate) const fn is_long(steps: u64) -> bool {
    steps > Moves::Few.max() as u64
}

/// What a step gives out. Reused from step to step.
#[derive(Debug, Default)]
pub struct Step {
    /// Durable facts, in order; those of one command are stored together.
    pub changes: Vec<Change>,
    /// What follows from them.
    pub effects: Vec<Effect>,
    /// Messages that were moved, whether or not a change tells of it.
    pub moves: u64,
    /// Bytes that count for the quota from now on.
    pub bytes_added: u64,
    /// Bytes that stop counting when the changes are durable.
    pub bytes_freed: u64,
    /// Bytes that stop counting now: what made them free is durable already.
    pub bytes_left: u64,
    /// The strongest durability that a change of this step asks for.
    pub durability: Option<Durability>,
    /// Deliveries that have ended without a word of their receiver: by the end of a lock, or of a connection.
    pub lapsed_count: u64,
    /// Failures that a retry policy would have delayed, had there been room (RTY-32).
    pub undelayed_count: u64,
}

impl Step {
    /// Raises the durability of the step.
    pub fn require(&mut self, durability: Durability) {
        self.durability = self.durability.max(Some(durability));
    }
}

/// A record that does not say what its key promises; the store is damaged or of a later version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {key:?} cannot be read: {}", .what)]
pub struct CorruptRecord {
    /// Where it lies.
    pub key: Vec<u8>,
    /// What is wrong.
    pub what: &'static str,
}

/// The state machine of one entity.
pub trait Machine {
    /// Runs one command against a sub-queue. A rejection has changed nothing.
    ///
    /// # Errors
    /// With the condition of the first check that fails.
    fn apply(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        command: Command,
        ctx: &mut Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection>;

    /// Finds out, without altering anything, what a command or a due message needs to have found out before
    /// it is carried out, for about a millisecond; returns whether that can be done now. Until then the
    /// machine is asked the same again, and nothing else.
    fn go_ahead(&mut self, _ahead: Ahead<'_>, _ctx: &mut Ctx<'_>) -> bool {
        true
    }

    /// Whether [`Machine::go_ahead`] has more to do for this than fits into a turn beside others, or the command has,
    /// so that it is for a long turn.
    fn is_long(&self, _ahead: Ahead<'_>, _now: Timestamp, _limits: &Limits) -> bool {
        false
    }

    /// How many messages a command moves, shows or copies at most, as things are; at least one.
    fn steps_of(&self, _command: &Command, _now: Timestamp, _limits: &Limits) -> u64 {
        1
    }

    /// How many steps were taken to judge since the last call, each about a byte that was looked at.
    fn take_judged(&mut self) -> u64 {
        0
    }

    /// How many messages [`Machine::advance`] moves at most from now on.
    fn pace(&mut self, _moves: Moves) {}

    /// Whether more is due than the last step has moved.
    fn is_behind(&self) -> bool {
        false
    }

    /// Lets time pass up to `ctx.now`: what is due happens, within a budget; the rest leaves
    /// [`Machine::next_deadline`] at an instant that has passed. Called before every list of commands.
    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut Step);

    /// Matches demand with what is available. Called once after every list of commands.
    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut Step);

    /// Is told that every stage up to this one is durable.
    fn committed(&mut self, stage: StageNumber);

    /// The next instant at which [`Machine::advance`] has something to do.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// The same without what is due in sessions that are held, for whom those have drivers of their own.
    fn own_deadline(&self) -> Option<Timestamp> {
        self.next_deadline()
    }

    /// The next instant at which something is due in the session that somebody holds.
    fn deadline_of(&self, _holder: ReceiverId) -> Option<Timestamp> {
        None
    }

    /// Carries a change out. The only code that alters what is durable.
    fn enact(&mut self, change: &Change, stage: StageNumber);

    /// Appends the absolute value of every key that the change touched.
    fn records(&self, change: &Change, batch: &mut Batch);

    /// Appends the counters that changed since the last call, once per list of commands; returns
    /// the durability they ask for.
    fn checkpoint(&mut self, now: Timestamp, batch: &mut Batch) -> Option<Durability>;

    /// Takes back one record in ascending order of keys.
    ///
    /// # Errors
    /// When the record cannot be understood.
    fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord>;

    /// Is told that every record was restored. After it the machine is as it was, without locks
    /// and demand (LIF-04).
    fn restored(&mut self, now: Timestamp);

    /// Takes what the other machines of its tree have for it: copies of a topic, and what they know of
    /// each other. Called before every list of commands, if there are others.
    fn take_in(&mut self, _family: &mut Family, _now: Timestamp) {}

    /// Tells the other machines of its tree what they need to know. Called after every list of commands,
    /// if there are others.
    fn give_out(&self, _family: &mut Family) {}

    /// Gets the contents that it has asked for by [`Effect::Load`], in that order; what the store could
    /// not read is missing.
    fn loaded(
        &mut self,
        _contents: Vec<(SequenceNumber, Option<Bytes>)>,
        _ctx: &mut Ctx<'_>,
        _step: &mut Step,
    ) {
    }

    /// Whether it would carry these parts of a transaction out, which another machine of its tree
    /// coordinates (TXN-08). Changes nothing; a [`Command::Commit`] of the same parts right after it
    /// succeeds.
    ///
    /// # Errors
    /// With the condition of the first part that cannot be done.
    fn check_parts(&self, _parts: Vec<Part>, _ctx: &Ctx<'_>) -> Result<(), Rejection> {
        Err(Rejection::invalid_operation(
            "this entity cannot take part in a transaction of another entity",
        ))
    }

    /// How often properties were set on the message that a part of a transaction settles here: what the part comes to
    /// beside itself, whoever coordinates it (TXN-08).
    fn set_on_settled(&self, _part: &Part) -> u64 {
        0
    }

    /// What it keeps in memory of what the broker has a bound for.
    fn kept(&self) -> Kept {
        Kept::default()
    }

    /// What a send may need in the store beside its content and one record.
    fn send_overhead(&self) -> u64 {
        0
    }

    /// What the command that was judged last by [`Machine::go_ahead`] needs in the store beside its contents, if
    /// that is known to the byte.
    fn judged_bytes(&self) -> Option<u64> {
        None
    }

    /// If that is not known, the most that rules can set on copies of the command that was judged last.
    fn set_bytes(&self) -> u64 {
        0
    }

    /// What a command needs in the store that is to be carried out next: contents, the records beside them, and what
    /// rules set on copies.
    fn room_of(&self, stored: Stored) -> u64 {
        let overhead = self.judged_bytes().unwrap_or_else(|| {
            let records = self.send_overhead().saturating_mul(stored.published);
            records.min(SEND_OVERHEAD_MAX).saturating_add(self.set_bytes())
        });
        stored.bytes.saturating_add(overhead)
    }

    /// Where the content of a message lies.
    fn content_key(&self, sequence: SequenceNumber) -> Key;

    /// Where the `index`-th overlay of a message lies.
    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key;
}

// What lies below has the same names in every crate of the core: `crate::error` here is `peeklock_core::error`.
pub(crate) use peeklock_model::{change, command, effect, transaction, transfer};
pub(crate) use peeklock_record as store;
pub(crate) use peeklock_words::{
    condition, description, error, ids, limits, message, path, rule, time,
};
