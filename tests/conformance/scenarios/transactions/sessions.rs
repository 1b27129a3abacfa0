//! Transactions of the holder of a session.

use super::*;

/// A queue that requires sessions.
async fn open(s: &Stage) {
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    s.open_queue_with(ORDERS, by_session).await;
}

/// A message of session `a`.
fn of(text: &str) -> Message {
    message(text).with_session_id("a")
}

/// TXN-02, TXN-04, TXN-07, SES-24, SES-25: the state of a held session is set or cleared at the
/// commit, with the settlements and sends of the transaction. If the session is released before,
/// the commit fails.
pub async fn the_state_of_a_session_is_set_at_the_commit(s: &Stage) {
    open(s).await;
    s.send(ORDERS, of("1")).await.unwrap();
    let client = s.client();
    let sender = client.sender(ORDERS).unwrap();
    let session = client.accept_session(ORDERS, "a").await.unwrap();
    session.set_state(Some("old".into())).await.unwrap();
    let held = session.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    let state = async || session.state().await.unwrap();
    let transaction = client.begin_transaction().await.unwrap();
    transaction.set_state(&session, Some("never".into())).await.unwrap();
    assert_eq!(state().await.unwrap(), "old");
    transaction.roll_back().await.unwrap();
    assert_eq!(state().await.unwrap(), "old");
    let transaction = client.begin_transaction().await.unwrap();
    transaction.complete(&session, &held).await.unwrap();
    transaction.set_state(&session, Some("new".into())).await.unwrap();
    transaction.send(&sender, of("2")).await.unwrap();
    let committed = transaction.commit().await.unwrap();
    let sent = PartOutcome::Accepted(SequenceNumber(2));
    assert_eq!(committed.parts(), [PartOutcome::Done, PartOutcome::Done, sent]);
    assert_eq!(state().await.unwrap(), "new");
    assert_eq!(texts(&s.look(ORDERS).await), ["2"]);
    let transaction = client.begin_transaction().await.unwrap();
    transaction.set_state(&session, None).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(state().await, None);
    let lost = client.begin_transaction().await.unwrap();
    lost.set_state(&session, Some("never".into())).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(lost.commit().await.unwrap_err().condition().name(), "SessionLockLost");
}

/// TXN-02, SES-15: messages of a session are settled while it is held. Their locks are not renewed.
pub async fn messages_of_a_session_are_settled_in_a_transaction_while_it_is_held(s: &Stage) {
    open(s).await;
    for text in ["1", "2", "3"] {
        s.send(ORDERS, of(text)).await.unwrap();
    }
    let client = s.in_process();
    let sender = client.sender(ORDERS).unwrap();
    let session = client.accept_session(ORDERS, "a").await.unwrap();
    let held = session.receive_many(3, TimeSpan::ZERO).await.unwrap();
    let transaction = client.begin_transaction().await.unwrap();
    let refused_by = |answer: Result<(), peeklock_core::error::BrokerError>, condition| {
        assert_eq!(answer.unwrap_err().condition().name(), condition);
    };
    refused_by(transaction.send(&sender, message("none")).await, "InvalidOperation");
    refused_by(transaction.renew_lock(&session, &held[0]).await, "InvalidOperation");
    transaction.complete(&session, &held[0]).await.unwrap();
    transaction.send(&sender, of("4")).await.unwrap();
    transaction.commit().await.unwrap();
    let lost = client.begin_transaction().await.unwrap();
    lost.complete(&session, &held[1]).await.unwrap();
    lost.send(&sender, of("never")).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(lost.commit().await.unwrap_err().condition().name(), "SessionLockLost");
    assert_eq!(texts(&s.look(ORDERS).await), ["2", "3", "4"]);
}
