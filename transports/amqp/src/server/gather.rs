//! What comes one behind the other and is handed over together: messages on one link, and what is to become of
//! deliveries of one link. Together they take one permit and one place among what is awaited; each is answered
//! for itself. A permit and a place for each cost as much as the rest of a small message.

use super::conversation::Conversation;
use super::deliver::token_of;
use super::node::Node;
use super::work::Work;
use crate::connection::Event;
use crate::state::DeliveryState;

/// So many are handed over together.
const COUNT_MAX: usize = 64;
/// So many bytes are handed over together; a message that is larger goes alone.
const BYTES_MAX: u64 = 256 << 10;

/// What is to be answered to each of several commands, by their places.
pub(super) struct Each<T> {
    places: Vec<Option<T>>,
    left: usize,
}

impl<T> Each<T> {
    pub(super) fn new(each: impl IntoIterator<Item = T>) -> Self {
        let places: Vec<Option<T>> = each.into_iter().map(Some).collect();
        Self { left: places.len(), places }
    }

    /// One of them is answered, once; and whether all are.
    pub(super) fn answered(&mut self, place: usize) -> Option<(T, bool)> {
        let answered = self.places.get_mut(place)?.take()?;
        self.left -= 1;
        Some((answered, self.left == 0))
    }
}

impl Conversation {
    /// Whether something may be carried out before what is gathered is handed over: it goes with it, or there is
    /// nothing.
    pub(super) fn joins(&self, event: &Event) -> bool {
        let count_max = self.engine.broker.settings().limits.connection_inbound_count_max;
        let has_room = |count: usize| count < COUNT_MAX.min(count_max);
        match (&self.gathered, event) {
            (None, _) => true,
            (Some(Work::Send(inbound)), Event::Received { link, part }) => {
                let Some(Node::Inlet(inlet)) = self.nodes.get(link) else { return false };
                let (count, bytes) = inbound.cost();
                let more = inlet.assembly.len() + part.payload.len();
                inbound.is_of(*link)
                    && inlet.takes_alone(part)
                    && has_room(usize::try_from(count).unwrap_or(usize::MAX))
                    && bytes.saturating_add(more as u64) <= BYTES_MAX
            }
            (Some(Work::Settle(list)), Event::Settled { tag, state, .. }) => {
                let of = |number| list.first().is_some_and(|first| first.is_of(number));
                has_room(list.len())
                    && !matches!(state, Some(DeliveryState::Transactional(_)))
                    && token_of(tag)
                        .and_then(|token| self.sent.get(&token))
                        .is_none_or(|sent| of(sent.number))
            }
            _ => false,
        }
    }

    /// Hands over what is gathered, when there is room for it.
    pub(super) async fn hand_over_gathered(&mut self) {
        if let Some(work) = self.gathered.take() {
            self.when_room(work).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_answered_once_and_the_last_one_is_told() {
        let mut each = Each::new(["a", "b", "c"]);
        assert_eq!(each.answered(1), Some(("b", false)));
        assert_eq!(each.answered(1), None);
        assert_eq!(each.answered(3), None);
        assert_eq!(each.answered(2), Some(("c", false)));
        assert_eq!(each.answered(0), Some(("a", true)));
    }
}
