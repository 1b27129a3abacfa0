//! The dead-letter queue (file 09).

use super::*;

/// DLQ-01, DLQ-02, ADR-02, ADR-03, ADR-04
pub async fn the_dead_letter_queues_exist_with_the_queue(s: &Stage) {
    s.open_queue("Orders/New").await;
    for path in [
        "orders/new/$deadletterqueue",
        "ORDERS/new/$DeadLetterQueue",
        "orders/new/$Transfer/$deadletterqueue",
        "orders/new/$transfer/$DEADLETTERQUEUE",
    ] {
        assert!(s.take_all(path).await.is_empty());
        assert!(s.look(path).await.is_empty());
    }
}

/// DLQ-03, ADR-03, ADR-05, DLQ-13: the helpers format the paths, and the paths can be received
/// from.
pub async fn the_helpers_of_the_client_crates_name_the_dead_letter_queues(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let path = peeklock_core::path::dead_letter_path(ORDERS);
    assert_eq!(path, "orders/$DeadLetterQueue");
    assert_eq!(s.take(&path).await.text(), "a");
    let path = peeklock_core::path::transfer_dead_letter_path(ORDERS);
    assert_eq!(path, "orders/$Transfer/$deadletterqueue");
    s.assert_empty(&path).await;
}

/// DLQ-02
pub async fn a_dead_letter_queue_is_not_managed_apart_from_its_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    for path in [DLQ, TDLQ] {
        refused(s.update(path, QueueUpdate::default()).await, "InvalidOperation");
        refused(s.delete(path).await, "InvalidOperation");
        refused(s.describe(path).await, "InvalidOperation");
        refused(s.create(path, QueueUpdate::default()).await, "InvalidOperation");
    }
}

/// DLQ-07
pub async fn a_message_cannot_be_dead_lettered_again_and_stays_locked(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let seen = s.take(DLQ).await;
    let decision = Decision::DeadLetter { reason: None, description: None, properties: vec![] };
    refused(s.settle(DLQ, seen.token(), decision).await, "InvalidOperation");
    s.assert_empty(DLQ).await;
    s.complete(DLQ, &seen).await;
}

/// DLQ-08, DLQ-11, RCV-25
pub async fn a_dead_letter_queue_delivers_under_lock_like_a_queue(s: &Stage) {
    let lock_duration = Some(seconds(10));
    s.open_queue_with(ORDERS, QueueUpdate { lock_duration, ..QueueUpdate::default() }).await;
    for text in ["a", "b"] {
        s.send(ORDERS, message(text).with_session_id("session")).await.unwrap();
        let seen = s.take(ORDERS).await;
        s.dead_letter(ORDERS, &seen).await;
    }
    let first = s.take(DLQ).await;
    assert_eq!(first.locked_until, Some(s.now().plus(seconds(10))));
    assert_eq!(first.message.session_id.as_deref(), Some("session"));
    assert_eq!(s.take(DLQ).await.text(), "b");
    s.advance(seconds(5)).await;
    assert_eq!(s.renew(DLQ, first.token()).await.unwrap(), s.now().plus(seconds(10)));
    s.advance(seconds(5)).await;
    assert_eq!(s.take(DLQ).await.text(), "b");
    s.abandon(DLQ, &first).await;
    assert_eq!(s.take(DLQ).await.text(), "a");
}

/// DLQ-09
pub async fn nothing_leaves_a_dead_letter_queue_by_itself(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.advance(days(3_650)).await;
    assert_eq!(s.counts(ORDERS).await.dead_letter, 1);
    assert_eq!(s.drain(DLQ).await, ["a"]);
}

/// DLQ-10, CNT-08
pub async fn dead_letters_count_toward_the_size_of_the_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, sized(1_000, "a")).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, 1_000);
    s.drain(DLQ).await;
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, 0);
}

/// DLQ-12
pub async fn dead_lettering_keeps_the_content_of_a_message(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "before").await;
    let sent = message("a")
        .with_message_id("id")
        .with_correlation_id("correlation")
        .with_subject("subject")
        .with_time_to_live(minutes(5))
        .with_application_property("k", 1_i8);
    s.send(ORDERS, sent.clone()).await.unwrap();
    let sent_at = s.now();
    s.advance(minutes(1)).await;
    let seen = s.take_all(ORDERS).await.remove(1);
    s.dead_letter(ORDERS, &seen).await;
    let dead = s.take(DLQ).await;
    assert_eq!((dead.sequence, dead.enqueued_at), (2, sent_at));
    assert_eq!(Message { time_to_live: sent.time_to_live, ..dead.message }, sent);
}

/// SET-42, SET-43, DLQ-34: an abandon carries the error of its attempt over every transport. The
/// next delivery has it, a long one is cut, and the description of the dead letter begins with it.
pub async fn an_abandon_carries_the_error_of_its_attempt(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(3)).await;
    s.put(ORDERS, "a").await;
    let cut = format!("{}… [cut]", "€".repeat(338));
    let long = "€".repeat(400);
    let mut before = None;
    for (error, kept) in
        [(long.as_str(), cut.as_str()), ("\u{202e}<b>\t'", "\u{202e}<b>\t'"), ("é", "é")]
    {
        let seen = s.take(ORDERS).await;
        assert_eq!(seen.text_of("peeklock-last-error"), before);
        assert_eq!(seen.text_of("cause"), before.map(|_| "down"));
        let properties = vec![property("cause", "down"), property("peeklock-last-error", error)];
        s.settle(ORDERS, seen.token(), Decision::Abandon(properties)).await.unwrap();
        before = Some(kept);
    }
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("MaxDeliveryCountExceeded"));
    assert_eq!(dead.text_of("peeklock-last-error"), Some("é"));
    let description = dead.description().unwrap();
    assert!(description.starts_with("é; the message was not consumed after 3 "), "{description}");
}

/// DLQ-34, SET-04: an attempt that ends with its lock has no error, so the description has none,
/// although the message has the error of an earlier attempt.
pub async fn an_attempt_without_an_error_is_described_without_one(s: &Stage) {
    let short = QueueUpdate { lock_duration: Some(seconds(10)), ..max_delivery_count(2) };
    s.open_queue_with(ORDERS, short).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let properties = vec![property("peeklock-last-error", "down")];
    s.settle(ORDERS, seen.token(), Decision::Abandon(properties)).await.unwrap();
    s.take(ORDERS).await;
    s.advance(seconds(10)).await;
    let dead = s.take(DLQ).await;
    assert_eq!(dead.text_of("peeklock-last-error"), Some("down"));
    assert!(dead.description().unwrap().starts_with("the message was not consumed after 2 "));
}

/// DLQ-35, EXP-28: expiry wins over the delivery count, and keeps its own description.
pub async fn an_expired_message_keeps_its_error_as_a_property(s: &Stage) {
    let expiring =
        QueueUpdate { dead_lettering_on_message_expiration: Some(true), ..max_delivery_count(1) };
    s.open_queue_with(ORDERS, expiring).await;
    let message = Message { time_to_live: Some(seconds(5)), ..Message::new("a") };
    s.send(ORDERS, message).await.unwrap();
    let seen = s.take(ORDERS).await;
    s.advance(seconds(6)).await;
    let properties = vec![property("peeklock-last-error", "down")];
    s.settle(ORDERS, seen.token(), Decision::Abandon(properties)).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("TTLExpiredException"));
    assert_eq!(dead.description(), Some("the message expired and was dead-lettered"));
    assert_eq!(dead.text_of("peeklock-last-error"), Some("down"));
}

/// DLQ-14, DLQ-16, DLQ-18, SET-36
pub async fn too_many_deliveries_are_reported_with_their_number(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(3)).await;
    s.put(ORDERS, "a").await;
    for _ in 0..3 {
        let seen = s.take(ORDERS).await;
        s.abandon(ORDERS, &seen).await;
    }
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("MaxDeliveryCountExceeded"));
    let description = dead.description().unwrap();
    for words in ["not consumed", "maximum", "delivery attempts", "3"] {
        assert!(description.contains(words), "{description} does not say {words}");
    }
}

/// DLQ-19
pub async fn the_broker_overwrites_the_two_properties_when_it_moves_a_message(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(1)).await;
    let sent = message("a")
        .with_application_property("DeadLetterReason", "of the sender")
        .with_application_property("DeadLetterErrorDescription", "of the sender");
    s.send(ORDERS, sent).await.unwrap();
    let seen = s.take(ORDERS).await;
    let changes = vec![property("DeadLetterReason", "of the abandon")];
    s.settle(ORDERS, seen.token(), Decision::Abandon(changes)).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason(), Some("MaxDeliveryCountExceeded"));
    assert!(dead.description().unwrap().contains("delivery attempts"));
    assert_eq!(dead.message.application_properties.len(), 2);
}

/// DLQ-19
pub async fn a_dead_letter_without_reason_leaves_the_two_properties_unchanged(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "bare").await;
    s.send(ORDERS, message("set").with_application_property("DeadLetterReason", "mine"))
        .await
        .unwrap();
    for seen in s.take_all(ORDERS).await {
        s.dead_letter(ORDERS, &seen).await;
    }
    let dead = s.take_all(DLQ).await;
    assert_eq!((dead[0].reason(), dead[0].description()), (None, None));
    assert_eq!((dead[1].reason(), dead[1].description()), (Some("mine"), None));
}

/// DLQ-31: for a queue and for each subscription.
pub async fn the_number_of_dead_letters_is_reported(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.create_topic("events").await.unwrap();
    for name in ["audit", "billing"] {
        s.create_subscription("events", name).await.unwrap();
    }
    let audit = "events/Subscriptions/audit";
    for count in 1..=3 {
        for (to, from) in [(ORDERS, ORDERS), ("events", audit)] {
            s.put(to, "a").await;
            let seen = s.take(from).await;
            s.dead_letter(from, &seen).await;
        }
        assert_eq!(s.counts(ORDERS).await.dead_letter, count);
        assert_eq!(s.subscription(audit).await.unwrap().counts.dead_letter, count);
    }
    let billing = s.subscription("events/Subscriptions/billing").await.unwrap();
    assert_eq!(billing.counts.dead_letter, 0);
}

/// FWD-26, FND-05: a forwarded dead letter shows the entity that dead-lettered it, in a peek and in
/// a receive. A dead letter that stays has no such value.
pub async fn a_forwarded_dead_letter_names_its_source(s: &Stage) {
    s.open_queue("park").await;
    let forwards = QueueUpdate {
        forward_dead_lettered_messages_to: Some("park".into()),
        ..QueueUpdate::default()
    };
    s.open_queue_with("Src", forwards).await;
    s.open_queue(ORDERS).await;
    for path in [ORDERS, "src"] {
        s.put(path, path).await;
        let seen = s.take(path).await;
        assert_eq!(seen.dead_letter_source, None);
        s.dead_letter(path, &seen).await;
    }
    s.until("park", |counts| counts.active == 1).await;
    assert_eq!(s.look(DLQ).await[0].dead_letter_source, None);
    assert_eq!(s.look("park").await[0].dead_letter_source.as_deref(), Some("Src"));
    let seen = s.take("park").await;
    assert_eq!(seen.dead_letter_source.as_deref(), Some("Src"));
    assert_eq!(seen.message.application_properties, []);
    // The value stays through other settlements, and it is not a property of the message that is
    // sent on.
    s.defer("park", &seen).await;
    let mode = ReceiveMode::PeekLock;
    let deferred = s.receive_deferred("park", mode, &[seen.sequence]).await.unwrap();
    assert_eq!(deferred[0].dead_letter_source.as_deref(), Some("Src"));
    s.send(ORDERS, deferred[0].message.clone()).await.unwrap();
    assert_eq!(s.take(ORDERS).await.dead_letter_source, None);
}
