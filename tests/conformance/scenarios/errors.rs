//! The errors of queues, each with the marks of the catalogue (file 19).

use super::*;

/// ERR-01, ERR-02, ERR-07, ERR-08, SND-06
pub async fn every_error_has_its_name_its_mark_and_a_tracking_id(s: &Stage) {
    s.open_queue_with(
        ORDERS,
        QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() },
    )
    .await;
    let token = "9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11";
    let mut texts = vec![
        refused(s.create("a b", QueueUpdate::default()).await, "ArgumentError"),
        refused(s.update(ORDERS, max_delivery_count(0)).await, "ArgumentOutOfRange"),
        refused(s.send(DLQ, message("x")).await, "InvalidOperation"),
        refused(s.send("absent", message("x")).await, "EntityNotFound"),
        refused(s.create(ORDERS, QueueUpdate::default()).await, "EntityAlreadyExists"),
        refused(s.send(ORDERS, sized(MIB + 1, "a")).await, "MessageSizeExceeded"),
        refused(s.settle(ORDERS, token, Decision::Complete).await, "MessageLockLost"),
        refused(s.cancel(ORDERS, &[7]).await, "MessageNotFound"),
    ];
    s.send(ORDERS, sized(MIB, "a")).await.unwrap();
    texts.push(refused(s.send(ORDERS, message("x")).await, "QuotaExceeded"));
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
    s.update(ORDERS, disabled).await.unwrap();
    texts.push(refused(s.send(ORDERS, message("x")).await, "EntityDisabled"));
    let ids: BTreeSet<String> =
        texts.iter().map(|refusal| identity(&refusal.text).tracking_id).collect();
    assert_eq!(ids.len(), texts.len());
    for refusal in &texts {
        // The text contains the name of the condition, because some readers see only the text.
        assert!(refusal.text.contains(&refusal.condition), "{}", refusal.text);
        assert_eq!(identity(&refusal.text).timestamp, s.now());
    }
}

/// ERR-06, ERR-09, QUO-05, SND-19: a store without room.
pub async fn a_full_store_refuses_sends_and_nothing_else(s: &Stage) {
    s.open_queue_with(
        ORDERS,
        QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() },
    )
    .await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let refusal = refused(s.send(ORDERS, sized(MIB, "large")).await, "ServerBusy");
    assert!(refusal.retryable);
    assert!(refusal.text.contains("10 s"), "{}", refusal.text);
    let invalid = message("x").with_session_id("a").with_partition_key("b");
    let invalid = Message { body: sized(MIB - 1_000, "x").body, ..invalid };
    refused(s.send(ORDERS, invalid).await, "InvalidOperation");
    // Nothing was stored, and all other operations work.
    assert_eq!(s.counts(ORDERS).await.total(), 2);
    let seen = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &seen).await;
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    assert_eq!(s.put(ORDERS, "small").await, 3);
}

/// A broker whose store takes half a mebibyte.
pub fn small_store() -> Setup {
    Setup { capacity_bytes: Some(MIB / 2), ..Setup::default() }
}
