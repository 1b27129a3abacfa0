//! Changes of DeliveryCount and their effects (file 06, "Delivery count").

use super::*;

/// SET-28, SET-29, SET-30
pub async fn the_count_rises_with_each_failed_delivery(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 0);
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 1);
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 0);
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 1);
    assert_eq!(s.take(ORDERS).await.delivery_count, 2);
    s.advance(minutes(1)).await;
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 2);
    assert_eq!(s.take(ORDERS).await.delivery_count, 3);
}

/// SET-33, PEK-02
pub async fn a_deferral_counts_and_renew_peek_and_dead_letter_do_not(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sequence = s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.renew(ORDERS, seen.token()).await.unwrap();
    s.look(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 1);
    let mode = ReceiveMode::PeekLock;
    let seen = &s.receive_deferred(ORDERS, mode, &[sequence]).await.unwrap()[0];
    assert_eq!(seen.delivery_count, 2);
    s.dead_letter(ORDERS, seen).await;
    assert_eq!(s.look(DLQ).await[0].delivery_count, 1);
}

/// SET-33, SET-35: a deferral can be the last delivery of a message.
pub async fn a_deferral_at_the_maximum_dead_letters(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(2)).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.deferred, counts.dead_letter), (0, 1));
    let dead = &s.look(DLQ).await[0];
    assert_eq!((dead.reason(), dead.delivery_count), (Some("MaxDeliveryCountExceeded"), 2));
}

/// SET-34, SET-35, SET-36: the move needs no receiver.
pub async fn the_last_lock_end_moves_the_message_without_a_receiver(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(2)).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    s.take(ORDERS).await;
    s.advance(before(minutes(1))).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 0);
    s.advance(TICK).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.dead_letter), (0, 1));
    let dead = &s.look(DLQ).await[0];
    assert_eq!((dead.reason(), dead.delivery_count), (Some("MaxDeliveryCountExceeded"), 2));
}

/// SET-35
pub async fn with_a_maximum_of_1_the_first_failure_is_the_last(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(1)).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
}

/// SET-37
pub async fn a_very_large_maximum_practically_disables_the_rule(s: &Stage) {
    refused(s.create(ORDERS, max_delivery_count(0)).await, "ArgumentOutOfRange");
    refused(s.create(ORDERS, max_delivery_count(2_147_483_648)).await, "ArgumentOutOfRange");
    s.open_queue_with(ORDERS, max_delivery_count(2_147_483_647)).await;
    s.put(ORDERS, "a").await;
    for count in 1..=50 {
        let seen = s.take(ORDERS).await;
        assert_eq!(seen.delivery_count, count);
        s.abandon(ORDERS, &seen).await;
    }
    assert_eq!(s.counts(ORDERS).await.active, 1);
}

/// SET-38, DLQ-11
pub async fn in_a_dead_letter_queue_no_delivery_counts(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(2)).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    for round in 1..=10 {
        let seen = s.take(DLQ).await;
        assert_eq!(seen.delivery_count, 1);
        if round % 2 == 0 {
            s.abandon(DLQ, &seen).await;
        } else {
            s.advance(minutes(1)).await;
        }
    }
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
}

/// SET-39, DLQ-12
pub async fn the_count_is_kept_when_the_message_is_dead_lettered(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(3)).await;
    s.put(ORDERS, "a").await;
    for _ in 0..3 {
        let seen = s.take(ORDERS).await;
        s.abandon(ORDERS, &seen).await;
    }
    assert_eq!(s.look(DLQ).await[0].delivery_count, 3);
    assert_eq!(s.take(DLQ).await.delivery_count, 4);
}

/// ENT-19
pub async fn a_lowered_maximum_applies_at_the_next_failure(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    for _ in 0..5 {
        let seen = s.take(ORDERS).await;
        s.abandon(ORDERS, &seen).await;
    }
    s.update(ORDERS, max_delivery_count(3)).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.dead_letter, 0);
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 6);
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
}
