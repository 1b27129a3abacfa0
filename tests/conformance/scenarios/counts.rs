//! The counts that an operator sees (file 17, CNT).

use super::*;

/// CNT-01, CNT-02, CNT-03, CNT-05, LIF-02
pub async fn every_state_is_counted_where_it_belongs(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "dead").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.put(ORDERS, "dead and deferred").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let seen = s.take_all(DLQ).await.remove(1);
    s.defer(DLQ, &seen).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.put(ORDERS, "locked").await;
    s.take(ORDERS).await;
    s.put(ORDERS, "available").await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(days(1))).await.unwrap();
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.deferred, counts.scheduled), (2, 1, 1));
    assert_eq!((counts.dead_letter, counts.transfer, counts.transfer_dead_letter), (2, 0, 0));
    assert_eq!(counts.total(), 6);
}

/// CNT-07, LIF-02
pub async fn counts_are_exact_after_every_step(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(3)).await;
    let expect = async |active, deferred, dead_letter| {
        let counts = s.counts(ORDERS).await;
        assert_eq!(
            (counts.active, counts.deferred, counts.dead_letter),
            (active, deferred, dead_letter)
        );
        s.check_counts().await;
    };
    s.put(ORDERS, "a").await;
    expect(1, 0, 0).await;
    let seen = s.take(ORDERS).await;
    expect(1, 0, 0).await;
    s.abandon(ORDERS, &seen).await;
    expect(1, 0, 0).await;
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    expect(0, 1, 0).await;
    let mode = ReceiveMode::PeekLock;
    s.receive_deferred(ORDERS, mode, &[seen.sequence]).await.unwrap();
    expect(0, 1, 0).await;
    s.advance(minutes(1)).await;
    expect(0, 0, 1).await;
    s.drain(DLQ).await;
    expect(0, 0, 0).await;
}

/// CNT-08, SET-41
pub async fn the_size_is_the_sum_of_the_stored_sizes(s: &Stage) {
    s.open_queue(ORDERS).await;
    let size = async || s.describe(ORDERS).await.unwrap().size_bytes;
    s.send(ORDERS, sized(1_000, "a")).await.unwrap();
    s.send(ORDERS, sized(2_000, "b")).await.unwrap();
    assert_eq!(size().await, 3_000);
    let seen = s.take(ORDERS).await;
    assert_eq!(size().await, 3_000);
    let properties = vec![property("key", "v".repeat(500))];
    s.settle(ORDERS, seen.token(), Decision::Abandon(properties)).await.unwrap();
    // Plus 256 bytes for the description of the set properties (SET-41).
    assert!((3_756..3_856).contains(&size().await));
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    assert_eq!(size().await, 2_000);
}

/// CNT-13
pub async fn the_highest_number_counts_accepted_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    let last = async || s.describe(ORDERS).await.unwrap().last_sequence.0;
    assert_eq!(last().await, 0);
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    assert_eq!(last().await, 2);
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    assert_eq!(last().await, 2);
    s.schedule(ORDERS, message("scheduled"), s.now().plus(minutes(1))).await.unwrap();
    assert_eq!(last().await, 3);
    s.advance(minutes(1)).await;
    assert_eq!(last().await, 4);
}

/// CNT-09
pub async fn a_description_has_created_updated_and_accessed_instants(s: &Stage) {
    let start = s.now();
    s.open_queue(ORDERS).await;
    let instants = async || {
        let described = s.describe(ORDERS).await.unwrap();
        (described.created_at, described.updated_at, described.accessed_at)
    };
    assert_eq!(instants().await, (start, start, Timestamp::NONE));
    s.advance(seconds(1)).await;
    let sent_at = s.now();
    s.put(ORDERS, "a").await;
    assert_eq!(instants().await, (start, start, sent_at));
    s.advance(seconds(1)).await;
    let updated_at = s.now();
    s.update(ORDERS, max_delivery_count(3)).await.unwrap();
    assert_eq!(instants().await, (start, updated_at, sent_at), "an update is no access");
    s.advance(seconds(1)).await;
    s.look(ORDERS).await;
    assert_eq!(instants().await, (start, updated_at, s.now()));
}

/// CNT-07: a rejected operation changes no count.
pub async fn rejected_operations_change_no_count(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let before = s.describe(ORDERS).await.unwrap();
    refused(
        s.send(ORDERS, message("x").with_message_id("i".repeat(129))).await,
        "ArgumentOutOfRange",
    );
    refused(s.cancel(ORDERS, &[1]).await, "MessageNotFound");
    refused(s.receive_deferred(ORDERS, ReceiveMode::PeekLock, &[1]).await, "MessageNotFound");
    refused(s.delete_deferred(ORDERS, 1).await, "MessageNotFound");
    let after = s.describe(ORDERS).await.unwrap();
    assert_eq!((after.counts, after.size_bytes), (before.counts, before.size_bytes));
}
