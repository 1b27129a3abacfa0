//! Topics as destinations, and subscriptions that forward.

use super::*;

async fn open_events(s: &Stage, forward_to: Option<&str>, rule: Option<RuleDescription>) {
    s.create_topic(EVENTS).await.unwrap();
    let properties = SubscriptionUpdate {
        forward_to: forward_to.map(Into::into),
        ..SubscriptionUpdate::default()
    };
    let rules = rule.into_iter().collect();
    s.create_subscription_with(EVENTS, "audit", properties, rules).await.unwrap();
}

/// FWD-01, FWD-09, FWD-24, MSG-15: a message forwarded to a topic is published, in order. Its first
/// number stays, and its source is empty.
pub async fn a_topic_is_a_destination_and_its_subscriptions_are_sources(s: &Stage) {
    s.open_queue("end").await;
    open_events(s, Some("end"), None).await;
    s.open_queue_with("a", forwards_to("EVENTS")).await;
    for text in ["1", "2", "3"] {
        s.put("a", text).await;
    }
    s.until("end", |counts| counts.active == 3).await;
    let arrived = s.take_all("end").await;
    assert_eq!(texts(&arrived), ["1", "2", "3"]);
    assert_eq!(arrived.iter().map(|seen| seen.enqueued_sequence).collect::<Vec<_>>(), [1, 2, 3]);
    s.until("a", |counts| counts.total() == 0).await;
    s.until_subscription(AUDIT, |counts| counts.total() == 0).await;
    assert_eq!(s.topic(EVENTS).await.unwrap().size_bytes, 0);
}

/// FWD-26, TOP-11: rules of a topic see the reason of a dead letter, and the copy shows its source.
pub async fn rules_see_properties_set_on_a_forwarded_dead_letter(s: &Stage) {
    let filter = Filter::Sql(SqlText::new("DeadLetterReason = 'broken'"));
    open_events(s, None, Some(RuleDescription::new("broken", filter, s.now()))).await;
    s.open_queue_with("a", forwards_dead_letters_to(EVENTS)).await;
    for (text, reason) in [("1", "broken"), ("2", "late")] {
        s.put("a", text).await;
        let seen = s.take("a").await;
        let decision = Decision::DeadLetter {
            reason: Some(reason.into()),
            description: Some("why".into()),
            properties: vec![],
        };
        s.settle("a", seen.token(), decision).await.unwrap();
    }
    s.until("a", |counts| counts.total() == 0).await;
    let seen = s.take(AUDIT).await;
    assert_eq!((seen.text(), verdict(&seen).0.as_str()), ("1", "broken"));
    assert_eq!(seen.dead_letter_source.as_deref(), Some("a"));
    s.assert_empty(AUDIT).await;
}

/// SQL-08, SQL-09, MSG-15, FWD-26: rules see the source of a forwarded message, also after it was
/// scheduled at the topic. A message that was sent to the topic has none.
pub async fn rules_see_the_source_of_a_forwarded_message(s: &Stage) {
    let rules = [
        ("dead", "sys.DeadLetterSource = 'dead' AND sys.EnqueuedSequenceNumber = 1"),
        ("first", "sys.DeadLetterSource IS NULL AND sys.EnqueuedSequenceNumber > 0"),
        ("sent", "sys.DeadLetterSource IS NULL AND sys.EnqueuedSequenceNumber = 0"),
    ];
    s.create_topic(EVENTS).await.unwrap();
    for (name, text) in rules {
        let rule = RuleDescription::new(name, Filter::Sql(SqlText::new(text)), s.now());
        let properties = SubscriptionUpdate::default();
        s.create_subscription_with(EVENTS, name, properties, vec![rule]).await.unwrap();
    }
    s.open_queue_with("dead", forwards_dead_letters_to(EVENTS)).await;
    s.open_queue_with("plain", forwards_to(EVENTS)).await;
    s.open_queue("via").await;
    s.put("dead", "dead").await;
    let seen = s.take("dead").await;
    s.dead_letter("dead", &seen).await;
    s.put("plain", "forwarded").await;
    s.put(EVENTS, "sent").await;
    let sender = s.sender_via(EVENTS, "via").await.unwrap();
    sender.schedule(message("later"), s.now().plus(minutes(5))).await.unwrap();
    for source in ["dead", "plain", "via"] {
        s.until(source, |counts| counts.total() == 0).await;
    }
    s.advance(minutes(5)).await;
    for (name, expected) in
        [("dead", ["dead"].as_slice()), ("first", &["forwarded", "later"]), ("sent", &["sent"])]
    {
        let seen = s.take_all(&format!("{EVENTS}/Subscriptions/{name}")).await;
        assert_eq!(texts(&seen), expected, "{name}");
    }
}

/// FWD-03, FWD-08, FWD-13, FWD-15, FWD-16, FWD-17, TMP-12: a subscription that forwards cannot be
/// received from. A circle through a topic ends in its transfer dead-letter queue.
pub async fn a_circle_over_a_topic_ends_at_its_subscription(s: &Stage) {
    open_events(s, None, None).await;
    let to = |path: &str| SubscriptionUpdate {
        forward_to: Some(path.into()),
        ..SubscriptionUpdate::default()
    };
    s.update_subscription(AUDIT, to("Events")).await.unwrap();
    s.put(EVENTS, "own").await;
    s.until_subscription(AUDIT, |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(verdict(&s.take(&tdlq(AUDIT)).await).0, "MaxTransferHopCountExceeded");
    refused(s.update_subscription(AUDIT, to("absent")).await, "EntityNotFound");
    s.open_queue_with("a", forwards_to(EVENTS)).await;
    let described = s.update_subscription(AUDIT, to("a")).await.unwrap();
    assert_eq!(described.description.auto_delete_on_idle, TimeSpan::MAX);
    refused(s.receive(AUDIT, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await, "InvalidOperation");
    s.put(EVENTS, "round").await;
    s.until_subscription(AUDIT, |counts| counts.transfer_dead_letter == 2).await;
    let seen = s.take(&tdlq(AUDIT)).await;
    assert_eq!(verdict(&seen).0, "MaxTransferHopCountExceeded");
    s.until("a", |counts| counts.total() == 0).await;
}

/// FWD-15, FWD-21: a disabled topic accepts no transfers, and accepts them again when it is active.
pub async fn a_disabled_topic_dead_letters_at_the_source(s: &Stage) {
    open_events(s, None, None).await;
    let disabled =
        TopicUpdate { status: Some(EntityStatus::SendDisabled), ..TopicUpdate::default() };
    s.update_topic(EVENTS, disabled).await.unwrap();
    s.open_queue_with("a", forwards_to(EVENTS)).await;
    s.put("a", "1").await;
    s.until("a", |counts| counts.transfer_dead_letter == 1).await;
    assert_eq!(verdict(&s.take(&tdlq("a")).await).0, "MessagingEntityDisabled");
    let active = TopicUpdate { status: Some(EntityStatus::Active), ..TopicUpdate::default() };
    s.update_topic(EVENTS, active).await.unwrap();
    s.put("a", "2").await;
    s.until_subscription(AUDIT, |counts| counts.active == 1).await;
    assert_eq!(texts(&s.take_all(AUDIT).await), ["2"]);
}

/// DLQ-20: a message whose header exceeds the limit through transfers is dead-lettered at the
/// destination with all its properties: in the queue, or in the subscription.
pub async fn an_oversized_header_is_dead_lettered_at_the_destination(s: &Stage) {
    s.open_queue("b").await;
    open_events(s, None, None).await;
    s.open_queue_with("a", forwards_dead_letters_to("b")).await;
    s.open_queue_with("c", forwards_dead_letters_to(EVENTS)).await;
    let large = |more: usize| {
        ["x", "y", "z"].into_iter().fold(message("1").with_message_id("1"), |message, key| {
            let bytes = if key == "z" { more } else { 21_000 };
            message.with_application_property(key, "v".repeat(bytes))
        })
    };
    let header = |more| large(more).encode().header_size() as usize;
    let most = 65_536 - header(20_000) + 20_000;
    for source in ["a", "c"] {
        s.send(source, large(most)).await.unwrap();
        let seen = s.take(source).await;
        s.dead_letter(source, &seen).await;
    }
    s.until("b", |counts| counts.dead_letter == 1).await;
    s.until_subscription(AUDIT, |counts| counts.dead_letter == 1).await;
    for destination in ["b", AUDIT] {
        let seen = s.take(&dlq(destination)).await;
        assert_eq!(verdict(&seen).0, "HeaderSizeExceeded");
        let z = Value::from("v".repeat(most));
        assert_eq!(seen.message.application_property("z"), Some(&z));
    }
}
