//! Expiry of messages (file 07).

use super::*;

const TTL_EXPIRED: Option<&str> = Some("TTLExpiredException");

fn default_ttl(span: TimeSpan) -> QueueUpdate {
    QueueUpdate { default_message_time_to_live: Some(span), ..QueueUpdate::default() }
}

fn short_lived(text: &str, span: TimeSpan) -> Message {
    message(text).with_time_to_live(span)
}

/// EXP-01, EXP-02, EXP-12, EXP-14
pub async fn a_message_expires_its_time_to_live_after_it_was_enqueued(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, short_lived("a", minutes(10))).await.unwrap();
    let expires_at = Some(s.now().plus(minutes(10)));
    s.advance(seconds(30)).await;
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((peeked.expires_at, peeked.message.time_to_live), (expires_at, Some(minutes(10))));
    let seen = s.take(ORDERS).await;
    assert_eq!((seen.expires_at, seen.message.time_to_live), (expires_at, Some(minutes(10))));
}

/// EXP-03, FND-08, FND-09
pub async fn without_any_setting_a_message_never_expires(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.advance(days(365_000)).await;
    let seen = s.take(ORDERS).await;
    assert!(seen.message.time_to_live.is_none_or(TimeSpan::is_unlimited));
    assert!(seen.expires_at.is_none_or(Timestamp::is_never));
}

/// EXP-04, EXP-11, EXP-14
pub async fn the_default_of_the_queue_applies_to_messages_without_time_to_live(s: &Stage) {
    s.open_queue_with(ORDERS, default_ttl(minutes(5))).await;
    s.put(ORDERS, "a").await;
    let sent_at = s.now();
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((peeked.expires_at, peeked.message.time_to_live), (None, None));
    s.advance(before(minutes(5))).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.expires_at, Some(sent_at.plus(minutes(5))));
    assert_eq!(seen.message.time_to_live, Some(minutes(5)));
    s.abandon(ORDERS, &seen).await;
    s.advance(TICK).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-05
pub async fn the_default_of_the_queue_is_a_ceiling_too(s: &Stage) {
    s.open_queue_with(ORDERS, default_ttl(minutes(5))).await;
    s.send(ORDERS, short_lived("long", minutes(60))).await.unwrap();
    s.send(ORDERS, short_lived("short", minutes(1))).await.unwrap();
    let spans: Vec<_> = s.look(ORDERS).await.iter().map(|seen| seen.message.time_to_live).collect();
    assert_eq!(spans, [Some(minutes(5)), Some(minutes(1))]);
    s.advance(minutes(1)).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["long"]);
    s.advance(minutes(4)).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-09, EXP-10
pub async fn any_positive_time_to_live_is_legal_and_zero_is_not(s: &Stage) {
    s.open_queue(ORDERS).await;
    refused(s.send(ORDERS, short_lived("a", TimeSpan::ZERO)).await, "ArgumentOutOfRange");
    s.send(ORDERS, short_lived("b", ms(1))).await.unwrap();
    s.advance(before(ms(1))).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.text(), "b");
    s.complete(ORDERS, &seen).await;
    s.send(ORDERS, short_lived("c", ms(1))).await.unwrap();
    s.advance(ms(1)).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-02, FND-09: longer than 32 bits of milliseconds in AMQP.
pub async fn a_long_time_to_live_is_kept_exactly(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, short_lived("a", days(1_000))).await.unwrap();
    assert_eq!(s.look(ORDERS).await[0].message.time_to_live, Some(days(1_000)));
    s.advance(days(999)).await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    s.advance(days(1)).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-13, ENT-07
pub async fn a_changed_default_applies_to_stored_messages_without_time_to_live(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "by default").await;
    s.send(ORDERS, short_lived("by itself", minutes(30))).await.unwrap();
    s.update(ORDERS, default_ttl(minutes(5))).await.unwrap();
    s.advance(minutes(5)).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["by itself"]);
}

/// EXP-13
pub async fn a_raised_default_saves_messages_not_yet_removed(s: &Stage) {
    s.open_queue_with(ORDERS, default_ttl(minutes(5))).await;
    s.put(ORDERS, "a").await;
    s.advance(minutes(6)).await;
    s.update(ORDERS, default_ttl(minutes(10))).await.unwrap();
    assert_eq!(s.take(ORDERS).await.text(), "a");
}

/// EXP-15, EXP-20
pub async fn a_message_is_expired_at_its_instant_and_not_before(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        s.send(ORDERS, short_lived(text, seconds(10))).await.unwrap();
    }
    s.advance(before(seconds(10))).await;
    assert_eq!(s.take(ORDERS).await.text(), "a");
    s.advance(TICK).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-17, EXP-18, EXP-19
pub async fn the_time_to_live_of_a_scheduled_message_starts_when_it_is_enqueued(s: &Stage) {
    s.open_queue(ORDERS).await;
    let start = s.now();
    s.schedule(ORDERS, short_lived("a", minutes(10)), start.plus(minutes(5))).await.unwrap();
    s.advance(before(minutes(5))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.expires_at, Some(start.plus(minutes(15))));
    s.abandon(ORDERS, &seen).await;
    s.advance(before(minutes(10))).await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    s.advance(TICK).await;
    s.assert_empty(ORDERS).await;
}

/// EXP-19
pub async fn a_scheduled_message_does_not_expire(s: &Stage) {
    s.open_queue_with(ORDERS, default_ttl(minutes(1))).await;
    s.schedule(ORDERS, short_lived("a", seconds(1)), s.now().plus(minutes(60))).await.unwrap();
    s.advance(minutes(59)).await;
    s.assert_empty(ORDERS).await;
    assert_eq!(s.counts(ORDERS).await.scheduled, 1);
    s.advance(minutes(1)).await;
    assert_eq!(s.take(ORDERS).await.text(), "a");
}

/// EXP-21, EXP-24, EXP-35, ENT-05
pub async fn expired_messages_are_dropped_by_a_receive_with_the_switch_off(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, short_lived("a", seconds(1))).await.unwrap();
    s.advance(seconds(1)).await;
    assert_eq!(s.counts(ORDERS).await.active, 1);
    s.assert_empty(ORDERS).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// EXP-22, EXP-23, EXP-35, DLQ-14, DLQ-16
pub async fn expired_messages_are_dead_lettered_with_the_switch_on(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    for text in ["a", "b"] {
        s.send(ORDERS, short_lived(text, seconds(1))).await.unwrap();
    }
    s.put(ORDERS, "c").await;
    s.advance(seconds(1)).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["c"]);
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.dead_letter), (1, 2));
    let dead = s.take_all(DLQ).await;
    assert_eq!(texts(&dead), ["a", "b"]);
    for one in dead {
        assert_eq!(one.reason(), TTL_EXPIRED);
        assert!(one.description().unwrap().contains("expired"));
        assert!(one.description().unwrap().contains("dead-lettered"));
    }
}

/// EXP-25
pub async fn expiry_does_not_touch_a_locked_message_that_is_renewed(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    s.send(ORDERS, short_lived("a", seconds(10))).await.unwrap();
    let seen = s.take(ORDERS).await;
    for _ in 0..5 {
        s.advance(seconds(50)).await;
        s.renew(ORDERS, seen.token()).await.unwrap();
        s.assert_empty(ORDERS).await;
    }
    assert_eq!(s.counts(ORDERS).await.active, 1);
    s.complete(ORDERS, &seen).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// EXP-26, EXP-27, EXP-31
pub async fn an_expired_message_is_not_redelivered_when_it_is_abandoned(s: &Stage) {
    for (properties, dead) in [(QueueUpdate::default(), 0), (keeps_expired(), 1)] {
        s.open_queue_with(ORDERS, properties).await;
        s.send(ORDERS, short_lived("a", seconds(10))).await.unwrap();
        let seen = s.take(ORDERS).await;
        s.advance(seconds(10)).await;
        s.abandon(ORDERS, &seen).await;
        let counts = s.counts(ORDERS).await;
        assert_eq!((counts.active, counts.dead_letter), (0, dead));
        s.delete(ORDERS).await.unwrap();
    }
}

/// EXP-26, EXP-27
pub async fn an_expired_message_is_not_redelivered_when_its_lock_ends(s: &Stage) {
    for (properties, dead) in [(QueueUpdate::default(), 0), (keeps_expired(), 1)] {
        s.open_queue_with(ORDERS, properties).await;
        s.send(ORDERS, short_lived("a", seconds(10))).await.unwrap();
        s.take(ORDERS).await;
        s.advance(before(minutes(1))).await;
        assert_eq!(s.counts(ORDERS).await.active, 1);
        s.advance(TICK).await;
        let counts = s.counts(ORDERS).await;
        assert_eq!((counts.active, counts.dead_letter), (0, dead));
        s.delete(ORDERS).await.unwrap();
    }
}

/// EXP-28
pub async fn expiry_wins_over_the_delivery_count(s: &Stage) {
    let properties = QueueUpdate { max_delivery_count: Some(1), ..keeps_expired() };
    s.open_queue_with(ORDERS, properties).await;
    s.send(ORDERS, short_lived("a", seconds(10))).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.advance(seconds(10)).await;
    s.abandon(ORDERS, &seen).await;
    let dead = &s.look(DLQ).await[0];
    assert_eq!((dead.reason(), dead.delivery_count), (TTL_EXPIRED, 1));
}

/// EXP-31, EXP-32, EXP-33, CNT-06, PEK-06, PEK-09
pub async fn without_a_receiver_expired_messages_stay_visible(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    s.send(ORDERS, short_lived("a", seconds(1))).await.unwrap();
    s.advance(days(30)).await;
    s.put(ORDERS, "sending makes no receiver").await;
    assert_eq!(s.look(ORDERS).await.len(), 2);
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.dead_letter), (2, 0));
    // A receiver of the dead-letter queue does not count as a receiver of the queue.
    s.assert_empty(DLQ).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 0);
}

/// EXP-27, EXP-32, EXP-34
pub async fn while_a_receiver_waits_messages_are_dead_lettered_as_they_expire(s: &Stage) {
    let properties = QueueUpdate { lock_duration: Some(seconds(20)), ..keeps_expired() };
    s.open_queue_with(ORDERS, properties).await;
    s.send(ORDERS, short_lived("a", seconds(15))).await.unwrap();
    s.send(ORDERS, short_lived("b", seconds(25))).await.unwrap();
    let taken = s.take_all(ORDERS).await;
    s.advance(seconds(10)).await;
    let (received, ()) =
        tokio::join!(s.receive(ORDERS, ReceiveMode::PeekLock, 1, seconds(50)), async {
            s.until_used(ORDERS).await;
            for seen in &taken {
                s.renew(ORDERS, seen.token()).await.unwrap();
            }
            // Expired while locked: both stay until their locks end, then both are dead-lettered.
            s.advance(before(seconds(20))).await;
            assert_eq!(s.counts(ORDERS).await.active, 2);
            s.advance(TICK).await;
            let counts = s.counts(ORDERS).await;
            assert_eq!((counts.active, counts.dead_letter), (0, 2));
            s.put(ORDERS, "c").await;
        });
    assert_eq!(texts(&received.unwrap()), ["c"]);
}

/// EXP-36
pub async fn a_batch_with_new_messages_holds_no_expired_ones(s: &Stage) {
    s.open_queue(ORDERS).await;
    for number in 0..20 {
        let span = if number % 2 == 0 { seconds(1) } else { minutes(5) };
        s.send(ORDERS, short_lived(&number.to_string(), span)).await.unwrap();
    }
    s.advance(seconds(1)).await;
    s.put(ORDERS, "new").await;
    let received = s.drain(ORDERS).await;
    assert_eq!(received.len(), 11);
    assert!(received.iter().all(|text| text == "new" || text.parse::<u32>().unwrap() % 2 == 1));
}

/// EXP-37, EXP-38, DEF-06, DEL-09
pub async fn an_expired_deferred_message_is_seen_but_not_received_and_can_be_deleted(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    let sequence = s.send(ORDERS, short_lived("a", minutes(5))).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    s.advance(minutes(5)).await;
    s.assert_empty(ORDERS).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.deferred, counts.dead_letter), (1, 0));
    assert_eq!(s.look(ORDERS).await[0].state, MessageState::Deferred);
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        refused(s.receive_deferred(ORDERS, mode, &[sequence]).await, "MessageNotFound");
    }
    s.delete_deferred(ORDERS, sequence).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// EXP-38, DEF-05
pub async fn a_deferred_message_expired_under_lock_returns_to_deferred(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    let sequence = s.send(ORDERS, short_lived("a", minutes(5))).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    let mode = ReceiveMode::PeekLock;
    s.advance(minutes(4)).await;
    let seen = &s.receive_deferred(ORDERS, mode, &[sequence]).await.unwrap()[0];
    s.advance(seconds(59)).await;
    s.renew(ORDERS, seen.token()).await.unwrap();
    s.advance(seconds(30)).await;
    s.abandon(ORDERS, seen).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.deferred, counts.dead_letter), (1, 0));
    assert_eq!(s.look(ORDERS).await[0].delivery_count, 2);
}

/// EXP-39, DLQ-06, DLQ-09
pub async fn messages_of_a_dead_letter_queue_never_expire(s: &Stage) {
    s.open_queue_with(ORDERS, default_ttl(minutes(5))).await;
    s.send(ORDERS, short_lived("a", seconds(10))).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.advance(days(1_000)).await;
    let seen = s.take(DLQ).await;
    assert_eq!(seen.text(), "a");
    s.advance(minutes(1)).await;
    assert_eq!(s.take(DLQ).await.text(), "a");
    s.assert_empty(ORDERS).await;
}

/// EXP-34: more messages than one step moves, and the empty answer waits for all moves.
pub async fn an_empty_answer_arrives_after_the_moves_it_triggered(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    for _ in 0..20 {
        let batch = (0..50).map(|number| short_lived(&number.to_string(), seconds(1))).collect();
        s.send_batch(ORDERS, batch).await.unwrap();
    }
    s.advance(seconds(1)).await;
    s.assert_empty(ORDERS).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.dead_letter), (0, 1_000));
}

/// EXP-48: jobs with a deadline. A job that is not handled in time is moved to a slower queue.
pub async fn jobs_not_handled_in_time_are_put_into_another_queue(s: &Stage) {
    s.open_queue_with("work", keeps_expired()).await;
    s.open_queue("slow").await;
    s.open_queue("replies").await;
    for job in ["one", "two", "three"] {
        let job = short_lived(job, minutes(5)).with_message_id(job).with_reply_to("replies");
        s.send("work", job).await.unwrap();
    }
    let done = s.take("work").await;
    let id = done.message.message_id.clone().unwrap();
    s.send("replies", message("done").with_correlation_id(id)).await.unwrap();
    s.complete("work", &done).await;
    s.advance(minutes(5)).await;
    s.assert_empty("work").await;
    for dead in s.take_all("work/$deadletterqueue").await {
        assert_eq!(dead.reason(), TTL_EXPIRED);
        s.complete("work/$deadletterqueue", &dead).await;
        s.send("slow", Message { time_to_live: None, ..dead.message }).await.unwrap();
    }
    assert_eq!(s.drain("slow").await, ["two", "three"]);
    assert_eq!(s.drain("replies").await, ["done"]);
}
