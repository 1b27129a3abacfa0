//! Commands under way: what each answers, and how answers of one request are put together.

use std::collections::HashSet;
use std::sync::Arc;

use peeklock_core::ids::LockToken;
use peeklock_core::permits::Permit;
use peeklock_core::time::Timestamp;

use super::transaction::{Committing, Joining};
use crate::frame::{FailedRange, FailedSend};

/// A request whose answer is awaited.
pub(super) struct Pending {
    /// The id that the client gave it.
    pub(super) id: u32,
    /// The entity, for errors.
    pub(super) path: Arc<str>,
    pub(super) expect: Expect,
    /// Given back when this is dropped.
    pub(super) _permit: Option<Arc<Permit>>,
}

/// What is awaited, and what of it has come.
pub(super) enum Expect {
    /// Nothing that anybody is told.
    Unheard,
    /// That it is done.
    Done,
    /// That a receiver is attached.
    Attached { link: u32 },
    /// That a receiver is attached that has not asked for deliveries.
    Watching { link: u32 },
    /// That nothing more is delivered to a link that is being closed.
    Quiet { link: u32 },
    /// That a link is detached.
    Detached { link: u32 },
    /// What is left of the credit of a link.
    Drained { link: u32 },
    /// The numbers of messages sent each by itself.
    Sent(Sent),
    /// The numbers of a batch.
    Batch,
    /// Which messages of another broker were taken over.
    Forwarded,
    /// Messages, for a link.
    Messages { link: u32 },
    /// That messages are settled.
    Settled(Keyed),
    /// The ends of prolonged locks.
    Renewed { keyed: Keyed, until: Option<Timestamp> },
    /// How many messages were deleted.
    Deleted,
    /// That a session is locked for a link.
    Accepted { link: u32, credit: u32 },
    /// The end of the prolonged lock of a link's session.
    SessionRenewed { link: u32 },
    /// The state of a session.
    SessionState,
    /// That operations would be carried out, for a transaction.
    Joined(Joining),
    /// That a transaction is carried out.
    Committed(Committing),
    /// The answer that the transport itself makes.
    Own,
}

/// The answers of messages sent by one request.
pub(super) struct Sent {
    pub(super) numbers: Vec<u64>,
    pub(super) left: usize,
    pub(super) failed: Vec<FailedSend>,
}

/// The answers of settlements or renewals of one request.
pub(super) struct Keyed {
    pub(super) link: u32,
    /// Delivery numbers, or places in the list of tokens.
    pub(super) keys: Vec<u32>,
    pub(super) tokens: Vec<LockToken>,
    pub(super) left: usize,
    pub(super) failed: Vec<FailedRange>,
}

/// All requests of a connection whose answers are awaited. The correlation of a command is its place
/// here and its index within the request.
#[derive(Default)]
pub(super) struct PendingTable {
    slots: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// The ids that clients gave them.
    ids: HashSet<u32>,
}

impl PendingTable {
    /// Adds a request; returns its place.
    pub(super) fn insert(&mut self, pending: Pending) -> usize {
        if pending.id != 0 {
            self.ids.insert(pending.id);
        }
        match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot) {
                    *place = Some(pending);
                }
                slot
            }
            None => {
                self.slots.push(Some(pending));
                self.slots.len() - 1
            }
        }
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut Pending> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Pending> {
        let pending = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.ids.remove(&pending.id);
        Some(pending)
    }

    /// Whether a request with this id is not answered yet.
    pub(super) fn awaits(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// How many requests await something of this kind.
    pub(super) fn count(&self, is_kind: impl Fn(&Expect) -> bool) -> usize {
        self.slots.iter().flatten().filter(|pending| is_kind(&pending.expect)).count()
    }

    /// How many requests are under way.
    pub(super) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// The correlation of a command.
pub(super) fn correlation(slot: usize, index: usize) -> u64 {
    ((slot as u64) << 32) | (index as u64 & u64::from(u32::MAX))
}

/// Place and index of a correlation.
pub(super) fn place(correlation: u64) -> (usize, usize) {
    let part = |bits: u64| usize::try_from(bits & u64::from(u32::MAX)).unwrap_or(usize::MAX);
    (part(correlation >> 32), part(correlation))
}
