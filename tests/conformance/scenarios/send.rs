//! Sending (file 04).

use super::*;

/// FND-01, SND-02
pub async fn a_message_waits_for_a_receiver_that_comes_later(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "early").await;
    s.advance(days(400)).await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.text(), "early");
    s.complete(ORDERS, &seen).await;
    s.assert_empty(ORDERS).await;
}

/// FND-02, SND-01, MSG-12
pub async fn a_send_is_answered_when_its_message_is_stored_with_its_number(s: &Stage) {
    s.open_queue(ORDERS).await;
    for expected in 1..=5 {
        assert_eq!(s.put(ORDERS, "one more").await, expected);
        assert_eq!(sequences(&s.look(ORDERS).await), (1..=expected).collect::<Vec<_>>());
    }
}

/// SND-03, SND-04, SND-05, SND-06, ERR-02
pub async fn a_rejected_send_carries_condition_text_and_a_tracking_id_of_its_own(s: &Stage) {
    s.open_queue("Orders.New").await;
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let refusal = refused(
            s.send("orders.new", message("x").with_message_id("i".repeat(129))).await,
            "ArgumentOutOfRange",
        );
        assert!(!refusal.retryable);
        let identity = identity(&refusal.text);
        assert_eq!(identity.entity.to_lowercase(), "orders.new");
        assert_eq!(identity.timestamp, s.now());
        assert!(ids.insert(identity.tracking_id), "a tracking id is repeated");
    }
}

/// MSG-13, QUO-03
pub async fn a_rejected_send_takes_no_number_and_stores_nothing(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "first").await;
    let bad = message("x").with_session_id("a").with_partition_key("b");
    refused(s.send(ORDERS, bad.clone()).await, "InvalidOperation");
    refused(s.send_batch(ORDERS, vec![message("y"), bad]).await, "InvalidOperation");
    assert_eq!(s.counts(ORDERS).await.total(), 1);
    assert_eq!(s.put(ORDERS, "second").await, 2);
}

/// SND-07, SND-09
pub async fn many_sends_in_flight_are_each_answered_with_their_own_number(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sends = (0..60).map(|number| s.send(ORDERS, message(&number.to_string())));
    let numbers: Vec<u64> =
        join_all(sends).await.into_iter().map(|answer| answer.unwrap()).collect();
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 60);
    for seen in s.look(ORDERS).await {
        let sent: usize = seen.text().parse().unwrap();
        assert_eq!(numbers[sent], seen.sequence, "an answer belongs to another send");
    }
}

/// SND-22, QUO-01, MSG-25
pub async fn a_message_may_be_as_large_as_the_queue_allows_and_no_byte_larger(s: &Stage) {
    s.open_queue(ORDERS).await;
    let fits = sized(MIB, "a");
    s.send(ORDERS, fits).await.unwrap();
    let refusal = refused(s.send(ORDERS, sized(MIB + 1, "b")).await, "MessageSizeExceeded");
    assert!(!refusal.retryable);
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, MIB);
}

/// SND-23, MSG-26, QUO-01
pub async fn a_property_may_have_32_kib_and_a_header_64_kib(s: &Stage) {
    s.open_queue(ORDERS).await;
    let property = |chars: usize| message("x").with_application_property("k", "v".repeat(chars));
    // Key and value are encoded with 3 and 5 bytes in addition to the text.
    s.send(ORDERS, property(32 * 1024 - 8)).await.unwrap();
    refused(s.send(ORDERS, property(32 * 1024 - 7)).await, "MessageSizeExceeded");

    let header = |chars: usize| {
        message("x")
            .with_message_id("id")
            .with_application_property("a", "v".repeat(30_000))
            .with_application_property("b", "v".repeat(30_000))
            .with_application_property("c", "v".repeat(chars))
    };
    let base = header(1_000).encode().header_size() as usize - 1_000;
    s.send(ORDERS, header(64 * 1024 - base)).await.unwrap();
    refused(s.send(ORDERS, header(64 * 1024 - base + 1)).await, "MessageSizeExceeded");
    assert_eq!(s.counts(ORDERS).await.total(), 2);
}

/// SND-24, QUO-01, QUO-04, DLQ-10, DLQ-29, SCH-08, DEF-10
pub async fn a_full_queue_refuses_only_sends_until_there_is_room(s: &Stage) {
    s.open_queue_with(ORDERS, one_mebibyte()).await;
    for id in ["a", "b", "c"] {
        s.send(ORDERS, sized(MIB / 4, id)).await.unwrap();
    }
    let later = Message::default()
        .with_message_id("d")
        .with_scheduled_enqueue_time(s.now().plus(minutes(5)));
    s.send(ORDERS, sized_as(MIB / 4, &later)).await.unwrap();
    // At its limit the queue refuses even an empty message.
    let refusal = refused(s.send(ORDERS, message("x")).await, "QuotaExceeded");
    assert!(!refusal.retryable);
    assert!(refusal.text.contains("1048576 of 1048576"), "{}", refusal.text);

    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    s.defer(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    refused(s.send(ORDERS, message("x")).await, "QuotaExceeded");
    assert_eq!(s.drain(ORDERS).await.len(), 1);
    s.put(ORDERS, "there is room").await;
}

/// SND-19
pub async fn the_first_failing_check_decides_the_error(s: &Stage) {
    s.open_queue_with(
        ORDERS,
        QueueUpdate { requires_duplicate_detection: Some(true), ..one_mebibyte() },
    )
    .await;
    let too_large = || sized(MIB + 1, "large");
    let invalid = || message("x").with_message_id("i".repeat(129));
    let large_and_invalid = || {
        message("x")
            .with_session_id("s".repeat(129))
            .with_application_property("k", "v".repeat(40_000))
    };

    // The order is: existence before size, kind before status.
    refused(s.send("nothing", too_large()).await, "EntityNotFound");
    set_status(s, EntityStatus::Disabled).await;
    refused(s.send(DLQ, too_large()).await, "InvalidOperation");
    // Status before size.
    refused(s.send(ORDERS, too_large()).await, "EntityDisabled");
    set_status(s, EntityStatus::Active).await;
    // Size before validity: in a batch the size of every message is checked first.
    refused(s.send(ORDERS, large_and_invalid()).await, "MessageSizeExceeded");
    refused(
        s.send_batch(ORDERS, vec![invalid(), large_and_invalid()]).await,
        "MessageSizeExceeded",
    );
    // Validity before quota, quota before duplicates.
    s.send(ORDERS, sized(MIB - 100, "kept")).await.unwrap();
    refused(s.send(ORDERS, sized(1_000, &"i".repeat(129))).await, "ArgumentOutOfRange");
    refused(s.send(ORDERS, sized(1_000, "kept")).await, "QuotaExceeded");
    assert_eq!(s.counts(ORDERS).await.total(), 1);
}

/// SND-20, DLQ-05
pub async fn a_dead_letter_queue_refuses_sends(s: &Stage) {
    s.open_queue(ORDERS).await;
    for path in [DLQ, TDLQ] {
        refused(s.send(path, message("x")).await, "InvalidOperation");
        refused(s.send_batch(path, vec![message("x")]).await, "InvalidOperation");
        refused(s.schedule(path, message("x"), s.now().plus(minutes(1))).await, "InvalidOperation");
    }
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// SND-29, SND-31, SND-32
pub async fn a_batch_is_stored_whole_with_consecutive_numbers_or_not_at_all(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(1));
    let batch = vec![
        message("plain"),
        message("short").with_time_to_live(seconds(1)).with_session_id("s1"),
        message("later").with_scheduled_enqueue_time(at),
        message("other").with_session_id("s2"),
    ];
    assert_eq!(s.send_batch(ORDERS, batch).await.unwrap(), [1, 2, 3, 4]);
    let states: Vec<MessageState> = s.look(ORDERS).await.iter().map(|seen| seen.state).collect();
    let (active, scheduled) = (MessageState::Active, MessageState::Scheduled);
    assert_eq!(states, [active, active, scheduled, active]);
    s.advance(seconds(2)).await;
    assert_eq!(s.drain(ORDERS).await, ["plain", "other"]);

    let bad = message("bad").with_message_id("i".repeat(129));
    refused(s.send_batch(ORDERS, vec![message("good"), bad]).await, "ArgumentOutOfRange");
    assert_eq!(s.put(ORDERS, "next").await, 5);
}

/// SND-30, QUO-01
pub async fn a_batch_may_have_a_mebibyte_in_all(s: &Stage) {
    s.open_queue(ORDERS).await;
    let half = MIB / 2;
    s.send_batch(ORDERS, vec![sized(half, "a"), sized(half, "b")]).await.unwrap();
    let refusal = refused(
        s.send_batch(ORDERS, vec![sized(half, "c"), sized(half + 1, "d")]).await,
        "MessageSizeExceeded",
    );
    assert!(!refusal.retryable);
    assert_eq!(s.counts(ORDERS).await.total(), 2);
}

/// SND-34
pub async fn an_empty_batch_succeeds_and_stores_nothing(s: &Stage) {
    s.open_queue(ORDERS).await;
    assert_eq!(s.send_batch(ORDERS, vec![]).await.unwrap(), Vec::<u64>::new());
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// RCV-25, SND-09
pub async fn messages_of_one_sender_keep_their_order(s: &Stage) {
    s.open_queue(ORDERS).await;
    let sent: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    for text in &sent {
        s.put(ORDERS, text).await;
    }
    assert_eq!(s.drain(ORDERS).await, sent);
}

async fn set_status(s: &Stage, status: EntityStatus) {
    s.update(ORDERS, QueueUpdate { status: Some(status), ..QueueUpdate::default() }).await.unwrap();
}

fn one_mebibyte() -> QueueUpdate {
    QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() }
}
