//! Sessions: a queue that requires them delivers its messages by session, each to one receiver at a
//! time (SES-01 to SES-35).
//!
//! ```text
//!                    first message, state                 accept by id, accept next
//!  (does not exist) ──────────────────────► unlocked ─────────────────────────────► held
//!         ▲                                   │  ▲                                    │
//!         └── no message, no state, no lock ──┘  └─ closed: messages back, not counted┤
//!                                                └─ lock end, broken: messages counted┘
//! ```
//!
//! The queue numbers messages and keeps their slots, as for any other queue. A [`Session`] has its
//! own data: its message numbers, the available ones among them, and facts about its state. A held
//! session also has a [`SessionHold`]: its lock, the locks on its messages, the link and the
//! waiting calls of its holder, and their deadlines. [`directory`] finds sessions by id, number,
//! holder, deadline and lowest available number. Every other file is one operation.
//!
//! A held session has an actor that runs the commands of its holder; the actor of the queue does
//! everything else. Both drive this one machine, one at a time.
//!
//! The dead-letter queues have no sessions (DLQ-11): a message that moves there leaves its session.

mod accept;
mod directory;
mod hold;
mod list;
mod state;

use std::sync::Arc;

use bytes::Bytes;

use super::demand::{Calls, ReceiverLink, Ring};
use crate::StageNumber;
use crate::command::{LinkEnd, ReceiveMode};
use crate::ids::{ReceiverId, SequenceNumber, SessionEpoch};
use crate::lock_table::LockTable;
use crate::sequence_set::SequenceSet;
use crate::slot::SlotState;
use crate::time::Timestamp;

pub(super) use self::accept::Accept;
pub(super) use self::directory::Sessions;
pub(super) use self::list::ListRequest;

/// Place of a session in its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionIndex(u32);

/// A session. It exists while it has a message, a state or a holder (SES-04).
#[derive(Debug)]
pub(super) struct Session {
    name: Arc<str>,
    /// All its messages: active, deferred and scheduled.
    members: SequenceSet,
    /// Number of active messages, and of scheduled ones; all others are deferred.
    pub(super) active: u64,
    pub(super) scheduled: u64,
    /// Messages that its holder can get: active, unlocked, durable.
    available: SequenceSet,
    /// Active messages that are being returned or have just arrived. Later messages wait for them,
    /// so that the order is kept (DESIGN D5, SES-20).
    returning: SequenceSet,
    /// Key of the session in the directory of open sessions.
    offered: Option<SequenceNumber>,
    hold: Option<Box<SessionHold>>,
    state: Option<Box<KnownState>>,
}

/// The lock on a session, with everything that its holder has under it.
#[derive(Debug)]
pub(super) struct SessionHold {
    pub(super) receiver: ReceiverId,
    pub(super) mode: ReceiveMode,
    pub(super) epoch: SessionEpoch,
    pub(super) until: Timestamp,
    /// Instant at which the session was locked, and the number of renewals since.
    pub(super) taken_at: Timestamp,
    pub(super) renewals: u32,
    /// Turns of the link and the calls.
    pub(super) ring: Ring,
    /// The link, unless the entity has closed it (ENT-24).
    link: Option<ReceiverLink>,
    pub(super) calls: Calls,
    /// How the hold ended, while locks under it must still be ended.
    pub(super) ended: Option<LinkEnd>,
    /// Locks on messages of the session, which end with it (SES-14).
    pub(super) locks: LockTable,
}

impl SessionHold {
    fn new(
        receiver: ReceiverId,
        mode: ReceiveMode,
        epoch: SessionEpoch,
        (taken_at, until): (Timestamp, Timestamp),
        link: ReceiverLink,
    ) -> Self {
        Self {
            receiver,
            mode,
            epoch,
            until,
            taken_at,
            renewals: 0,
            ring: Ring::default(),
            link: Some(link),
            calls: Calls::default(),
            ended: None,
            locks: LockTable::default(),
        }
    }

    /// Next instant at which the hold has work to do: the lock or the wait of a call ends.
    pub(super) fn deadline(&self) -> Timestamp {
        let call = self.calls.first_deadline().map(|(deadline, _)| deadline);
        call.map_or(self.until, |deadline| deadline.min(self.until))
    }
}

/// Facts about a session's state; the store has the bytes.
#[derive(Debug)]
pub(super) struct KnownState {
    pub(super) set_at: Timestamp,
    pub(super) size: u64,
    /// The bytes, until their stage is durable.
    fresh: Option<(StageNumber, Bytes)>,
}

impl Session {
    fn named(name: Arc<str>) -> Self {
        Self {
            name,
            members: SequenceSet::default(),
            active: 0,
            scheduled: 0,
            available: SequenceSet::default(),
            returning: SequenceSet::default(),
            offered: None,
            hold: None,
            state: None,
        }
    }

    /// The id (SES-03).
    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// All its messages.
    pub(super) const fn members(&self) -> &SequenceSet {
        &self.members
    }

    /// Available messages, including messages that wait for an earlier one.
    pub(super) const fn available(&self) -> &SequenceSet {
        &self.available
    }

    /// The hold, whose lock may have run out without being ended yet.
    pub(super) fn hold(&self) -> Option<&SessionHold> {
        self.hold.as_deref()
    }

    /// Facts about its state.
    pub(super) fn state(&self) -> Option<&KnownState> {
        self.state.as_deref()
    }

    /// Counts a message by its state.
    fn count(&mut self, state: SlotState) {
        self.active += u64::from(state == SlotState::Active);
        self.scheduled += u64::from(state == SlotState::Scheduled);
    }

    /// Removes a message from the count of its state.
    const fn uncount(&mut self, state: SlotState) {
        match state {
            SlotState::Active => self.active = self.active.saturating_sub(1),
            SlotState::Scheduled => self.scheduled = self.scheduled.saturating_sub(1),
            SlotState::Deferred | SlotState::Pending => {}
        }
    }

    fn exists(&self) -> bool {
        !self.members.is_empty() || self.state.is_some() || self.hold.is_some()
    }
}

impl KnownState {
    /// The bytes, while they are not durable.
    pub(super) fn fresh(&self) -> Option<&Bytes> {
        self.fresh.as_ref().map(|(_, bytes)| bytes)
    }
}
