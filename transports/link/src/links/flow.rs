//! Operations that change the limits of receivers: attach, credit and drain. `credit.rs` computes
//! the limits. `links.rs` calls it for requests of the client.

use std::sync::Arc;

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Event, Issuer, LinkAnswer, Links, unexpected};
use crate::credit::{CreditBounds, CreditLimits, ReceiverFlow};
use crate::pending::correlation;

/// Minimum share of the connection's window for each link, in bytes.
const LINK_BYTES_MIN: u64 = 64 << 10;
/// Time for which an unsettled delivery is kept after its recorded lock end. A renewal may have
/// extended the lock: its answer may still be queued for a slow client, or another connection may
/// have renewed it. Five minutes is the longest `LockDuration`.
const RENEWAL_GRACE: TimeSpan = TimeSpan::from_minutes(5);

impl<G: Issuer, T> Links<G, T> {
    /// Attaches a receiver that was just added, with credit up to delivery number `up_to`. The
    /// request is answered when the entity has attached it.
    pub fn attach_flow(&mut self, number: u32, up_to: u64, id: u32, permit: Arc<Permit>) {
        self.start_flow(number, up_to, LinkAnswer::Attached, id, Some(permit));
    }

    fn start_flow(
        &mut self,
        number: u32,
        up_to: u64,
        expect: LinkAnswer<T>,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let attach = link.attach();
        link.credit_limit = up_to;
        link.flow = Some(ReceiverFlow::new(link.last));
        let slot = self.expect(id, number, expect, permit);
        self.submit(number, attach, correlation(slot, 0));
        self.update_limits(number);
    }

    /// Sets the last delivery number that the client allows on a receiver. Attaches the flow if
    /// there is none.
    pub fn credit(&mut self, number: u32, up_to: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.flow.is_some() {
            link.credit_limit = up_to;
            self.update_limits(number);
        } else {
            self.start_flow(number, up_to, LinkAnswer::Attached, 0, None);
        }
    }

    /// Drains a receiver: takes back credit that cannot be used now. The answer arrives as
    /// [`Event::Drained`]. Without a flow nothing can arrive: its credit is dropped, and the result
    /// is that 0 credit is left.
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
            link.credit_limit = link.last;
            link.store_gauge(self.unsettled.count(number));
            return Ok(Some(0));
        };
        if flow.draining {
            let detail = format!("link {number} is already being drained");
            return Err(Rejection::invalid_operation(detail));
        }
        let limits = flow.drain();
        let slot = self.expect(id, number, LinkAnswer::Drained, permit);
        self.submit(number, limits_command(receiver, limits), correlation(slot, 0));
        Ok(None)
    }

    /// Sends new limits of a link to its entity, unless they differ too little from the last ones
    /// (see `credit.rs`) or the link has no flow.
    pub fn update_limits(&mut self, number: u32) {
        let bounds = self.bounds();
        let unsettled_count = self.unsettled.count(number);
        let Some(link) = self.links.get_mut(&number) else { return };
        link.store_gauge(unsettled_count);
        let receiver = link.receiver;
        let Some(limits) = link.new_limits(bounds, unsettled_count) else { return };
        let slot = self.expect(0, number, LinkAnswer::Ignored, None);
        self.submit(number, limits_command(receiver, limits), correlation(slot, 0));
    }

    /// Sends new limits of all receivers.
    pub fn update_all_limits(&mut self) {
        let numbers: Vec<u32> = self.receivers.values().copied().collect();
        for number in numbers {
            self.update_limits(number);
        }
    }

    /// Removes deliveries whose locks have ended, so that the table never outgrows the locks; their
    /// messages may be delivered again to any receiver. Receivers that were full get new limits.
    /// Deliveries of a session stay while their link holds the session, because a later settlement
    /// must be answered with the loss of the session lock (SES-15).
    pub fn remove_ended(&mut self, now: Timestamp) {
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in numbers {
            let Some(link) = self.links.get(&number) else { continue };
            let has_session = link.session().is_some() && !link.has_lost_session();
            let count = self.unsettled.count(number);
            let is_full = count >= self.unsettled_max;
            // While there is room, wait for a renewal that may be under way.
            let ended_at = if is_full { now } else { now.minus(RENEWAL_GRACE) };
            if !has_session {
                self.unsettled.remove_ended(number, ended_at);
            }
            if is_full || self.unsettled.count(number) < count {
                self.update_limits(number);
            }
        }
        self.unsettled.shrink();
    }

    /// Sets whether deliveries are paused.
    pub const fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Records that the client has received `bytes` of deliveries on a link.
    pub fn record_received_bytes(&mut self, number: u32, bytes: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            link.return_bytes(bytes);
        }
    }

    fn bounds(&self) -> CreditBounds {
        let receivers = self.receiver_count.max(1);
        CreditBounds {
            window_bytes: (self.window_bytes / receivers).max(LINK_BYTES_MIN),
            unsettled_max: self.unsettled_max,
            paused: self.paused,
        }
    }

    /// Handles the answer of a drain.
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
                self.update_limits(number);
                Ok(unused)
            }
            Ok(_) => Err(unexpected()),
            Err(rejection) => Err(rejection),
        };
        Event::Drained { id, path, result }
    }

    /// Handles the answer of an attach. If it fails, a link that was attached with credit is
    /// removed; a link that got its credit later stays without a flow.
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

pub(super) const fn limits_command(receiver: ReceiverId, limits: CreditLimits) -> Command {
    Command::SetCredit {
        receiver,
        delivery_limit: limits.delivery_limit,
        byte_limit: limits.byte_limit,
        drain: limits.drain,
    }
}
