//! What changes how far receivers may be sent: attaching a flow, credit, draining. What that comes to, `credit.rs`
//! reckons.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::permits::Permit;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Event, Expect, Issuer, Links, unexpected};
use crate::credit::{Bounds, Flow, Limits};
use crate::pending::correlation;

/// A link gets at least this share of its connection's window.
const LINK_BYTES_MIN: u64 = 64 << 10;
/// For how long the end of a lock is not believed: what has renewed it may not be answered here yet, behind what the client
/// takes slowly, or was asked for by another connection. No lock lasts longer at once.
const RENEWAL_GRACE: TimeSpan = TimeSpan::from_minutes(5);

impl<G: Issuer, T> Links<G, T> {
    /// Lets a receiver that was just attached be sent so far; the request is answered when the entity
    /// has agreed.
    pub fn attach_flow(&mut self, number: u32, up_to: u64, id: u32, permit: Arc<Permit>) {
        self.start_flow(number, up_to, Expect::Attached, id, Some(permit));
    }

    fn start_flow(
        &mut self,
        number: u32,
        up_to: u64,
        expect: Expect<T>,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let attach = link.attach();
        link.up_to = up_to;
        link.flow = Some(Flow::new(link.last));
        let slot = self.expect(id, number, expect, permit);
        self.submit(number, attach, correlation(slot, 0));
        self.limit(number);
    }

    /// Sets how far a receiver may be sent.
    pub fn credit(&mut self, number: u32, up_to: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.flow.is_some() {
            link.up_to = up_to;
            self.limit(number);
        } else {
            self.start_flow(number, up_to, Expect::Attached, 0, None);
        }
    }

    /// Gives back credit that cannot be used now. Answers what is left at once if there is no flow.
    ///
    /// # Errors
    /// `InvalidOperation` while another drain is under way.
    pub fn drain(
        &mut self,
        number: u32,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) -> Result<Option<u64>, Rejection> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(None) };
        let receiver = link.receiver;
        let Some(flow) = &mut link.flow else {
            link.up_to = link.last;
            return Ok(Some(0));
        };
        if flow.draining {
            let detail = format!("link {number} is already being drained");
            return Err(Rejection::invalid_operation(detail));
        }
        let limits = flow.drain();
        let slot = self.expect(id, number, Expect::Drained, permit);
        self.submit(number, grant(receiver, limits), correlation(slot, 0));
        Ok(None)
    }

    /// Tells the entity how far a link may be sent, if that has changed enough.
    pub fn limit(&mut self, number: u32) {
        let bounds = self.bounds();
        let unsettled_count = self.unsettled.count(number);
        let Some(link) = self.links.get_mut(&number) else { return };
        let receiver = link.receiver;
        let Some(limits) = link.new_limits(bounds, unsettled_count) else { return };
        let slot = self.expect(0, number, Expect::Unheard, None);
        self.submit(number, grant(receiver, limits), correlation(slot, 0));
    }

    /// The same for all receivers.
    pub fn limit_all(&mut self) {
        let numbers: Vec<u32> = self.receivers.values().copied().collect();
        for number in numbers {
            self.limit(number);
        }
    }

    /// Forgets deliveries whose locks have ended, so that they are not more than there are locks: their messages are
    /// delivered again, to whomever. Receivers that were full of them go on. Those of a session are kept as long as its
    /// link has it, since what is said of them afterwards must tell of the session (SES-15).
    pub fn forget_ended(&mut self, now: Timestamp) {
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in numbers {
            let Some(link) = self.links.get(&number) else { continue };
            let has_session = link.session().is_some() && !link.has_lost_session();
            let count = self.unsettled.count(number);
            let is_full = count >= self.unsettled_max;
            // Where there is room yet, a renewal that is under way may come in time.
            let ended_at = if is_full { now } else { now.minus(RENEWAL_GRACE) };
            if !has_session {
                self.unsettled.forget_ended(number, ended_at);
            }
            if is_full || self.unsettled.count(number) < count {
                self.limit(number);
            }
        }
        self.unsettled.shrink();
    }

    /// Nothing more is to be delivered for now, or again.
    pub const fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// So many bytes of deliveries of a link are with the client.
    pub fn taken(&mut self, number: u32, bytes: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            link.give_back(bytes);
        }
    }

    fn bounds(&self) -> Bounds {
        let receivers = self.receiver_count.max(1);
        Bounds {
            window_bytes: (self.window_bytes / receivers).max(LINK_BYTES_MIN),
            unsettled_max: self.unsettled_max,
            paused: self.paused,
        }
    }

    /// A drain is answered.
    pub(super) fn drained(
        &mut self,
        id: u32,
        number: u32,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        if let Some(link) = self.links.get_mut(&number) {
            link.drained();
        }
        let result = match result {
            Ok(Outcome::Granted { unused }) => {
                self.limit(number);
                Ok(unused)
            }
            Ok(_) => Err(unexpected()),
            Err(rejection) => Err(rejection),
        };
        Event::Drained { id, path, result }
    }

    /// A receiver that was asked for with credit and cannot be attached is gone; one that got its credit
    /// later stays, without it.
    pub(super) fn attached(
        &mut self,
        id: u32,
        number: u32,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        let Err(reason) = result else { return Event::Done { id, path, result: Ok(()) } };
        if let Some(link) = self.links.get_mut(&number) {
            link.flow = None;
        }
        if id == 0 {
            return Event::Stopped { link: number, path, reason };
        }
        self.remove(number);
        Event::Done { id, path, result: Err(reason) }
    }
}

pub(super) const fn grant(receiver: ReceiverId, limits: Limits) -> Command {
    Command::Grant {
        receiver,
        delivery_limit: limits.delivery_limit,
        byte_limit: limits.byte_limit,
        drain: limits.drain,
    }
}
