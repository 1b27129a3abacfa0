//! Deferral (file 08, "Deferral").

use super::*;

const PEEK_LOCK: ReceiveMode = ReceiveMode::PeekLock;

/// DEF-02, DEF-03, MSG-11
pub async fn deferred_messages_are_received_by_number_and_locked(s: &Stage) {
    s.open_queue(ORDERS).await;
    let first = s.put_deferred(ORDERS, "a").await;
    let second = s.put_deferred(ORDERS, "b").await;
    let received = s.receive_deferred(ORDERS, PEEK_LOCK, &[second, first]).await.unwrap();
    assert_eq!(texts(&received), ["b", "a"]);
    for seen in &received {
        assert_eq!(seen.locked_until, Some(s.now().plus(minutes(1))));
        assert_eq!((seen.state, seen.delivery_count), (MessageState::Deferred, 2));
    }
}

/// DEF-03
pub async fn a_receive_by_numbers_is_all_or_nothing(s: &Stage) {
    s.open_queue(ORDERS).await;
    let deferred = s.put_deferred(ORDERS, "a").await;
    let locked = s.put_deferred(ORDERS, "b").await;
    let expired = {
        s.send(ORDERS, message("c").with_time_to_live(seconds(1))).await.unwrap();
        let seen = s.take(ORDERS).await;
        s.defer(ORDERS, &seen).await;
        seen.sequence
    };
    s.advance(seconds(1)).await;
    s.receive_deferred(ORDERS, PEEK_LOCK, &[locked]).await.unwrap();
    let active = s.put(ORDERS, "d").await;
    let scheduled = s.schedule(ORDERS, message("e"), s.now().plus(days(1))).await.unwrap();
    for mode in [PEEK_LOCK, ReceiveMode::ReceiveAndDelete] {
        for other in [locked, expired, active, scheduled, 99] {
            let answer = s.receive_deferred(ORDERS, mode, &[deferred, other]).await;
            assert!(!refused(answer, "MessageNotFound").retryable);
        }
    }
    let received = s.receive_deferred(ORDERS, PEEK_LOCK, &[deferred]).await.unwrap();
    assert_eq!(received[0].delivery_count, 2);
}

/// DEF-11: a larger request is refused with the limit in either mode, and no message is locked or
/// removed.
pub async fn a_receive_by_numbers_returns_at_most_4_mebibytes(s: &Stage) {
    s.open_queue(ORDERS).await;
    let mut deferred = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        s.send(ORDERS, sized(MIB, id)).await.unwrap();
        let seen = s.take(ORDERS).await;
        s.defer(ORDERS, &seen).await;
        deferred.push(seen.sequence);
    }
    for mode in [PEEK_LOCK, ReceiveMode::ReceiveAndDelete] {
        let refusal = refused(s.receive_deferred(ORDERS, mode, &deferred).await, "QuotaExceeded");
        assert!(refusal.text.contains("`deferred_bytes_max`"), "{refusal:?}");
    }
    assert_eq!(s.counts(ORDERS).await.deferred, 5);
    let received = s.receive_deferred(ORDERS, PEEK_LOCK, &deferred[1..]).await.unwrap();
    assert_eq!(sequences(&received), deferred[1..]);
}

/// DEF-04
pub async fn a_locked_deferred_message_can_be_settled_in_every_way(s: &Stage) {
    s.open_queue(ORDERS).await;
    let counts_after = [(0, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0, 1)];
    for (decision, expected) in Decision::all().into_iter().zip(counts_after) {
        let sequence = s.put_deferred(ORDERS, "a").await;
        let seen = &s.receive_deferred(ORDERS, PEEK_LOCK, &[sequence]).await.unwrap()[0];
        s.advance(seconds(30)).await;
        assert_eq!(s.renew(ORDERS, seen.token()).await.unwrap(), s.now().plus(minutes(1)));
        s.settle(ORDERS, seen.token(), decision).await.unwrap();
        let counts = s.counts(ORDERS).await;
        assert_eq!((counts.active, counts.deferred, counts.dead_letter), expected);
        s.delete(ORDERS).await.unwrap();
        s.open_queue(ORDERS).await;
    }
}

/// DEF-05, SET-28, SET-33
pub async fn on_abandon_and_lock_end_a_message_is_deferred_as_before_and_counted(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(4)).await;
    let sequence = s.put_deferred(ORDERS, "a").await;
    let take = async || s.receive_deferred(ORDERS, PEEK_LOCK, &[sequence]).await.unwrap().remove(0);
    s.abandon(ORDERS, &take().await).await;
    s.assert_empty(ORDERS).await;
    assert_eq!(take().await.delivery_count, 3);
    s.advance(minutes(1)).await;
    s.assert_empty(ORDERS).await;
    let seen = take().await;
    assert_eq!(seen.delivery_count, 4);
    s.abandon(ORDERS, &seen).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.deferred, counts.dead_letter), (0, 1));
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("MaxDeliveryCountExceeded"));
    assert_eq!(dead.sequence, sequence);
}

/// DEF-06, MSG-14
pub async fn deferral_keeps_number_and_expiry(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent_at = s.now();
    s.send(ORDERS, message("a").with_time_to_live(minutes(5))).await.unwrap();
    s.advance(minutes(1)).await;
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((peeked.sequence, peeked.enqueued_at), (seen.sequence, sent_at));
    assert_eq!(peeked.expires_at, Some(sent_at.plus(minutes(5))));
    s.advance(before(minutes(4))).await;
    s.receive_deferred(ORDERS, PEEK_LOCK, &[seen.sequence]).await.unwrap();
}

/// DEF-07, PEK-03
pub async fn a_deferred_message_is_found_by_peek(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sequence = s.put_deferred(ORDERS, "a").await;
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((peeked.sequence, peeked.state), (sequence, MessageState::Deferred));
}

/// DEF-09, DLQ-04
pub async fn deferral_works_in_a_dead_letter_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let seen = s.take(DLQ).await;
    s.defer(DLQ, &seen).await;
    s.assert_empty(DLQ).await;
    refused(s.receive_deferred(ORDERS, PEEK_LOCK, &[seen.sequence]).await, "MessageNotFound");
    let seen = &s.receive_deferred(DLQ, PEEK_LOCK, &[seen.sequence]).await.unwrap()[0];
    s.complete(DLQ, seen).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// DEF-10, CNT-02, CNT-03
pub async fn deferred_messages_are_kept_and_count_in_total_and_size(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, sized(1_000, "a")).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    s.advance(days(365)).await;
    let described = s.describe(ORDERS).await.unwrap();
    assert_eq!((described.counts.active, described.counts.total()), (0, 1));
    assert_eq!(described.size_bytes, 1_000);
}
