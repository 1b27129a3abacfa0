//! Delayed retries (file 26).

use peeklock_core::description::{Jitter, RetryKind, RetryPolicy};

use super::*;

/// An abandon with a delay in the form that every transport has: a property that the broker
/// removes.
pub(super) fn for_ms(milliseconds: i64) -> Decision {
    with_delay(Value::I64(milliseconds))
}

fn with_delay(delay: impl Into<Value>) -> Decision {
    Decision::Abandon(vec![property("cause", "down"), property("peeklock-delay-ms", delay)])
}

pub(super) const fn policy(kind: RetryKind, delay: TimeSpan) -> RetryPolicy {
    RetryPolicy { kind, delay, delay_max: None, jitter: Jitter::NONE }
}

fn retries(kind: RetryKind, delay: TimeSpan) -> QueueUpdate {
    QueueUpdate { retry_policy: Some(Some(policy(kind, delay))), ..QueueUpdate::default() }
}

/// RTY-01, RTY-03, RTY-13, RTY-28
pub async fn an_abandoned_message_returns_to_its_place_after_its_delay(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let first = s.take(ORDERS).await;
    s.settle(ORDERS, first.token(), for_ms(5_000)).await.unwrap();
    let second = s.take(ORDERS).await;
    assert_eq!(second.text(), "b");
    s.abandon(ORDERS, &second).await;
    s.put(ORDERS, "c").await;
    s.advance(before(seconds(5))).await;
    assert_eq!(s.take(ORDERS).await.text(), "b");
    s.advance(TICK).await;
    let again = s.take_all(ORDERS).await;
    assert_eq!(texts(&again), ["a", "c"]);
    assert_eq!((again[0].sequence, again[0].enqueued_at), (first.sequence, first.enqueued_at));
    assert_eq!(again[0].delivery_count, 2);
    assert_eq!(again[0].text_of("cause"), Some("down"));
    assert_eq!(again[0].message.application_properties.len(), 1, "the delay is not stored");
}

/// RTY-11, RTY-12
pub async fn a_delayed_message_is_counted_twice_and_shown_as_delayed(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let size = s.describe(ORDERS).await.unwrap().size_bytes;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), Decision::Abandon(vec![property("peeklock-delay-ms", 5_000)]))
        .await
        .unwrap();
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.delayed, counts.total()), (2, 1, 2));
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, size);
    let states: Vec<_> =
        s.look(ORDERS).await.iter().map(|seen| (seen.sequence, seen.state)).collect();
    assert_eq!(states, [(1, MessageState::Delayed), (2, MessageState::Active)]);
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 1);
    s.advance(seconds(5)).await;
    assert_eq!(s.counts(ORDERS).await.delayed, 0);
    assert_eq!(s.look(ORDERS).await[0].state, MessageState::Active);
}

/// RTY-02
pub async fn a_delay_is_of_0_to_7_days(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    for wrong in [with_delay(604_800_001_i64), for_ms(-1), with_delay("1s"), with_delay(true)] {
        refused(s.settle(ORDERS, seen.token(), wrong).await, "ArgumentOutOfRange");
    }
    s.settle(ORDERS, seen.token(), for_ms(0)).await.unwrap();
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 2);
    s.settle(ORDERS, seen.token(), with_delay("604800000")).await.unwrap();
    s.advance(before(days(7))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.drain(ORDERS).await, ["a"]);
}

/// RTY-04
pub async fn a_waiting_receive_gets_a_message_when_it_is_due(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(5_000)).await.unwrap();
    let mode = ReceiveMode::PeekLock;
    let (received, ()) = tokio::join!(s.receive(ORDERS, mode, 1, minutes(1)), async {
        s.until_used(ORDERS).await;
        s.advance(seconds(5)).await;
    });
    assert_eq!(texts(&received.unwrap()), ["a"]);
}

/// RTY-09, RTY-26: handles have a delay parameter, outside and inside a transaction, where the
/// delay counts from the commit.
pub async fn a_handle_abandons_with_a_delay_alone_and_in_a_transaction(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["alone", "in a transaction"] {
        s.put(ORDERS, text).await;
    }
    let client = s.client();
    let receiver = client.receiver(ORDERS).unwrap();
    let held = receiver.receive_many(2, TimeSpan::ZERO).await.unwrap();
    let properties = [property("cause", "down")];
    let transaction = client.begin_transaction().await.unwrap();
    receiver.abandon_with_delay(&held[0], seconds(10), &properties).await.unwrap();
    transaction.abandon_with_delay(&receiver, &held[1], seconds(10), &properties).await.unwrap();
    s.advance(seconds(5)).await;
    transaction.commit().await.unwrap();
    assert_eq!(s.counts(ORDERS).await.delayed, 2);
    for expected in ["alone", "in a transaction"] {
        s.advance(before(seconds(5))).await;
        s.assert_empty(ORDERS).await;
        s.advance(TICK).await;
        let seen = s.take(ORDERS).await;
        assert_eq!((seen.text(), seen.delivery_count), (expected, 2));
        assert_eq!(seen.text_of("cause"), Some("down"));
        s.complete(ORDERS, &seen).await;
    }
}

/// RTY-05
pub async fn the_last_allowed_attempt_dead_letters_at_once(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(2)).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(1_000)).await.unwrap();
    s.advance(seconds(1)).await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(60_000)).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("MaxDeliveryCountExceeded"));
    // In the dead-letter queue a delay works, and there is no maximum of deliveries.
    s.settle(DLQ, dead.token(), for_ms(5_000)).await.unwrap();
    s.assert_empty(DLQ).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.dead_letter, counts.delayed), (1, 0));
    s.advance(seconds(5)).await;
    assert_eq!(s.take(DLQ).await.delivery_count, 3);
}

/// RTY-06
pub async fn a_restart_keeps_count_and_instant(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["due meanwhile", "delayed"] {
        s.put(ORDERS, text).await;
    }
    let seen = s.take_all(ORDERS).await;
    s.settle(ORDERS, seen[0].token(), for_ms(5_000)).await.unwrap();
    s.settle(ORDERS, seen[1].token(), for_ms(60_000)).await.unwrap();
    s.stop().await;
    s.clock.advance(seconds(5));
    let s = s.restart().await;
    s.advance(TimeSpan::ZERO).await;
    assert_eq!(s.counts(ORDERS).await.delayed, 1);
    assert_eq!(s.drain(ORDERS).await, ["due meanwhile"]);
    s.advance(before(seconds(55))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 2);
    s.check_counts().await;
    s.stop().await;
}

/// RTY-07
pub async fn a_delayed_message_expires_like_an_available_one(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    s.send(ORDERS, message("a").with_time_to_live(seconds(5))).await.unwrap();
    s.send(ORDERS, message("b").with_time_to_live(seconds(5))).await.unwrap();
    let seen = s.take_all(ORDERS).await;
    s.settle(ORDERS, seen[0].token(), for_ms(60_000)).await.unwrap();
    s.advance(seconds(5)).await;
    s.settle(ORDERS, seen[1].token(), for_ms(60_000)).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.active, 1, "nobody has listened since");
    s.assert_empty(ORDERS).await;
    let dead = s.take_all(DLQ).await;
    assert_eq!(texts(&dead), ["a", "b"]);
    assert!(dead.iter().all(|seen| seen.reason() == Some("TTLExpiredException")));
}

/// RTY-08
pub async fn a_deferred_message_has_no_delay(s: &Stage) {
    s.open_queue(ORDERS).await;
    let number = s.put_deferred(ORDERS, "a").await;
    let mode = ReceiveMode::PeekLock;
    let seen = s.receive_deferred(ORDERS, mode, &[number]).await.unwrap().remove(0);
    refused(s.settle(ORDERS, seen.token(), for_ms(1)).await, "InvalidOperation");
    s.settle(ORDERS, seen.token(), for_ms(0)).await.unwrap();
    let seen = s.receive_deferred(ORDERS, mode, &[number]).await.unwrap().remove(0);
    assert_eq!((seen.state, seen.delivery_count), (MessageState::Deferred, 3));
}

/// RTY-10, RTY-27: a defer and a dead-letter with a delay are refused, leave the lock unchanged and
/// store nothing.
pub async fn only_an_abandon_has_a_delay(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let delay =
        |delay: Value| vec![property("cause", "down"), property("peeklock-delay-ms", delay)];
    for value in [Value::I64(5_000), Value::I32(0), Value::from("5000"), Value::Bool(true)] {
        let dead_letter = Decision::DeadLetter {
            reason: Some("down".into()),
            description: None,
            properties: delay(value.clone()),
        };
        for wrong in [Decision::Defer(delay(value)), dead_letter] {
            refused(s.settle(ORDERS, seen.token(), wrong).await, "ArgumentError");
        }
    }
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter), (1, 0, 0));
    s.settle(ORDERS, seen.token(), Decision::Defer(vec![property("cause", "down")])).await.unwrap();
    let mode = ReceiveMode::PeekLock;
    let seen = s.receive_deferred(ORDERS, mode, &[seen.sequence]).await.unwrap().remove(0);
    assert_eq!((seen.text_of("cause"), seen.delivery_count), (Some("down"), 2));
    assert_eq!(seen.message.application_properties.len(), 1);
}

/// RTY-13, DEL-09
pub async fn delayed_messages_can_be_deleted(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b", "c"] {
        s.put(ORDERS, text).await;
    }
    for seen in s.take_all(ORDERS).await.iter().take(2) {
        s.settle(ORDERS, seen.token(), for_ms(60_000)).await.unwrap();
    }
    s.advance(seconds(1)).await;
    s.delete_deferred(ORDERS, 2).await.unwrap();
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.delayed), (1, 0), "the third is locked");
}

/// RTY-16, RTY-17, RTY-18, RTY-20
pub async fn a_policy_delays_each_failure_until_it_is_removed(s: &Stage) {
    s.open_queue_with(ORDERS, retries(RetryKind::Exponential, seconds(10))).await;
    let policy = s.describe(ORDERS).await.unwrap().description.retry_policy;
    assert_eq!(policy, retries(RetryKind::Exponential, seconds(10)).retry_policy.unwrap());
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    s.advance(before(seconds(10))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    // The end of a lock is a failure, too. A delay in an abandon overrides the policy.
    s.take(ORDERS).await;
    s.advance(minutes(1)).await;
    s.advance(before(seconds(20))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(0)).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(1_000)).await.unwrap();
    s.update(ORDERS, QueueUpdate { max_delivery_count: Some(9), ..QueueUpdate::default() })
        .await
        .unwrap();
    s.advance(seconds(1)).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 5);
    s.abandon(ORDERS, &seen).await;
    let policy = s.describe(ORDERS).await.unwrap().description.retry_policy;
    assert!(policy.is_some(), "what an update does not name stays");
    assert_eq!(s.counts(ORDERS).await.delayed, 1);
    // A changed policy applies to later failures: delayed messages keep their instant.
    s.update(ORDERS, retries(RetryKind::Fixed, seconds(5))).await.unwrap();
    s.advance(before(seconds(160))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 6);
    s.abandon(ORDERS, &seen).await;
    s.advance(before(seconds(5))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    // The same applies to the removal of a policy.
    s.update(ORDERS, QueueUpdate { retry_policy: Some(None), ..QueueUpdate::default() })
        .await
        .unwrap();
    assert_eq!(s.describe(ORDERS).await.unwrap().description.retry_policy, None);
    s.advance(before(seconds(5))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.delivery_count, 8);
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 9, "at once");
}

/// RTY-16
pub async fn a_policy_out_of_range_is_refused(s: &Stage) {
    let kind = RetryKind::Fixed;
    for delay in [TimeSpan::ZERO, days(8)] {
        let answer = s.create(ORDERS, retries(kind, delay)).await;
        refused(answer, "ArgumentOutOfRange");
    }
    let up_to = |most: TimeSpan| {
        let policy = policy(kind, seconds(10)).with_delay_max(most);
        QueueUpdate { retry_policy: Some(Some(policy)), ..QueueUpdate::default() }
    };
    for most in [before(seconds(10)), days(8)] {
        let refusal = refused(s.create(ORDERS, up_to(most)).await, "ArgumentOutOfRange");
        assert!(refusal.text.contains("delayMax"), "{}", refusal.text);
    }
    s.open_queue_with(ORDERS, up_to(seconds(10))).await;
    s.open_queue_with("b", retries(kind, ms(1))).await;
}

/// RTY-19
pub async fn a_policy_does_not_apply_in_a_dead_letter_queue(s: &Stage) {
    s.open_queue_with(ORDERS, retries(RetryKind::Fixed, minutes(1))).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let dead = s.take(DLQ).await;
    s.abandon(DLQ, &dead).await;
    assert_eq!(s.drain(DLQ).await, ["a"]);
}

/// RTY-14
pub async fn a_delayed_message_is_forwarded_when_it_is_due(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(60_000)).await.unwrap();
    s.update(ORDERS, QueueUpdate { forward_to: Some("b".into()), ..QueueUpdate::default() })
        .await
        .unwrap();
    s.advance(before(minutes(1))).await;
    assert_eq!(s.counts(ORDERS).await.delayed, 1);
    s.assert_empty("b").await;
    s.advance(TICK).await;
    s.until("b", |counts| counts.active == 1).await;
    assert_eq!(s.take("b").await.delivery_count, 1);
}

/// RTY-14: the same for a dead letter whose queue forwards dead letters.
pub async fn a_delayed_dead_letter_is_forwarded_when_it_is_due(s: &Stage) {
    s.open_queue("b").await;
    s.open_queue(ORDERS).await;
    for text in ["a", "c"] {
        s.put(ORDERS, text).await;
        let seen = s.take(ORDERS).await;
        s.dead_letter(ORDERS, &seen).await;
    }
    let seen = s.take(DLQ).await;
    s.settle(DLQ, seen.token(), for_ms(60_000)).await.unwrap();
    let forward_dead_lettered_messages_to = Some("b".into());
    let update = QueueUpdate { forward_dead_lettered_messages_to, ..QueueUpdate::default() };
    s.update(ORDERS, update).await.unwrap();
    s.until("b", |counts| counts.active == 1).await;
    let at_once = s.take("b").await;
    assert_eq!(at_once.text(), "c", "what is not delayed goes at once");
    s.complete("b", &at_once).await;
    s.advance(before(minutes(1))).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
    s.assert_empty("b").await;
    s.advance(TICK).await;
    s.until("b", |counts| counts.active == 1).await;
    let there = s.take("b").await;
    assert_eq!((there.text(), there.delivery_count, there.state), ("a", 1, MessageState::Active));
    assert_eq!(s.counts(ORDERS).await.dead_letter, 0);
}

/// RTY-15
pub async fn a_delay_does_not_keep_a_queue_from_being_idle(s: &Stage) {
    let auto_delete_on_idle = Some(minutes(5));
    s.open_queue_with(ORDERS, QueueUpdate { auto_delete_on_idle, ..QueueUpdate::default() }).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.settle(ORDERS, seen.token(), for_ms(120_000)).await.unwrap();
    // The message becomes due meanwhile, which is no activity.
    for _ in 0..6 {
        s.advance(minutes(1)).await;
    }
    refused(s.take_from(ORDERS).await, "EntityNotFound");
}

/// RTY-21
pub async fn a_lock_lost_with_the_broker_causes_no_delay(s: &Stage) {
    s.open_queue_with(ORDERS, retries(RetryKind::Fixed, minutes(1))).await;
    s.put(ORDERS, "a").await;
    s.take(ORDERS).await;
    let s = s.restart().await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 1);
    s.stop().await;
}
