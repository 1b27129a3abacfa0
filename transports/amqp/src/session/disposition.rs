//! Dispositions: what becomes of deliveries, in ranges, both ways (AMQP 2.6.12).

use peeklock_words::error::{LOCK_LOST, SESSION_LOCK_LOST};

use super::{Session, Unsettled, delivery_id};
use crate::connection::{Connection, Event, Fault, LinkId, ReceivedId, SentId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::{Disposition, Role};
use crate::serial::distance;
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
