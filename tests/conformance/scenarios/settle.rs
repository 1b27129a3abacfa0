//! Settling a message under lock (file 06).

use super::*;

/// SET-01, SET-02
pub async fn complete_removes_the_message(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    s.advance(minutes(10)).await;
    s.assert_empty(ORDERS).await;
}

/// SET-03
pub async fn abandon_makes_the_message_available_again_at_once(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.take(ORDERS).await.text(), "a");
}

/// SET-04, SET-16, SET-25, SET-28
pub async fn an_unsettled_message_returns_when_its_lock_ends(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.send(ORDERS, message("a").with_message_id("id")).await.unwrap();
    let first = s.take(ORDERS).await;
    s.advance(minutes(1)).await;
    refused(s.settle(ORDERS, first.token(), Decision::Complete).await, "MessageLockLost");
    let second = s.take(ORDERS).await;
    assert_eq!(second.message.message_id, first.message.message_id);
    assert_eq!((first.delivery_count, second.delivery_count), (1, 2));
}

/// SET-05, DLQ-01, DLQ-03
pub async fn a_dead_lettered_message_is_in_the_dead_letter_queue_only(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    s.advance(minutes(10)).await;
    s.assert_empty(ORDERS).await;
    let dead = s.take(DLQ).await;
    assert_eq!(dead.text(), "a");
    s.complete(DLQ, &dead).await;
    // The corrected message is sent again.
    s.send(ORDERS, dead.message).await.unwrap();
    assert_eq!(s.drain(ORDERS).await, ["a"]);
}

/// SET-06, DLQ-15, DLQ-28
pub async fn dead_letter_sets_reason_description_and_properties(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let decision = Decision::DeadLetter {
        reason: Some("MalformedPayload".to_owned()),
        description: Some("no order number ☃".to_owned()),
        properties: vec![property("line", 7_i64)],
    };
    s.settle(ORDERS, seen.token(), decision).await.unwrap();
    for dead in [&s.look(DLQ).await[0], &s.take(DLQ).await] {
        assert_eq!(dead.reason(), Some("MalformedPayload"));
        assert_eq!(dead.description(), Some("no order number ☃"));
        assert_eq!(dead.property("line"), Some(&Value::I64(7)));
    }
}

/// SET-07, DEF-01, DEF-02
pub async fn defer_keeps_the_message_for_receive_by_number(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sequence = s.put_deferred(ORDERS, "a").await;
    s.advance(minutes(10)).await;
    s.assert_empty(ORDERS).await;
    let mode = ReceiveMode::ReceiveAndDelete;
    let received = s.receive_deferred(ORDERS, mode, &[sequence]).await.unwrap();
    assert_eq!(texts(&received), ["a"]);
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// SET-08, SET-09
pub async fn settlements_set_application_properties_and_nothing_else(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent = message("a")
        .with_message_id("id")
        .with_subject("subject")
        .with_application_property("kept", "as sent")
        .with_application_property("changed", "as sent");
    let sequence = s.send(ORDERS, sent.clone()).await.unwrap();

    let seen = s.take(ORDERS).await;
    let changes = vec![
        property("changed", "by abandon"),
        property("added", 1_i32),
        property("MessageId", "no broker property"),
    ];
    s.settle(ORDERS, seen.token(), Decision::Abandon(changes)).await.unwrap();
    let seen = s.take(ORDERS).await;
    let expect = |seen: &Seen, changed: &str, added: Value| {
        assert_eq!(seen.text(), "a");
        assert_eq!(seen.message.message_id, sent.message_id);
        assert_eq!(seen.message.subject, sent.subject);
        assert_eq!(seen.text_of("kept"), Some("as sent"));
        assert_eq!(seen.text_of("changed"), Some(changed));
        assert_eq!(seen.property("added"), Some(&added));
        assert_eq!(seen.text_of("MessageId"), Some("no broker property"));
        assert_eq!(seen.message.application_properties.len(), 4);
    };
    expect(&seen, "by abandon", Value::I32(1));

    let changes = vec![property("changed", "by defer")];
    s.settle(ORDERS, seen.token(), Decision::Defer(changes)).await.unwrap();
    let mode = ReceiveMode::PeekLock;
    let seen = &s.receive_deferred(ORDERS, mode, &[sequence]).await.unwrap()[0];
    expect(seen, "by defer", Value::I32(1));

    let properties = vec![property("added", Value::Null)];
    let decision = Decision::DeadLetter { reason: None, description: None, properties };
    s.settle(ORDERS, seen.token(), decision).await.unwrap();
    expect(&s.take(DLQ).await, "by defer", Value::Null);
}

/// SET-10, MSG-26
pub async fn properties_that_make_the_header_too_large_are_refused_and_the_lock_stays(s: &Stage) {
    s.open_queue(ORDERS).await;
    let large = |key: &str| property(key, "v".repeat(25_000));
    let (key, value) = large("a");
    s.send(ORDERS, message("x").with_application_property(key, value)).await.unwrap();
    let seen = s.take(ORDERS).await;
    let too_much = || vec![large("b"), large("c")];
    let dead_letter =
        Decision::DeadLetter { reason: None, description: None, properties: too_much() };
    for decision in [Decision::Abandon(too_much()), Decision::Defer(too_much()), dead_letter] {
        let answer = s.settle(ORDERS, seen.token(), decision).await;
        refused(answer, "MessageSizeExceeded");
    }
    s.settle(ORDERS, seen.token(), Decision::Abandon(vec![large("b")])).await.unwrap();
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.message.application_properties.len(), 2);
    s.complete(ORDERS, &seen).await;
}

/// SET-11, QUO-01
pub async fn reason_and_description_have_at_most_4096_characters(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let dead_letter = |reason: usize, description: usize| Decision::DeadLetter {
        reason: Some("ä".repeat(reason)),
        description: Some("ä".repeat(description)),
        properties: vec![],
    };
    for decision in [dead_letter(4_097, 1), dead_letter(1, 4_097)] {
        refused(s.settle(ORDERS, seen.token(), decision).await, "ArgumentOutOfRange");
    }
    s.settle(ORDERS, seen.token(), dead_letter(4_096, 4_096)).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!(dead.reason().unwrap().chars().count(), 4_096);
    assert_eq!(dead.description().unwrap().chars().count(), 4_096);
}

/// SET-13, SET-15, SET-20
pub async fn a_token_settles_once_and_never_a_later_delivery(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(100)).await;
    s.put(ORDERS, "a").await;
    let first = s.take(ORDERS).await;
    s.abandon(ORDERS, &first).await;
    let second = s.take(ORDERS).await;
    assert_ne!(first.lock_token, second.lock_token);
    // A repetition of the token's own outcome may be answered with success (AMQP-62).
    for decision in Decision::all().into_iter().filter(|it| !matches!(it, Decision::Abandon(_))) {
        refused(s.settle(ORDERS, first.token(), decision).await, "MessageLockLost");
    }
    refused(s.renew(ORDERS, first.token()).await, "MessageLockLost");
    s.assert_empty(ORDERS).await;
    s.complete(ORDERS, &second).await;
    refused(s.settle(ORDERS, second.token(), Decision::Abandon(vec![])).await, "MessageLockLost");
}

/// SET-19, SET-20
pub async fn an_ended_lock_allows_no_operation(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.advance(minutes(1)).await;
    for decision in Decision::all() {
        let refusal = refused(s.settle(ORDERS, seen.token(), decision).await, "MessageLockLost");
        assert!(!refusal.retryable);
    }
    refused(s.renew(ORDERS, seen.token()).await, "MessageLockLost");
    let again = s.take(ORDERS).await;
    assert_eq!((again.text(), again.delivery_count), ("a", 2));
}

/// SET-20
pub async fn an_unknown_token_is_refused(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.take(ORDERS).await;
    for token in ["00000000-0000-0001-0000-000000000000", "9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11"] {
        for decision in Decision::all() {
            refused(s.settle(ORDERS, token, decision).await, "MessageLockLost");
        }
        refused(s.renew(ORDERS, token).await, "MessageLockLost");
    }
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.total()), (1, 1));
}

/// SET-20, DLQ-11
pub async fn a_token_of_the_queue_is_invalid_in_its_dead_letter_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.open_queue("other").await;
    s.put(ORDERS, "a").await;
    s.put("other", "b").await;
    let seen = s.take(ORDERS).await;
    for path in [DLQ, "other"] {
        refused(s.settle(path, seen.token(), Decision::Complete).await, "MessageLockLost");
        refused(s.renew(path, seen.token()).await, "MessageLockLost");
    }
    s.complete(ORDERS, &seen).await;
}

/// SET-14
pub async fn each_token_of_a_batch_is_completed_or_reported(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b", "c"] {
        s.put(ORDERS, text).await;
    }
    let mut tokens: Vec<String> =
        s.take_all(ORDERS).await.into_iter().filter_map(|seen| seen.lock_token).collect();
    s.settle(ORDERS, &tokens[1], Decision::Abandon(vec![])).await.unwrap();
    tokens.push(tokens[0].clone());
    let answers = s.complete_many(ORDERS, &tokens).await.unwrap();
    let mut answers = answers.into_iter();
    answers.next().unwrap().unwrap();
    refused(answers.next().unwrap(), "MessageLockLost");
    answers.next().unwrap().unwrap();
    // A repetition of the same outcome may be answered with success (AMQP-62).
    if let Err(refusal) = answers.next().unwrap() {
        refused::<()>(Err(refusal), "MessageLockLost");
    }
    assert_eq!(texts(&s.look(ORDERS).await), ["b"]);
}

/// SET-12, EXP-25, EXP-29, EXP-30
pub async fn every_settlement_succeeds_on_a_message_expired_under_lock(s: &Stage) {
    s.open_queue_with(ORDERS, keeps_expired()).await;
    for decision in Decision::all() {
        s.send(ORDERS, message("a").with_time_to_live(seconds(5))).await.unwrap();
        let seen = s.take(ORDERS).await;
        s.advance(seconds(10)).await;
        s.settle(ORDERS, seen.token(), decision).await.unwrap();
    }
    // Completed; expired on abandon; deferred; dead-lettered by the application, not as expired.
    let reasons: Vec<Option<String>> =
        s.look(DLQ).await.iter().map(|dead| dead.reason().map(str::to_owned)).collect();
    assert_eq!(reasons, [Some("TTLExpiredException".to_owned()), None]);
    assert_eq!(s.counts(ORDERS).await.deferred, 1);
}
