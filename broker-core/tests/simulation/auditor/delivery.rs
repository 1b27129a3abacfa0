//! Checks for every message that reaches a client.

use super::sessions::check_holder;
use super::*;

impl Auditor {
    /// Records and checks a delivery to a client.
    pub(super) fn delivered(
        &mut self,
        delivery: &Delivery,
        message: &ReceivedMessage,
        store: &FaultStore,
        now: Timestamp,
    ) {
        let order = self.order;
        let book = &mut self.books[delivery.entity];
        let facts = &message.facts;
        let number = facts.sequence.0;
        let marker = marker(message.content.loaded().expect("it is in memory").clone());
        book.learn_number(number, marker);
        if delivery.sub_queue == SubQueue::Main && book.description.requires_session {
            check_holder(book, delivery, marker);
        }
        if delivery.mode == ReceiveMode::PeekLock && !delivery.by_number {
            check_order(book, delivery, number, now);
        }
        let (id, max_delivery_count) = (book.id, book.max_delivery_count);
        let Some(known) = book.messages.get_mut(&marker) else {
            panic!("message {marker} was never sent to this entity");
        };
        let context = format!("message {marker} at {number}: {known:?}");
        assert!(
            matches!(known.sending, Sending::Accepted | Sending::Unknown | Sending::Asked),
            "a message that was refused is delivered (ERR-06): {context}"
        );
        assert!(known.gone_at.is_none(), "a message comes back from the gone (LIF-02): {context}");
        if known.sent.scheduled_at.is_none() && known.accepted_as != 0 {
            assert_eq!(
                number, known.accepted_as,
                "a message changed its number (MSG-12): {context}"
            );
        }
        assert!(known.number == 0 || known.number == number, "two numbers (MSG-12): {context}");
        // A message that reached the entity after its instant was never scheduled.
        if known.sent.scheduled_at.is_some_and(|at| at > known.accepted_at) {
            assert!(number > known.accepted_as, "scheduled messages get a new number: {context}");
        }
        known.number = number;
        assert_eq!(facts.sub_queue, delivery.sub_queue, "from another sub-queue: {context}");
        assert!(!known.dead || is_dead(facts.sub_queue), "back from the dead (DLQ-12): {context}");
        known.dead |= is_dead(facts.sub_queue);
        if !delivery.by_number && !is_dead(facts.sub_queue) {
            assert!(!known.deferred, "deferred, and not received by number (DEF-01): {context}");
            // A message that is removed first was taken earlier, and leaves when its removal is
            // durable.
            let in_time = delivery.mode == ReceiveMode::ReceiveAndDelete
                || facts.expires_at.is_none_or(|at| at > now);
            assert!(in_time, "expired and delivered (EXP-20): {context}");
            assert!(
                facts.delivery_count < max_delivery_count,
                "delivered more often than MaxDeliveryCount (SET-35): {context}"
            );
        }
        assert!(
            facts.delivery_count >= known.count,
            "the count fell from {} to {} (SET-27): {context}",
            known.count,
            facts.delivery_count
        );
        assert!(
            facts.delivery_count <= known.deliveries,
            "count {} after {} deliveries (SET-28): {context}",
            facts.delivery_count,
            known.deliveries
        );
        if let Some((was_dead, until)) = known.delayed_until.take()
            && was_dead == is_dead(facts.sub_queue)
        {
            assert!(
                until <= now,
                "delivered while it is delayed until {until} (RTY-13): {context}"
            );
        }
        known.count = facts.delivery_count;
        known.touched = true;
        if let Some(lock) = known.lock {
            assert!(
                lock.until <= now,
                "delivered while it is locked until {} (LIF-03): {context}",
                lock.until
            );
        }
        match (delivery.mode, facts.lock) {
            (ReceiveMode::PeekLock, Some(grant)) => {
                assert!(grant.until > now, "a lock that is over already: {context}");
                assert!(
                    Image::holds(store, id, number),
                    "delivered before its send was durable (DESIGN D5): {context}"
                );
                known.deliveries += 1;
                known.last_token = Some(grant.token);
                // A receiver that is being detached may be detached after this delivery.
                let lasts = delivery
                    .holder
                    .is_none_or(|holder| !book.ending.values().any(|one| *one == holder));
                known.lock = lasts.then_some(Held {
                    token: grant.token,
                    until: grant.until,
                    holder: delivery.holder,
                });
                let earlier = book.tokens.insert(grant.token, (marker, facts.delivery_count));
                assert!(earlier.is_none(), "a token is used twice (SET-15)");
            }
            (ReceiveMode::ReceiveAndDelete, None) => {
                assert!(
                    !Image::holds(store, id, number),
                    "delivered before its removal was durable (RCV-02): {context}"
                );
                known.gone_at = Some(order);
                known.lock = None;
            }
            (mode, lock) => panic!("{mode:?} came with {lock:?}: {context}"),
        }
    }
}

/// No untouched message is passed over (RCV-12).
fn check_order(book: &Book, delivery: &Delivery, number: u64, now: Timestamp) {
    if delivery.sub_queue != SubQueue::Main || book.hides() || book.loss_max > 0 {
        return;
    }
    let session = book.by_number.get(&number).and_then(|marker| book.messages.get(marker));
    let session = session.and_then(|message| message.sent.session);
    for (at, marker) in book.by_number.range(..number) {
        let Some(message) = book.messages.get(marker) else { continue };
        // Each session has its own order (SES-19).
        if message.sent.session != session {
            continue;
        }
        let available = message.sending == Sending::Accepted
            && message.sent.scheduled_at.is_none()
            && !message.touched
            && message.gone_at.is_none()
            && !message.perhaps_gone
            && message.gone_with.is_empty()
            && !book.may_go_with_its_session(message, now);
        assert!(!available, "{number} is delivered before {at}, which is available: {message:?}");
    }
}
