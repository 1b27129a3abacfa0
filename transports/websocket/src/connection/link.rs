//! A link: a client's handle on a queue or sub-queue, and for receivers the flow of deliveries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::command::{Drain, LinkEnd, LockGrant, ReceiveMode};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::time::Timestamp;

use crate::frame::{Range, Role};

/// A link.
pub(super) struct Link {
    pub(super) entity: Entity,
    /// The path, for errors.
    pub(super) path: Arc<str>,
    pub(super) role: Role,
    pub(super) mode: ReceiveMode,
    /// What it receives from.
    pub(super) source: Source,
    /// Holds the locks.
    pub(super) receiver: ReceiverId,
    /// The number of the last delivery.
    pub(super) last: u32,
    /// How far the client lets it be sent.
    pub(super) up_to: u32,
    pub(super) flow: Option<Flow>,
    unsettled: BTreeMap<u32, LockGrant>,
    /// The numbers of unsettled deliveries, by that of their message.
    by_sequence: HashMap<SequenceNumber, u32>,
    /// The link is being closed by this request, in this way.
    pub(super) closing: Option<(u32, LinkEnd)>,
    /// What arrived for it while it was being closed, to be given back.
    pub(super) undelivered: Vec<LockToken>,
}

/// What a receiver receives from.
pub(super) enum Source {
    /// The queue, without sessions.
    Queue,
    /// No session yet: it waits for one.
    Awaited,
    /// This session, as long as its lock lasts.
    Session(Box<str>),
}

/// What was delivered since the entity attached the receiver, and how far it may go.
pub(super) struct Flow {
    /// The number of the last delivery before.
    base: u32,
    /// Bytes that the client has taken, or that were written where it need not say so.
    returned_bytes: u64,
    delivery_limit: u64,
    byte_limit: u64,
    /// A drain is under way: limits are set again after it.
    pub(super) draining: bool,
}

/// New limits for the entity.
pub(super) struct Limits {
    pub(super) delivery_limit: u64,
    pub(super) byte_limit: u64,
    pub(super) drain: Drain,
}

/// How far a link may be sent besides its credit.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) window_bytes: u64,
    pub(super) unsettled_max: u32,
    /// Nothing more is to be delivered for now.
    pub(super) paused: bool,
}

/// What a range of delivery numbers names.
pub(super) struct Named {
    /// Number and lock of deliveries that are not settled.
    pub(super) held: Vec<(u32, LockToken)>,
    /// Numbers of no such delivery.
    pub(super) gaps: Vec<Range>,
}

impl Link {
    pub(super) fn new(entity: Entity, role: Role, mode: ReceiveMode) -> Self {
        let path = entity.path().into();
        let receiver = entity.broker().receiver_id();
        Self {
            entity,
            path,
            role,
            mode,
            source: Source::Queue,
            receiver,
            last: 0,
            up_to: 0,
            flow: None,
            unsettled: BTreeMap::new(),
            by_sequence: HashMap::new(),
            closing: None,
            undelivered: Vec::new(),
        }
    }

    /// Lets deliveries flow from now on.
    pub(super) fn start_flow(&mut self) {
        self.flow = Some(Flow {
            base: self.last,
            returned_bytes: 0,
            delivery_limit: 0,
            byte_limit: 0,
            draining: false,
        });
    }

    /// The session that it was bound to, if it was.
    pub(super) fn session(&self) -> Option<&str> {
        match &self.source {
            Source::Session(session) => Some(session),
            Source::Queue | Source::Awaited => None,
        }
    }

    /// A session lock was prolonged, and with it all locks under it (SES-14).
    pub(super) fn session_renewed(&mut self, until: Timestamp) {
        for lock in self.unsettled.values_mut() {
            lock.until = until;
        }
    }

    /// The limits to be told to the entity, if they have changed enough.
    pub(super) fn new_limits(&mut self, bounds: Bounds) -> Option<Limits> {
        let room = bounds.unsettled_max.saturating_sub(self.unsettled_count());
        let up_to = if bounds.paused || self.closing.is_some() {
            self.last
        } else {
            self.up_to.min(self.last.saturating_add(room))
        };
        let flow = self.flow.as_mut()?;
        if flow.draining {
            return None;
        }
        let delivery_limit = u64::from(up_to.saturating_sub(flow.base));
        let byte_limit = flow.returned_bytes.saturating_add(bounds.window_bytes);
        let more_bytes = byte_limit.saturating_sub(flow.byte_limit);
        if delivery_limit == flow.delivery_limit && more_bytes < bounds.window_bytes / 2 {
            return None;
        }
        flow.delivery_limit = delivery_limit;
        flow.byte_limit = flow.byte_limit.max(byte_limit);
        Some(Limits { delivery_limit, byte_limit: flow.byte_limit, drain: Drain::No })
    }

    /// The limits of a drain.
    pub(super) fn drain(&mut self) -> Option<Limits> {
        let flow = self.flow.as_mut()?;
        flow.draining = true;
        Some(Limits {
            delivery_limit: flow.delivery_limit,
            byte_limit: flow.byte_limit,
            drain: Drain::Yes,
        })
    }

    /// A drain is done: what credit there was is used up.
    pub(super) fn drained(&mut self) {
        self.up_to = self.up_to.min(self.last);
        if let Some(flow) = &mut self.flow {
            flow.draining = false;
            flow.delivery_limit = u64::from(self.last.saturating_sub(flow.base));
        }
    }

    /// Bytes of deliveries are with the client.
    pub(super) const fn give_back(&mut self, bytes: u64) {
        if let Some(flow) = &mut self.flow {
            flow.returned_bytes = flow.returned_bytes.saturating_add(bytes);
        }
    }

    /// Numbers the next delivery.
    pub(super) fn number(&mut self, lock: Option<LockGrant>) -> u32 {
        self.last = self.last.saturating_add(1);
        if let Some(lock) = lock {
            self.unsettled.insert(self.last, lock);
            self.by_sequence.insert(lock.token.sequence(), self.last);
        }
        self.last
    }

    pub(super) fn unsettled_count(&self) -> u32 {
        u32::try_from(self.unsettled.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn settled(&mut self, number: u32) {
        let Some(lock) = self.unsettled.remove(&number) else { return };
        let sequence = lock.token.sequence();
        // The message may have been delivered again since.
        if self.by_sequence.get(&sequence) == Some(&number) {
            self.by_sequence.remove(&sequence);
        }
    }

    /// The number of the unsettled delivery under this lock.
    pub(super) fn number_of(&self, token: LockToken) -> Option<u32> {
        let number = *self.by_sequence.get(&token.sequence())?;
        self.unsettled.get(&number).is_some_and(|lock| lock.token == token).then_some(number)
    }

    pub(super) fn renewed(&mut self, number: u32, until: Timestamp) {
        if let Some(lock) = self.unsettled.get_mut(&number) {
            lock.until = until;
        }
    }

    /// Forgets deliveries whose locks have ended; they are delivered again under new numbers. Not those
    /// of a session: they end with its lock, and what is said of them afterwards must tell so (SES-15).
    pub(super) fn forget_ended(&mut self, now: Timestamp) {
        if self.session().is_some() {
            return;
        }
        let ended = self.unsettled.iter().filter(|(_, lock)| lock.until <= now);
        let ended: Vec<u32> = ended.map(|(number, _)| *number).collect();
        for number in ended {
            self.settled(number);
        }
    }

    /// What ranges name; at most so many deliveries. None if they name more.
    pub(super) fn named(&self, ranges: &[Range], count_max: usize) -> Option<Named> {
        let mut named = Named { held: Vec::new(), gaps: Vec::new() };
        for Range(from, to) in ranges.iter().copied().filter(|range| range.0 <= range.1) {
            let mut next = Some(from);
            for (number, lock) in self.unsettled.range(from..=to) {
                if named.held.len() == count_max {
                    return None;
                }
                if let Some(first) = next
                    && first < *number
                {
                    named.gaps.push(Range(first, number - 1));
                }
                next = number.checked_add(1);
                named.held.push((*number, lock.token));
            }
            if let Some(first) = next
                && first <= to
            {
                named.gaps.push(Range(first, to));
            }
        }
        Some(named)
    }
}
