//! Deliveries of a session in both directions: windows (AMQP 2.5.6) and dispositions of ranges
//! (AMQP 2.6.12). The numbers of unsettled deliveries to the client and of unanswered deliveries
//! from it are limited.

use peeklock_words::error::{LOCK_LOST, SESSION_LOCK_LOST};

use super::{Incoming, Session, UnsettledDelivery, delivery_id};
use crate::connection::{Config, Connection, Event, Fault, LinkId, ReceivedId, SentId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::{Disposition, Flow, Role};
use crate::serial::{distance, room};
use crate::state::DeliveryState;

/// A disposition of the client in the middle of being reported, one delivery at a time. A range may
/// be much longer than the number of deliveries in it.
#[derive(Debug)]
pub(crate) struct CurrentDisposition {
    channel: u16,
    /// Next number to look at.
    next: i64,
    last: i64,
    state: Option<DeliveryState>,
    settled: bool,
}

impl CurrentDisposition {
    pub(crate) const fn channel(&self) -> u16 {
        self.channel
    }
}

impl Connection {
    pub(crate) fn take_disposition(
        &mut self,
        channel: u16,
        disposition: Disposition,
    ) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let Disposition { role, first, last, settled, state, .. } = disposition;
        let length = distance(first, last.unwrap_or(first));
        if length < 0 {
            return Err(Fault::Session(AmqpError::invalid_field(
                "last of a disposition is before first",
            )));
        }
        // Dispositions of a client for its own deliveries have no effect (AMQP-47).
        let of_ours = role == Role::Receiver;
        // Neither has a state without an outcome, unless the delivery is settled (AMQP-65).
        let has_effect = settled || state.as_ref().is_some_and(DeliveryState::has_outcome);
        if of_ours && has_effect {
            let next_number = session.outgoing.next_number;
            let first = next_number + i64::from(distance(delivery_id(next_number), first));
            let last = first + i64::from(length);
            self.current_disposition =
                Some(CurrentDisposition { channel, next: first, last, state, settled });
        }
        Ok(())
    }

    /// Returns the event for the next known delivery of the current disposition. Unknown deliveries
    /// before it are answered here if an answer is due, because their locks are lost (AMQP-62);
    /// otherwise they are skipped silently (AMQP-68).
    pub(crate) fn next_settled(&mut self) -> Option<Event> {
        let settling = self.current_disposition.as_mut()?;
        let CurrentDisposition { channel, next, last, settled, .. } = *settling;
        let Some(session) = self.sessions.get_mut(&channel) else {
            self.current_disposition = None;
            return None;
        };
        let known = session.unsettled.range(next..=last).next();
        let known = known.map(|(number, unsettled)| (*number, *unsettled));
        let unknown_to = known.map_or(last, |(number, _)| number - 1);
        let mut unknown = next;
        while !settled && unknown <= unknown_to {
            let (is_lapsed, last) = session.lapsed.run(unknown, unknown_to);
            let range = (delivery_id(unknown), delivery_id(last));
            let state = if is_lapsed { session_lock_lost() } else { lock_lost() };
            self.wire.dispose_range(channel, Role::Sender, range, state);
            unknown = last + 1;
        }
        let Some((number, UnsettledDelivery { link, tag })) = known else {
            self.current_disposition = None;
            return None;
        };
        if settled {
            session.unsettled.remove(&number);
        }
        let session = session.id(channel);
        let (delivery, link) = (SentId { session, number }, LinkId { session, generation: link });
        let state = settling.state.clone();
        settling.next = number + 1;
        if number == last {
            self.current_disposition = None;
        }
        Some(Event::Disposition { link, delivery, tag, state, settled })
    }

    /// Answers the client's disposition of a delivery, which is then settled (AMQP-60).
    pub fn dispose_sent(&mut self, delivery: SentId, state: DeliveryState) {
        if self.take_unsettled(delivery).is_some() {
            let id = delivery_id(delivery.number);
            let state = state.with_transience();
            self.wire.dispose(delivery.session.channel, Role::Sender, id, state);
        }
    }

    /// Answers a refused disposition of a delivery whose lock remains. As with
    /// [`Self::dispose_sent`], the answer is settled. But the session keeps the delivery, since the
    /// client may settle it again with another outcome. Returns whether the delivery is there.
    pub fn dispose_sent_and_keep(&mut self, delivery: SentId, state: DeliveryState) -> bool {
        let session = self.session_mut(delivery.session);
        let is_there =
            session.is_some_and(|session| session.unsettled.contains_key(&delivery.number));
        if is_there {
            let id = delivery_id(delivery.number);
            let state = state.with_transience();
            self.wire.dispose(delivery.session.channel, Role::Sender, id, state);
        }
        is_there
    }

    /// Answers a disposition in a transaction. Unlike the other answers, it is not settled: the
    /// delivery stays unsettled for both sides, and the commit or a later disposition settles it
    /// (AMQP-66). Returns whether the delivery is there.
    pub fn dispose_sent_unsettled(&mut self, delivery: SentId, state: DeliveryState) -> bool {
        let is_there = self
            .session_mut(delivery.session)
            .is_some_and(|session| session.unsettled.contains_key(&delivery.number));
        if is_there {
            let id = delivery_id(delivery.number);
            let state = state.with_transience();
            self.wire.dispose_unsettled(delivery.session.channel, Role::Sender, id, state);
        }
        is_there
    }

    /// Forgets a delivery that no longer belongs to the client: its lock has ended, or its link is
    /// detached and no answer is due. This makes room for another delivery. A later disposition of
    /// the client is answered according to AMQP-62.
    pub fn forget_delivery(&mut self, delivery: SentId) {
        self.take_unsettled(delivery);
    }

    /// Forgets a delivery whose session lock was lost. A later disposition of the client is
    /// answered with that reason (AMQP-74).
    pub fn lapse_delivery(&mut self, delivery: SentId) {
        if self.take_unsettled(delivery).is_some()
            && let Some(session) = self.session_mut(delivery.session)
        {
            session.lapsed.insert(delivery.number);
        }
    }

    fn take_unsettled(&mut self, delivery: SentId) -> Option<UnsettledDelivery> {
        self.session_mut(delivery.session)?.unsettled.remove(&delivery.number)
    }

    /// Number of unsettled deliveries of a session.
    #[must_use]
    pub fn unsettled_count(&self, session: SessionId) -> usize {
        let found = self.sessions.get(&session.channel);
        let found = found.filter(|found| found.generation == session.generation);
        found.map_or(0, |session| session.unsettled.len())
    }

    /// Reports the final state of a delivery that the client sent unsettled (AMQP-41). The caller
    /// must call it once for each delivery.
    pub fn dispose_received(&mut self, delivery: ReceivedId, state: DeliveryState) {
        let Some(session) = self.session_mut(delivery.session) else {
            return;
        };
        session.incoming.unanswered = session.incoming.unanswered.saturating_sub(1);
        let channel = delivery.session.channel;
        self.wire.dispose(channel, Role::Receiver, delivery.id, state.with_transience());
        self.open_window(channel);
    }
}

impl Session {
    /// Returns whether another unsettled delivery may be sent.
    pub(crate) fn has_room(&self, unsettled_max: usize) -> bool {
        self.unsettled.len() < unsettled_max
    }
}

fn session_lock_lost() -> DeliveryState {
    DeliveryState::rejected(AmqpError::new(
        condition::SESSION_LOCK_LOST,
        format!("{SESSION_LOCK_LOST} The session lock of the delivery has expired"),
    ))
    .with_transience()
}

fn lock_lost() -> DeliveryState {
    DeliveryState::rejected(AmqpError::new(
        condition::MESSAGE_LOCK_LOST,
        format!("{LOCK_LOST} The delivery is unknown or was already settled"),
    ))
    .with_transience()
}

/// Maximum difference between the counts of frames and deliveries that serial numbers can still
/// compare.
const BEHIND_MAX: u32 = 1 << 30;

impl Connection {
    pub(crate) fn take_flow(&mut self, channel: u16, flow: &Flow) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        // Before the client knows our `begin`, its window starts at our first id.
        let up_to = flow.next_incoming_id.unwrap_or(0).wrapping_add(flow.incoming_window);
        session.outgoing.window = match flow.incoming_window {
            // A window above 2³¹ - 1 has no end that serial numbers could compare.
            wide if wide > i32::MAX.cast_unsigned() => wide,
            _ => room(session.outgoing.next_id, up_to),
        };
        let Some(handle) = flow.handle else {
            if flow.echo {
                self.send_flow(channel);
            }
            return Ok(());
        };
        self.take_link_flow(channel, handle, flow)
    }

    /// Announces a new window when half of the last one is used up, unless too many deliveries are
    /// unanswered (AMQP-40).
    pub(crate) fn open_window(&mut self, channel: u16) {
        let Self { config, sessions, .. } = self;
        let wanted = sessions.get(&channel).is_some_and(|session| session.wants_window(config));
        if wanted {
            self.send_flow(channel);
        }
    }

    /// Writes the state of a session.
    fn send_flow(&mut self, channel: u16) {
        let Self { config, sessions, wire, .. } = self;
        if let Some(session) = sessions.get_mut(&channel).filter(|session| !session.ending) {
            let flow = session.flow(config);
            wire.frame(channel, &flow);
        }
    }

    /// Writes the state of a session and a link (AMQP-19).
    pub(crate) fn send_link_flow(
        &mut self,
        channel: u16,
        handle: u32,
        (delivery_count, link_credit): (u32, u32),
        drain: bool,
    ) {
        let Self { config, sessions, wire, .. } = self;
        if let Some(session) = sessions.get_mut(&channel).filter(|session| !session.ending) {
            let flow = session.flow(config);
            let (delivery_count, link_credit) = (Some(delivery_count), Some(link_credit));
            let handle = Some(handle);
            wire.frame(channel, &Flow { handle, delivery_count, link_credit, drain, ..flow });
        }
    }
}

impl Session {
    fn wants_window(&self, config: &Config) -> bool {
        let Incoming { next_id, up_to, .. } = self.incoming;
        !self.ending && !self.shut(config) && room(next_id, up_to) <= config.incoming_window / 2
    }

    fn shut(&self, config: &Config) -> bool {
        self.incoming.unanswered >= config.unanswered_max
    }

    /// Returns the state of the session for a flow, and extends the window as far as possible.
    pub(crate) fn flow(&mut self, config: &Config) -> Flow {
        if !self.shut(config) {
            self.incoming.up_to = self.incoming.next_id.wrapping_add(config.incoming_window);
            if room(self.incoming.begun, self.incoming.up_to) > BEHIND_MAX {
                self.incoming.begun = self.incoming.up_to.wrapping_sub(BEHIND_MAX);
            }
        }
        Flow {
            next_incoming_id: Some(self.incoming.next_id),
            incoming_window: room(self.incoming.next_id, self.incoming.up_to),
            next_outgoing_id: self.outgoing.next_id,
            outgoing_window: config.incoming_window,
            ..Flow::default()
        }
    }

    /// Counts a frame of a transfer; `first` means the first frame of its delivery.
    pub(crate) fn count_frame(&mut self, first: bool) -> Result<(), Fault> {
        self.incoming.next_id = self.incoming.next_id.wrapping_add(1);
        if !first {
            return Ok(());
        }
        self.incoming.begun = self.incoming.begun.wrapping_add(1);
        if distance(self.incoming.up_to, self.incoming.begun) > 0 {
            return Err(Fault::Session(AmqpError::new(
                condition::WINDOW_VIOLATION,
                "more transfers arrived than the incoming-window allows",
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Handles, LostSessionDeliveries, Outgoing};
    use super::*;

    /// Messages of many frames wrap the count of frames, while the count of deliveries stays behind
    /// (AMQP-31).
    #[test]
    fn deliveries_may_be_far_fewer_than_frames() {
        let config = Config::default();
        let window = config.incoming_window;
        let mut session = Session {
            generation: 1,
            ending: false,
            links: BTreeMap::new(),
            handles: Handles::default(),
            incoming: Incoming { next_id: 0, begun: 0, up_to: window, unanswered: 0 },
            outgoing: Outgoing { next_id: 0, window: 0, next_number: 0 },
            unsettled: BTreeMap::new(),
            lapsed: LostSessionDeliveries::default(),
        };
        for _ in 0..3 * (u32::MAX / window) {
            session.count_frame(true).unwrap();
            session.incoming.next_id = session.incoming.next_id.wrapping_add(window - 1);
            session.flow(&config);
        }
    }
}
