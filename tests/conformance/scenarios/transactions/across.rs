//! Transactions across entities.

use super::*;

/// TXN-09, VIA-04, TXN-08: a settlement in one entity and sends to others are one transaction, only
/// if it was begun across entities.
pub async fn a_transaction_across_entities_settles_at_the_first_and_sends_to_others(s: &Stage) {
    open(s).await;
    s.open_queue("done").await;
    s.put(ORDERS, "order").await;
    let held = s.take(ORDERS).await;
    let narrow = s.begin().await.unwrap();
    s.within(narrow, ORDERS, complete(&held)).await.unwrap();
    refused(s.within(narrow, "done", send("never")).await, "InvalidOperation");
    s.roll_back(narrow).await.unwrap();
    let forgotten = s.begin_across().await.unwrap();
    s.within(forgotten, ORDERS, complete(&held)).await.unwrap();
    s.within(forgotten, "done", send("never")).await.unwrap();
    s.roll_back(forgotten).await.unwrap();
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, ORDERS, complete(&held)).await.unwrap();
    s.within(transaction, "done", send("handled")).await.unwrap();
    s.within(transaction, ORDERS, send("next")).await.unwrap();
    let batch = Work::SendBatch(vec![message("a"), message("b")]);
    s.within(transaction, "done", batch).await.unwrap();
    // Only the first entity can take part with settlements.
    s.put("done", "other").await;
    let other = s.take("done").await;
    refused(s.within(transaction, "done", complete(&other)).await, "InvalidOperation");
    assert_eq!(bodies(s, "done").await, ["other"]);
    let parts = s.commit(transaction).await.unwrap();
    let is_pending = |part: &PartOutcome| matches!(part, PartOutcome::Pending(_));
    assert_eq!(parts.iter().map(is_pending).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(numbers(&parts).len(), 1);
    s.until(ORDERS, |counts| counts.active == 1).await;
    assert_eq!(bodies(s, ORDERS).await, ["next"]);
    assert_eq!(bodies(s, "done").await, ["other", "handled", "a", "b"]);
}

/// TXN-09: the first entity can be one that is sent to.
pub async fn the_first_entity_of_a_transaction_is_its_root(s: &Stage) {
    open(s).await;
    s.open_queue("done").await;
    s.put("done", "held").await;
    let held = s.take("done").await;
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, "done", send("first")).await.unwrap();
    s.within(transaction, ORDERS, send("second")).await.unwrap();
    s.within(transaction, "done", complete(&held)).await.unwrap();
    let parts = s.commit(transaction).await.unwrap();
    assert!(matches!(parts[1], PartOutcome::Pending(_)), "{parts:?}");
    s.until("done", |counts| counts.active == 1).await;
    assert_eq!(bodies(s, ORDERS).await, ["second"]);
    assert_eq!(bodies(s, "done").await, ["first"]);
}

/// TXN-09, VIA-01: a sender through the queue needs no cross-entity transaction.
pub async fn a_sender_through_the_queue_needs_no_cross_entity_transaction(s: &Stage) {
    open(s).await;
    s.open_queue("done").await;
    let transaction = s.begin().await.unwrap();
    let on = Work::SendOn { destination: "done".into(), message: message("via") };
    s.within(transaction, ORDERS, on).await.unwrap();
    s.commit(transaction).await.unwrap();
    s.until(ORDERS, |counts| counts.total() == 0).await;
    assert_eq!(bodies(s, "done").await, ["via"]);
}

/// TXN-13: a batch of one message is reported as a single message, over every transport.
pub async fn a_batch_of_one_is_reported_as_a_message(s: &Stage) {
    open(s).await;
    let client = s.client();
    let (transaction, sender) =
        (client.begin_transaction().await.unwrap(), client.sender(ORDERS).unwrap());
    transaction.send_batch(&sender, vec![message("alone")]).await.unwrap();
    transaction.send_batch(&sender, vec![message("one"), message("two")]).await.unwrap();
    let committed = transaction.commit().await.unwrap();
    assert!(
        matches!(
            committed.parts(),
            [PartOutcome::Accepted(_), PartOutcome::AcceptedBatch(numbers)] if numbers.len() == 2
        ),
        "{committed:?}"
    );
}

/// TXN-10, VIA-03, VIA-06: a later failure of a transfer does not undo the commit, and it is
/// counted.
pub async fn a_failed_transfer_does_not_undo_its_transaction(s: &Stage) {
    open(s).await;
    s.open_queue("done").await;
    s.put(ORDERS, "order").await;
    let held = s.take(ORDERS).await;
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, ORDERS, complete(&held)).await.unwrap();
    s.within(transaction, "done", send("handled")).await.unwrap();
    let disabled = Some(EntityStatus::Disabled);
    s.update("done", QueueUpdate { status: disabled, ..QueueUpdate::default() }).await.unwrap();
    s.commit(transaction).await.unwrap();
    s.until(ORDERS, |counts| counts.transfer_dead_letter == 1).await;
    assert!(bodies(s, ORDERS).await.is_empty());
    assert_eq!(s.look(TDLQ).await[0].reason(), Some("MessagingEntityDisabled"));
}
