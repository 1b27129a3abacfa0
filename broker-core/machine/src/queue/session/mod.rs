//! Sessions: a queue that requires them hands its messages out by session, to one receiver each
//! (SES-01 to SES-35).
//!
//! ```text
//!                    first message, state                 accept by id, accept next
//!  (does not exist) ──────────────────────► unlocked ─────────────────────────────► held
//!         ▲                                   │  ▲                                    │
//!         └── no message, no state, no lock ──┘  └─ closed: messages back, not counted┤
//!                                                └─ lock end, broken: messages counted┘
//! ```
//!
//! The queue numbers messages and keeps their slots, as for any other queue. A [`Session`] has what is
//! its own: which numbers belong to it, which of them can be handed out, and what is known of its state;
//! while it is held also its lock, the locks on its messages, the link and the waiting calls of its
//! holder, and their deadlines ([`Held`]). [`directory`] finds sessions by id, by number, by holder, by
//! what is due and by their lowest available number. Every other file is one operation.
//!
//! A session that is held has an actor, which runs what its holder asks; the actor of the queue does
//! everything else. Both drive this one machine, one at a time.
//!
//! The dead-letter queues are sessionless (DLQ-11): a message that moves there leaves its session.

mod accept;
mod directory;
mod hold;
mod list;
mod state;

use std::sync::Arc;

use bytes::Bytes;

use super::demand::{Calls, Link, Ring};
use crate::StageNumber;
use crate::command::{LinkEnd, ReceiveMode};
use crate::ids::{ReceiverId, SequenceNumber, SessionEpoch};
use crate::lock_table::LockTable;
use crate::sequence_set::SequenceSet;
use crate::time::Timestamp;

pub(super) use self::accept::Accept;
pub(super) use self::directory::Sessions;
pub(super) use self::list::Wanted;

/// Place of a session in its directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SessionIndex(u32);

/// One session. It exists while it has a message, a state or a holder (SES-04).
#[derive(Debug)]
pub(super) struct Session {
    name: Arc<str>,
    /// All its messages: active, deferred, scheduled.
    members: SequenceSet,
    /// How many of them are active.
    active: u64,
    /// Those that its holder can get: active, unlocked, durable.
    available: SequenceSet,
    /// Active ones that are on their way back or have just come; those behind them wait, so that the
    /// order is kept (DESIGN D5, SES-20).
    returning: SequenceSet,
    /// Under which number it stands in the directory of sessions to accept.
    offered: Option<SequenceNumber>,
    held: Option<Box<Held>>,
    state: Option<Box<KnownState>>,
}

/// The lock on a session, with all that its holder has under it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) receiver: ReceiverId,
    pub(super) mode: ReceiveMode,
    pub(super) epoch: SessionEpoch,
    pub(super) until: Timestamp,
    /// Who waits: the link and the calls.
    pub(super) ring: Ring,
    /// The link, unless the entity has turned it away (ENT-24).
    link: Option<Link>,
    pub(super) calls: Calls,
    /// How it ended, if it did and there are locks under it that are still to be ended.
    pub(super) ended: Option<LinkEnd>,
    /// Locks on messages of the session, which end with it (SES-14).
    pub(super) locks: LockTable,
}

impl Held {
    fn new(
        receiver: ReceiverId,
        mode: ReceiveMode,
        epoch: SessionEpoch,
        until: Timestamp,
        link: Link,
    ) -> Self {
        Self {
            receiver,
            mode,
            epoch,
            until,
            ring: Ring::default(),
            link: Some(link),
            calls: Calls::default(),
            ended: None,
            locks: LockTable::default(),
        }
    }

    /// The next instant at which it has something to do: the lock ends, or a call has waited long enough.
    pub(super) fn deadline(&self) -> Timestamp {
        let call = self.calls.first_deadline().map(|(deadline, _)| deadline);
        call.map_or(self.until, |deadline| deadline.min(self.until))
    }
}

/// What is known of a session's state; the bytes are the store's.
#[derive(Debug)]
pub(super) struct KnownState {
    pub(super) set_at: Timestamp,
    pub(super) size: u64,
    /// The bytes, until the stage that carries them is durable.
    fresh: Option<(StageNumber, Bytes)>,
}

impl Session {
    fn named(name: Arc<str>) -> Self {
        Self {
            name,
            members: SequenceSet::default(),
            active: 0,
            available: SequenceSet::default(),
            returning: SequenceSet::default(),
            offered: None,
            held: None,
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

    /// Messages that can be handed out, those too that wait for one before them.
    pub(super) const fn available(&self) -> &SequenceSet {
        &self.available
    }

    /// The lock, which may have run out and not been ended yet.
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_deref()
    }

    /// What is known of its state.
    pub(super) fn state(&self) -> Option<&KnownState> {
        self.state.as_deref()
    }

    fn exists(&self) -> bool {
        !self.members.is_empty() || self.state.is_some() || self.held.is_some()
    }
}

impl KnownState {
    /// The bytes, while the store does not have them for certain.
    pub(super) fn fresh(&self) -> Option<&Bytes> {
        self.fresh.as_ref().map(|(_, bytes)| bytes)
    }
}
