//! Deliveries of a session: windows, both ways (AMQP 2.5.6), and dispositions, in ranges, both ways (AMQP 2.6.12).

use peeklock_words::error::{LOCK_LOST, SESSION_LOCK_LOST};

use super::{Incoming, Session, Unsettled, delivery_id};
use crate::connection::{Config, Connection, Event, Fault, LinkId, ReceivedId, SentId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::{Disposition, Flow, Role};
use crate::serial::{distance, room};
use crate::state::DeliveryState;

/// A disposition of the client's that is being told, delivery by delivery: a range may be much longer
/// than what there is in it.
#[derive(Debug)]
pub(crate) struct BegunDisposition {
    channel: u16,
    /// The number that is looked at next.
    next: i64,
    last: i64,
    state: Option<DeliveryState>,
    settled: bool,
}

impl BegunDisposition {
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
        // What a client says of its own deliveries changes nothing (AMQP-47).
        let of_ours = role == Role::Receiver;
        // Nor does a state that is none, without forgetting the delivery (AMQP-65).
        let says = settled || state.as_ref().is_some_and(DeliveryState::has_outcome);
        if of_ours && says {
            let next_number = session.outgoing.next_number;
            let first = next_number + i64::from(distance(delivery_id(next_number), first));
            let last = first + i64::from(length);
            self.settling = Some(BegunDisposition { channel, next: first, last, state, settled });
        }
        Ok(())
    }

    /// The next delivery of the disposition that is being told. Deliveries that are not known are answered
    /// on the way, if an answer is due: their locks are gone (AMQP-62); else they are passed over in
    /// silence (AMQP-68).
    pub(crate) fn next_settled(&mut self) -> Option<Event> {
        let settling = self.settling.as_mut()?;
        let BegunDisposition { channel, next, last, settled, .. } = *settling;
        let Some(session) = self.sessions.get_mut(&channel) else {
            self.settling = None;
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
        let Some((number, Unsettled { link, tag })) = known else {
            self.settling = None;
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
            self.settling = None;
        }
        Some(Event::Settled { link, delivery, tag, state, settled })
    }

    /// Answers what the client said of a delivery, which is then settled (AMQP-60).
    pub fn answer(&mut self, delivery: SentId, state: DeliveryState) {
        if self.take_unsettled(delivery).is_some() {
            let id = delivery_id(delivery.number);
            let state = state.with_transience();
            self.wire.dispose(delivery.session.channel, Role::Sender, id, state);
        }
    }

    /// Answers what the client said of a delivery that is refused and whose lock stays: the delivery stays too, for what
    /// the client says next. False if it is not there any more.
    pub fn answer_kept(&mut self, delivery: SentId, state: DeliveryState) -> bool {
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

    /// Answers a disposition of a delivery that stays unsettled on its link; returns whether the delivery is there
    /// (AMQP-66).
    pub fn answer_open(&mut self, delivery: SentId, state: DeliveryState) -> bool {
        let is_there = self
            .session_mut(delivery.session)
            .is_some_and(|session| session.unsettled.contains_key(&delivery.number));
        if is_there {
            let id = delivery_id(delivery.number);
            let state = state.with_transience();
            self.wire.dispose_open(delivery.session.channel, Role::Sender, id, state);
        }
        is_there
    }

    /// Makes room for another delivery when this one is not the client's any more: its lock has ended, or
    /// its link is gone and nothing is awaited. What the client says of it later is answered as AMQP-62
    /// says.
    pub fn forget_delivery(&mut self, delivery: SentId) {
        self.take_unsettled(delivery);
    }

    /// The same for one whose session lock has lapsed, which what the client says of it is answered with (AMQP-74).
    pub fn lapse_delivery(&mut self, delivery: SentId) {
        if self.take_unsettled(delivery).is_some()
            && let Some(session) = self.session_mut(delivery.session)
        {
            session.lapsed.insert(delivery.number);
        }
    }

    fn take_unsettled(&mut self, delivery: SentId) -> Option<Unsettled> {
        self.session_mut(delivery.session)?.unsettled.remove(&delivery.number)
    }

    /// How many deliveries of a session are not settled.
    #[must_use]
    pub fn unsettled_count(&self, session: SessionId) -> usize {
        let found = self.sessions.get(&session.channel);
        let found = found.filter(|found| found.generation == session.generation);
        found.map_or(0, |session| session.unsettled.len())
    }

    /// Tells the client what became of a delivery that it sent unsettled, for good (AMQP-41). It is to be
    /// told once.
    pub fn dispose(&mut self, delivery: ReceivedId, state: DeliveryState) {
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
    /// Whether another delivery may be sent unsettled.
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

/// Deliveries are counted behind frames by no more than this, which serial numbers tell from before.
const BEHIND_MAX: u32 = 1 << 30;

impl Connection {
    pub(crate) fn take_flow(&mut self, channel: u16, flow: &Flow) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        // Before the client knows our `begin`, its window begins where we begin.
        let up_to = flow.next_incoming_id.unwrap_or(0).wrapping_add(flow.incoming_window);
        session.outgoing.window = match flow.incoming_window {
            // So large a window may end anywhere.
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

    /// Tells of more room when half of it is used up, unless too much awaits an answer (AMQP-40).
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

    /// Writes the state of a session and of one of its links (AMQP-19).
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

    /// The state of this session, to be told; it tells of as much room as there is.
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

    /// A frame of a transfer came, the first of its delivery or another.
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

    use super::super::{Handles, Lapsed, Outgoing};
    use super::*;

    /// Messages of many frames run the count of frames round, and that of deliveries stays behind (AMQP-31).
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
            lapsed: Lapsed::default(),
        };
        for _ in 0..3 * (u32::MAX / window) {
            session.count_frame(true).unwrap();
            session.incoming.next_id = session.incoming.next_id.wrapping_add(window - 1);
            session.flow(&config);
        }
    }
}
