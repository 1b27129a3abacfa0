//! Deleting many messages without receiving them (file 17, DEL).

use super::*;

/// DEL-01, DEL-04, DEL-05
pub async fn batch_delete_removes_the_lowest_numbers_first_up_to_its_limit(s: &Stage) {
    s.open_queue(ORDERS).await;
    for number in 0..10 {
        s.put(ORDERS, &number.to_string()).await;
    }
    s.advance(ms(1)).await;
    assert_eq!(s.delete_batch(ORDERS, 4, None).await.unwrap(), 4);
    assert_eq!(s.drain(ORDERS).await, ["4", "5", "6", "7", "8", "9"]);
    assert_eq!(s.delete_batch(ORDERS, 4, None).await.unwrap(), 0);
}

/// DEL-01, DEL-08
pub async fn batch_delete_works_on_a_dead_letter_queue_and_leaves_no_trace(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        s.put(ORDERS, text).await;
        let seen = s.take(ORDERS).await;
        s.dead_letter(ORDERS, &seen).await;
    }
    s.put(ORDERS, "c").await;
    s.advance(ms(1)).await;
    assert_eq!(s.delete_batch(DLQ, 10, None).await.unwrap(), 2);
    assert_eq!(s.delete_batch(TDLQ, 10, None).await.unwrap(), 0);
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    // A deleted message is not forwarded with the dead letters.
    s.open_queue("end").await;
    let forward_dead_lettered_messages_to = Some("end".into());
    let forwards = QueueUpdate { forward_dead_lettered_messages_to, ..QueueUpdate::default() };
    s.update(ORDERS, forwards).await.unwrap();
    s.put(ORDERS, "d").await;
    s.advance(ms(1)).await;
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    s.advance(minutes(1)).await;
    assert_eq!((s.counts(ORDERS).await.total(), s.counts("end").await.total()), (0, 0));
}

/// DEL-02, QUO-01
pub async fn batch_delete_accepts_1_to_4000(s: &Stage) {
    s.open_queue(ORDERS).await;
    assert_eq!(s.delete_batch(ORDERS, 4_000, None).await.unwrap(), 0);
    for count in [0, 4_001] {
        refused(s.delete_batch(ORDERS, count, None).await, "ArgumentOutOfRange");
    }
}

/// DEL-03
pub async fn batch_delete_spares_messages_enqueued_at_its_instant_or_later(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "early").await;
    s.advance(minutes(1)).await;
    let instant = s.now();
    s.put(ORDERS, "then").await;
    s.advance(minutes(1)).await;
    s.put(ORDERS, "late").await;
    assert_eq!(s.delete_batch(ORDERS, 10, Some(instant)).await.unwrap(), 1);
    // The default is the start of the call.
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    assert_eq!(s.drain(ORDERS).await, ["late"]);
}

/// DEL-04
pub async fn batch_delete_skips_locked_scheduled_and_deferred_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.put(ORDERS, "locked").await;
    let locked = s.take(ORDERS).await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(days(1))).await.unwrap();
    s.put(ORDERS, "available").await;
    s.advance(ms(1)).await;
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    assert_eq!(texts(&s.look(ORDERS).await), ["deferred", "locked", "scheduled"]);
    s.complete(ORDERS, &locked).await;
}

/// DEL-06
pub async fn purge_removes_all_messages_and_returns_their_number(s: &Stage) {
    s.open_queue(ORDERS).await;
    for _ in 0..5 {
        s.send_batch(ORDERS, (0..1_000).map(|_| message("x")).collect()).await.unwrap();
    }
    s.advance(ms(1)).await;
    assert_eq!(s.purge(ORDERS).await.unwrap(), 5_000);
    assert_eq!(s.purge(ORDERS).await.unwrap(), 0);
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// DEL-09
pub async fn an_operator_removes_deferred_messages_by_number_and_no_others(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sequence = s.put_deferred(ORDERS, "a").await;
    let active = s.put(ORDERS, "b").await;
    for other in [active, 99] {
        refused(s.delete_deferred(ORDERS, other).await, "MessageNotFound");
    }
    refused(s.delete_deferred(DLQ, sequence).await, "MessageNotFound");
    s.delete_deferred(ORDERS, sequence).await.unwrap();
    refused(s.delete_deferred(ORDERS, sequence).await, "MessageNotFound");
    assert_eq!(texts(&s.look(ORDERS).await), ["b"]);
}
