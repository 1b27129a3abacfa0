//! State of a broker after a restart on the same store.

use super::*;

/// FND-02, LIF-04, SET-27, SCH-08, DEF-10, DLQ-09
pub async fn after_a_restart_every_message_is_where_it_was_and_no_lock_is_held(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "dead").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.put(ORDERS, "failed once").await;
    let seen = s.take(ORDERS).await;
    let properties = vec![property("key", "set")];
    s.settle(ORDERS, seen.token(), Decision::Abandon(properties)).await.unwrap();
    let locked = s.take(ORDERS).await;
    s.put(ORDERS, "available").await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(minutes(5))).await.unwrap();
    let before = s.describe(ORDERS).await.unwrap();

    let s = s.restart().await;
    let after = s.describe(ORDERS).await.unwrap();
    assert_eq!(after.description, before.description);
    assert_eq!((after.counts, after.size_bytes), (before.counts, before.size_bytes));
    assert_eq!((after.created_at, after.updated_at), (before.created_at, before.updated_at));
    refused(s.settle(ORDERS, locked.token(), Decision::Complete).await, "MessageLockLost");
    let received = s.take_all(ORDERS).await;
    assert_eq!(texts(&received), ["failed once", "available"]);
    assert_eq!(received[0].delivery_count, 2);
    assert_eq!(received[0].text_of("key"), Some("set"));
    assert_eq!(texts(&s.take_all(DLQ).await), ["dead"]);
    s.advance(minutes(5)).await;
    assert_eq!(s.drain(ORDERS).await, ["failed once", "available", "scheduled"]);
    assert_eq!(s.put(ORDERS, "next").await, 7);
    s.check_counts().await;
    s.stop().await;
}

/// SCH-07: instants that passed during the downtime.
pub async fn messages_due_during_the_downtime_are_enqueued_after_it(s: &Stage) {
    s.open_queue(ORDERS).await;
    for (text, count) in [("second", 2), ("first", 1), ("later", 60)] {
        let at = s.now().plus(minutes(count));
        s.schedule(ORDERS, message(text), at).await.unwrap();
    }
    s.stop().await;
    s.clock.advance(minutes(10));
    let s = s.restart().await;
    s.advance(TimeSpan::ZERO).await;
    let received = s.take_all(ORDERS).await;
    assert_eq!(texts(&received), ["first", "second"]);
    assert_eq!(received[0].enqueued_at, s.now());
    s.stop().await;
}

/// DUP-08
pub async fn duplicates_are_dropped_after_a_restart_too(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let send = async |s: &Stage| s.send(ORDERS, message("x").with_message_id("id")).await.unwrap();
    assert_eq!(send(s).await, 1);
    let s = s.restart().await;
    assert_eq!(send(&s).await, 0);
    s.advance(minutes(10)).await;
    assert_eq!(send(&s).await, 2);
    s.stop().await;
}

/// TMP-08
pub async fn downtime_counts_as_idle_but_there_is_a_grace_after_the_start(s: &Stage) {
    let auto_delete_on_idle = Some(minutes(30));
    s.open_queue_with(ORDERS, QueueUpdate { auto_delete_on_idle, ..QueueUpdate::default() }).await;
    s.put(ORDERS, "a").await;
    s.stop().await;
    s.clock.advance(days(1));
    let s = s.restart().await;
    s.advance(before(minutes(5))).await;
    assert_eq!(s.list(0, 10).await.unwrap(), [ORDERS]);
    s.advance(minutes(1)).await;
    assert!(s.list(0, 10).await.unwrap().is_empty());
    s.stop().await;
}

/// EXP-31, EXP-12: a time to live continues while the broker is down.
pub async fn a_time_to_live_runs_on_during_the_downtime(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    s.send(ORDERS, message("a").with_time_to_live(minutes(5))).await.unwrap();
    s.stop().await;
    s.clock.advance(minutes(5));
    let s = s.restart().await;
    assert_eq!(s.counts(ORDERS).await.active, 1);
    s.assert_empty(ORDERS).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
    s.stop().await;
}
