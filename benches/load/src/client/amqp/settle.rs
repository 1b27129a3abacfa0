//! Settling: one disposition completes all deliveries that arrived together, and the broker
//! confirms each as durable. Credit is returned with these confirmations.

use peeklock_amqp::error::{AmqpError, condition};
use peeklock_amqp::performative::{Disposition, Performative, Role};
use peeklock_amqp::serial::distance;
use peeklock_amqp::state::{DeliveryState, Outcome, Rejected};

use super::AmqpFault;
use super::connection::Connection;
use super::link::HANDLE;

/// The deliveries of a receiver on its link.
pub(super) struct Hand {
    /// Maximum number of deliveries in flight or unsettled.
    window: u32,
    /// Number of deliveries, number of confirmed completions, and the limit of credit.
    received: u32,
    completed: u32,
    granted: u32,
    /// The first and the last delivery of the next disposition.
    next: Option<(u32, u32)>,
}

impl Hand {
    pub(super) fn new(window: usize) -> Self {
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        Self { window, received: 0, completed: 0, granted: 0, next: None }
    }

    /// Whether all deliveries are completed.
    pub(super) const fn is_empty(&self) -> bool {
        self.received == self.completed
    }

    /// Records `count` confirmed completions.
    pub(super) fn completed(&mut self, count: usize) {
        self.completed = self.completed.wrapping_add(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

impl Connection {
    /// Adds a delivery to the next disposition, or sends that first if the delivery does not follow
    /// it.
    pub(super) fn complete(&mut self, hand: &mut Hand, id: u32) {
        hand.received = hand.received.wrapping_add(1);
        match &mut hand.next {
            Some((_, last)) if last.wrapping_add(1) == id => *last = id,
            _ => {
                self.complete_all(hand);
                hand.next = Some((id, id));
            }
        }
    }

    /// Sends the disposition of all deliveries that are to be completed.
    pub(super) fn complete_all(&mut self, hand: &mut Hand) {
        let Some((first, last)) = hand.next.take() else { return };
        let disposition = Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            settled: false,
            state: Some(DeliveryState::accepted()),
            batchable: false,
        };
        self.wire.frames.say(self.session.channel(), &disposition, &[]);
    }

    /// Grants credit for confirmed completions, in steps, because each grant costs the broker a
    /// command.
    pub(super) fn grant(&mut self, hand: &mut Hand) {
        let up_to = hand.completed.wrapping_add(hand.window);
        let more = distance(hand.granted, up_to).cast_unsigned();
        if more < (hand.window / 4).max(1) {
            return;
        }
        hand.granted = up_to;
        let credit = up_to.wrapping_sub(hand.received);
        let flow = self.session.credit(HANDLE, hand.received, credit);
        self.wire.frames.say(self.session.channel(), &flow, &[]);
    }
}

/// The first delivery that the broker accepted with this disposition, and their number.
///
/// # Errors
/// If the disposition has another outcome.
pub(super) fn accepted(disposition: Disposition, role: Role) -> Result<(u32, usize), AmqpFault> {
    let Disposition { first, last, settled, .. } = disposition;
    let count = i64::from(distance(first, last.unwrap_or(first))) + 1;
    match (usize::try_from(count), disposition.state) {
        (Ok(count), Some(DeliveryState::Outcome(Outcome::Accepted)))
            if settled && disposition.role == role =>
        {
            Ok((first, count))
        }
        (_, Some(DeliveryState::Outcome(Outcome::Rejected(Rejected { error })))) => {
            let unknown = || AmqpError::new(condition::INTERNAL_ERROR, "rejected without a reason");
            Err(error.unwrap_or_else(unknown).into())
        }
        (_, state) => {
            let disposition = Disposition { state, ..disposition };
            Err(AmqpFault::unexpected(Performative::Disposition(disposition)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: Option<DeliveryState>) -> Disposition {
        let role = Role::Receiver;
        Disposition { role, first: u32::MAX, last: Some(2), settled: true, state, batchable: false }
    }

    #[test]
    fn accepted_deliveries_are_counted_across_wrapping_ids() {
        let accepted_all = answer(Some(DeliveryState::accepted()));
        let one = Disposition { last: None, ..accepted_all.clone() };
        assert!(matches!(accepted(accepted_all, Role::Receiver), Ok((u32::MAX, 4))));
        assert!(matches!(accepted(one, Role::Receiver), Ok((u32::MAX, 1))));
    }

    #[test]
    fn unaccepted_completion_ends_the_load() {
        let full = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, "the queue is full");
        let rejected = answer(Some(DeliveryState::rejected(full.clone())));
        let refused = accepted(rejected, Role::Receiver);
        assert!(matches!(refused, Err(AmqpFault::Refused(why)) if why == full));
        let is_unexpected = |disposition, role| {
            matches!(accepted(disposition, role), Err(AmqpFault::Unexpected(_)))
        };
        let state = Some(DeliveryState::accepted());
        assert!(is_unexpected(answer(state.clone()), Role::Sender));
        assert!(is_unexpected(Disposition { settled: false, ..answer(state) }, Role::Receiver));
        assert!(is_unexpected(
            answer(Some(DeliveryState::Outcome(Outcome::Released))),
            Role::Receiver
        ));
        assert!(is_unexpected(answer(None), Role::Receiver));
    }
}
