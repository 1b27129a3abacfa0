//! Transactions of a topic with one of its subscriptions.

use super::*;

const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";
const AUDIT_DLQ: &str = "events/Subscriptions/audit/$DeadLetterQueue";
const BILLING: &str = "events/Subscriptions/billing";

/// Creates a topic with two subscriptions that get all messages.
async fn open_topic(s: &Stage) {
    s.create_topic(EVENTS).await.unwrap();
    for name in ["audit", "billing"] {
        s.create_subscription(EVENTS, name).await.unwrap();
    }
}

/// TXN-08, TXN-01, TXN-03: a settlement in a subscription and sends to its topic, in either order.
pub async fn a_topic_and_its_subscription_share_a_transaction(s: &Stage) {
    open_topic(s).await;
    for settles_first in [true, false] {
        s.send(EVENTS, message("old")).await.unwrap();
        let old = s.take(AUDIT).await;
        let before = (bodies(s, AUDIT).await, bodies(s, BILLING).await);
        let transaction = s.begin().await.unwrap();
        let settle = async || s.within(transaction, AUDIT, complete(&old)).await.unwrap();
        if settles_first {
            settle().await;
        }
        s.within(transaction, EVENTS, send("new 1")).await.unwrap();
        s.within(transaction, EVENTS, send("new 2")).await.unwrap();
        if !settles_first {
            settle().await;
        }
        let other = s.take(BILLING).await;
        let refusal = s.within(transaction, BILLING, complete(&other)).await;
        refused(refusal, "InvalidOperation");
        assert_eq!((bodies(s, AUDIT).await, bodies(s, BILLING).await), before);
        let parts = s.commit(transaction).await.unwrap();
        let place = if settles_first { 0 } else { 2 };
        assert_eq!((parts.len(), &parts[place]), (3, &PartOutcome::Done));
        let sent = numbers(&parts);
        assert_eq!(sent[1], sent[0] + 1);
        assert_eq!(s.drain(AUDIT).await, ["new 1", "new 2"]);
        s.complete(BILLING, &other).await;
        assert_eq!(s.drain(BILLING).await, ["new 1", "new 2"]);
    }
}

/// TXN-07, TXN-08: a failure of the topic or of the subscription undoes both.
pub async fn a_topic_and_its_subscription_do_all_or_nothing(s: &Stage) {
    open_topic(s).await;
    s.send(EVENTS, message("old")).await.unwrap();
    let begin = async |old: &Seen| {
        let transaction = s.begin().await.unwrap();
        s.within(transaction, AUDIT, complete(old)).await.unwrap();
        s.within(transaction, EVENTS, send("never")).await.unwrap();
        transaction
    };
    // The lock is lost.
    let old = s.take(AUDIT).await;
    let transaction = begin(&old).await;
    s.advance(minutes(1)).await;
    refused(s.commit(transaction).await, "MessageLockLost");
    // The topic accepts no sends.
    let old = s.take(AUDIT).await;
    let transaction = begin(&old).await;
    let status = |status| TopicUpdate { status: Some(status), ..TopicUpdate::default() };
    s.update_topic(EVENTS, status(EntityStatus::SendDisabled)).await.unwrap();
    refused(s.commit(transaction).await, "EntityDisabled");
    s.update_topic(EVENTS, status(EntityStatus::Active)).await.unwrap();
    assert_eq!(
        (bodies(s, AUDIT).await, bodies(s, BILLING).await),
        (vec!["old".into()], vec!["old".into()])
    );
    s.assert_empty(AUDIT).await;
    // The lock is still held, and the subscription is deleted.
    let transaction = begin(&old).await;
    s.complete(AUDIT, &old).await;
    refused(s.commit(transaction).await, "MessageLockLost");
    s.send(EVENTS, message("last")).await.unwrap();
    let last = s.take(AUDIT).await;
    let transaction = begin(&last).await;
    s.delete_subscription(AUDIT).await.unwrap();
    refused(s.commit(transaction).await, "EntityNotFound");
    assert_eq!(bodies(s, BILLING).await, ["old", "last"]);
}

/// TXN-08, TXN-14: a dead letter of a subscription is sent to the topic again, and every
/// subscription gets it.
pub async fn a_dead_letter_of_a_subscription_is_published_again_as_one(s: &Stage) {
    open_topic(s).await;
    s.send(EVENTS, message("wrong")).await.unwrap();
    let wrong = s.take(AUDIT).await;
    s.dead_letter(AUDIT, &wrong).await;
    let dead = s.take(AUDIT_DLQ).await;
    let kept = s.begin().await.unwrap();
    s.within(kept, AUDIT_DLQ, settle(&dead, Decision::Abandon(vec![]))).await.unwrap();
    s.roll_back(kept).await.unwrap();
    let transaction = s.begin().await.unwrap();
    s.within(transaction, AUDIT_DLQ, complete(&dead)).await.unwrap();
    s.within(transaction, EVENTS, send("right")).await.unwrap();
    let later = message("later").with_scheduled_enqueue_time(s.now().plus(minutes(1)));
    s.within(transaction, EVENTS, Work::Send(later)).await.unwrap();
    s.commit(transaction).await.unwrap();
    assert_eq!(
        (bodies(s, AUDIT).await, bodies(s, AUDIT_DLQ).await),
        (vec!["right".into()], vec![])
    );
    assert_eq!(bodies(s, BILLING).await, ["wrong", "right"]);
    let only = s.begin().await.unwrap();
    let right = s.take(AUDIT).await;
    s.within(only, AUDIT, complete(&right)).await.unwrap();
    assert_eq!(s.commit(only).await.unwrap(), [PartOutcome::Done]);
    s.advance(minutes(1)).await;
    while bodies(s, AUDIT).await.is_empty() {
        s.advance(ms(1)).await;
    }
    assert_eq!(bodies(s, AUDIT).await, ["later"]);
}

/// TXN-15, TXN-08: after a restart a commit over topic and subscription is complete.
pub async fn a_restart_keeps_a_commit_over_topic_and_subscription(s: &Stage) {
    open_topic(s).await;
    s.send(EVENTS, message("old")).await.unwrap();
    let old = s.take(AUDIT).await;
    let transaction = s.begin().await.unwrap();
    s.within(transaction, EVENTS, send("new")).await.unwrap();
    s.within(transaction, AUDIT, complete(&old)).await.unwrap();
    s.commit(transaction).await.unwrap();
    let s = s.restart().await;
    assert_eq!(bodies(&s, AUDIT).await, ["new"]);
    assert_eq!(bodies(&s, BILLING).await, ["old", "new"]);
    s.stop().await;
}
