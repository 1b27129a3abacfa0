//! Deliveries: they get a number and stay unsettled, or are released. `links.rs` and `end.rs` call
//! it. A delivery is settled or released exactly once.

use std::sync::Arc;

use peeklock_core::command::{Command, LinkEnd, MessageFacts, ReceivedMessage, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use super::{Event, Issuer, LinkAnswer, Links};
use crate::pending::correlation;
use crate::unsettled::DeliveryPosition;

/// Delay before a message whose content is lost is delivered again from a sub-queue. There, no
/// maximum of the delivery count ends the attempts (SET-38).
const LOST_CONTENT_DELAY: TimeSpan = TimeSpan::from_minutes(1);

impl<G: Issuer, T> Links<G, T> {
    pub(super) fn deliver(&mut self, receiver: ReceiverId, message: Box<ReceivedMessage>) -> Event {
        let is_deleted = message.facts.lock.is_none();
        let event = self.number_delivery(receiver, message);
        if is_deleted && !matches!(event, Event::Delivered { .. }) {
            // A received-and-deleted message cannot be released (RCV-02).
            self.lost_count += 1;
        }
        event
    }

    fn number_delivery(&mut self, receiver: ReceiverId, message: Box<ReceivedMessage>) -> Event {
        let Some(link_number) = self.link_of_receiver(receiver) else { return Event::Nothing };
        let Some(link) = self.links.get_mut(&link_number) else { return Event::Nothing };
        let lock = message.facts.lock;
        if link.closing.is_some() {
            // The message was not delivered to the client, so it is released without counting a
            // delivery (RCV-14).
            link.undelivered.extend(lock.map(|lock| lock.token));
            return Event::Nothing;
        }
        // After its flow was broken, the client expects no further locked messages.
        let follows_broken_flow = link.flow.is_none() && lock.is_some();
        if self.returning || follows_broken_flow {
            self.release_messages(link_number, lock.map(|lock| lock.token));
            return Event::Nothing;
        }
        let is_here = |content: &ContentRef| content.loaded().is_some();
        if !is_here(&message.content) || !message.overlays.iter().all(is_here) {
            let path = Arc::clone(&link.path);
            let reason = message.undeliverable();
            match reason.condition() {
                // The content is not lost, so the delivery does not count.
                Condition::ServerBusy => {
                    self.release_messages(link_number, lock.map(|lock| lock.token));
                }
                _ => self.abandon_lost(link_number, &message.facts),
            }
            self.break_flow(link_number);
            return Event::Stopped { link: link_number, path, reason };
        }
        link.last = link.last.saturating_add(1);
        let delivery = link.last;
        let unsettled_count = match lock {
            Some(lock) => self
                .unsettled
                .insert(DeliveryPosition { link: link_number, number: delivery }, lock),
            None => self.unsettled.count(link_number),
        };
        link.store_gauge(unsettled_count);
        Event::Delivered { link: link_number, number: delivery, message }
    }

    pub(super) fn stopped(&mut self, receiver: ReceiverId, reason: Rejection) -> Event {
        let Some(number) = self.link_of_receiver(receiver) else { return Event::Nothing };
        let Some(link) = self.links.get_mut(&number) else { return Event::Nothing };
        link.flow = None;
        Event::Stopped { link: number, path: Arc::clone(&link.path), reason }
    }

    /// Handles the deletion of an entity. A link with a flow, or one that waits for a session,
    /// is notified when the flow or the wait ends.
    pub(super) fn entity_closed(&mut self, receiver: ReceiverId, reason: Rejection) -> Event {
        let link = self.link_of_receiver(receiver).and_then(|number| self.links.get(&number));
        if link.is_none_or(|link| link.flow.is_some() || !link.is_open()) {
            return Event::Nothing;
        }
        self.stopped(receiver, reason)
    }

    /// Releases messages that were not delivered to the client (RCV-14).
    pub fn release_messages(&mut self, number: u32, tokens: impl IntoIterator<Item = LockToken>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.undelivered.extend(tokens);
        for token in std::mem::take(&mut link.undelivered) {
            let slot = self.expect(0, number, LinkAnswer::Ignored, None);
            let command = Command::Settle { token, settlement: Settlement::Release };
            self.submit(number, command, correlation(slot, 0));
        }
    }

    /// Abandons a message whose content is lost. The failed delivery counts, so that the message is
    /// dead-lettered in the end (SET-35) and does not block later messages.
    pub fn abandon_lost(&mut self, number: u32, facts: &MessageFacts) {
        // Earlier arrivals that are not delivered are released first.
        self.release_messages(number, None);
        let (Some(lock), true) = (facts.lock, self.links.contains_key(&number)) else { return };
        let delay = (facts.sub_queue != SubQueue::Main).then_some(LOST_CONTENT_DELAY);
        let settlement = Settlement::Abandon { properties: None, delay };
        let slot = self.expect(0, number, LinkAnswer::Ignored, None);
        let abandon = Command::Settle { token: lock.token, settlement };
        self.submit(number, abandon, correlation(slot, 0));
    }

    /// Ends the flow of a link because the store has lost content; the caller reports it to the
    /// client. The client keeps its unsettled deliveries, as after its own detach (SET-21), since
    /// they are not affected.
    pub fn break_flow(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.flow = None;
        let receiver = link.receiver;
        let slot = self.expect(0, number, LinkAnswer::Ignored, None);
        let detach = Command::Detach { receiver, end: LinkEnd::Orderly };
        self.submit(number, detach, correlation(slot, 0));
    }
}
