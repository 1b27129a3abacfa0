//! Duplicate detection (file 12).

use super::*;

fn with_id(text: &str, id: &str) -> Message {
    message(text).with_message_id(id)
}

async fn send(s: &Stage, text: &str, id: &str) -> u64 {
    s.send(ORDERS, with_id(text, id)).await.unwrap()
}

/// DUP-01, DUP-02, DUP-03, MSG-13
pub async fn a_repeated_id_is_accepted_and_dropped(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    assert_eq!(send(s, "a", "id").await, 1);
    let other = with_id("other", "id").with_subject("other").with_session_id("other");
    assert_eq!(s.send(ORDERS, other).await.unwrap(), 0);
    // Ids are compared byte by byte.
    assert_eq!(send(s, "b", "ID").await, 2);
    assert_eq!(send(s, "c", "id ").await, 3);
    assert_eq!(s.drain(ORDERS).await, ["a", "b", "c"]);
}

/// DUP-04, DUP-05, FND-06
pub async fn the_window_runs_from_the_first_acceptance_and_is_not_extended(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    send(s, "a", "id").await;
    s.advance(minutes(6)).await;
    assert_eq!(send(s, "b", "id").await, 0);
    s.advance(before(minutes(4))).await;
    assert_eq!(send(s, "c", "id").await, 0);
    s.advance(TICK).await;
    assert_eq!(send(s, "d", "id").await, 2);
    assert_eq!(send(s, "e", "id").await, 0);
    assert_eq!(s.drain(ORDERS).await, ["a", "d"]);
}

/// DUP-04, ENT-17
pub async fn the_window_can_be_changed_afterwards(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    send(s, "a", "id").await;
    let window = Some(seconds(20));
    let properties =
        QueueUpdate { duplicate_detection_history_time_window: window, ..QueueUpdate::default() };
    s.update(ORDERS, properties).await.unwrap();
    s.advance(before(seconds(20))).await;
    assert_eq!(send(s, "b", "id").await, 0);
    s.advance(TICK).await;
    assert_eq!(send(s, "c", "id").await, 2);
}

/// DUP-06, SCH-11
pub async fn scheduled_and_other_messages_share_the_record(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let at = s.now().plus(minutes(30));
    s.schedule(ORDERS, with_id("scheduled", "one"), at).await.unwrap();
    send(s, "dropped", "one").await;
    send(s, "plain", "two").await;
    s.schedule(ORDERS, with_id("dropped", "two"), at).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.total(), 2);
    // The window runs from the acceptance, not from the instant.
    s.advance(minutes(10)).await;
    send(s, "again", "one").await;
    // A scheduled message is not checked again when it is enqueued.
    s.advance(minutes(20)).await;
    assert_eq!(s.drain(ORDERS).await, ["plain", "again", "scheduled"]);
}

/// DUP-07, DEL-08
pub async fn an_id_is_remembered_when_its_message_is_gone(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let at = s.now().plus(minutes(5));
    let scheduled = s.schedule(ORDERS, with_id("x", "cancelled"), at).await.unwrap();
    s.cancel(ORDERS, &[scheduled]).await.unwrap();
    send(s, "x", "consumed").await;
    s.drain(ORDERS).await;
    send(s, "x", "deleted").await;
    s.advance(ms(1)).await;
    assert_eq!(s.delete_batch(ORDERS, 10, None).await.unwrap(), 1);
    for id in ["cancelled", "consumed", "deleted"] {
        assert_eq!(send(s, "again", id).await, 0);
    }
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// DUP-11, SND-33
pub async fn the_first_of_two_messages_with_one_id_in_a_batch_is_kept(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    send(s, "known", "known").await;
    let batch = vec![
        with_id("a", "one"),
        with_id("dropped", "known"),
        with_id("b", "two"),
        with_id("dropped", "one"),
    ];
    assert_eq!(s.send_batch(ORDERS, batch).await.unwrap(), [2, 0, 3, 0]);
    assert_eq!(s.drain(ORDERS).await, ["known", "a", "b"]);
}

/// DUP-11, MSG-13: ids of a rejected batch are not remembered.
pub async fn the_ids_of_a_rejected_batch_are_not_remembered(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let bad = message("bad").with_session_id("a").with_partition_key("b");
    refused(s.send_batch(ORDERS, vec![with_id("a", "id"), bad]).await, "InvalidOperation");
    assert_eq!(send(s, "a", "id").await, 1);
}

/// DUP-02, DUP-06, DUP-12
pub async fn a_repeated_schedule_gives_the_number_of_the_message_still_scheduled(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let at = s.now().plus(minutes(5));
    let first = s.schedule(ORDERS, with_id("a", "id"), at).await.unwrap();
    assert_eq!(s.schedule(ORDERS, with_id("b", "id"), at).await.unwrap(), first);
    // Only a repeated schedule returns the number of the first message; a dropped send returns 0
    // (DUP-02).
    assert_eq!(send(s, "b", "id").await, 0);
    let batch = vec![with_id("b", "id"), with_id("b", "id").with_scheduled_enqueue_time(at)];
    assert_eq!(s.send_batch(ORDERS, batch).await.unwrap(), [0, first]);
    s.advance(minutes(5)).await;
    let later = s.now().plus(minutes(5));
    assert_eq!(s.schedule(ORDERS, with_id("c", "id"), later).await.unwrap(), 0);
    assert_eq!(s.drain(ORDERS).await, ["a"]);
}

/// DUP-13
pub async fn without_the_switch_nothing_is_dropped(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        send(s, text, "id").await;
    }
    assert_eq!(s.drain(ORDERS).await, ["a", "b"]);
}

/// DUP-14, MSG-07
pub async fn a_message_without_id_is_never_a_duplicate(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    for expected in 1..=5 {
        assert_eq!(s.put(ORDERS, "same").await, expected);
    }
}

/// DUP-01: a full history refuses new ids with an error that names it.
pub async fn a_full_history_refuses_new_ids(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    for id in ["a", "b", "c"] {
        send(s, id, id).await;
    }
    let refusal = refused(s.send(ORDERS, with_id("d", "d")).await, "QuotaExceeded");
    assert!(refusal.text.contains("history"), "{}", refusal.text);
    // Known ids are still dropped.
    assert_eq!(send(s, "a", "a").await, 0);
    s.advance(minutes(10)).await;
    assert_eq!(send(s, "d", "d").await, 4);
}

/// A broker whose histories hold three ids.
pub fn small_history() -> Setup {
    let mut setup = Setup::default();
    setup.settings.limits.duplicate_id_count_max = 3;
    setup
}
