//! Queues that are deleted when idle (file 16).

use super::*;

fn temporary(span: TimeSpan) -> QueueUpdate {
    QueueUpdate { auto_delete_on_idle: Some(span), ..QueueUpdate::default() }
}

async fn open(s: &Stage) {
    s.open_queue_with(ORDERS, temporary(minutes(10))).await;
}

async fn exists(s: &Stage) -> bool {
    !s.list(0, 10).await.unwrap().is_empty()
}

/// TMP-01, TMP-02, TMP-07, TMP-20, ENT-14
pub async fn an_unused_queue_is_deleted_with_its_messages(s: &Stage) {
    open(s).await;
    s.put(ORDERS, "a").await;
    s.advance(before(minutes(10))).await;
    assert!(exists(s).await);
    // Deleted at most a minute later.
    s.advance(minutes(1)).await;
    assert!(!exists(s).await);
    refused(s.describe(ORDERS).await, "EntityNotFound");
    s.open_queue(ORDERS).await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// TMP-04
pub async fn a_queue_without_the_property_is_never_deleted(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(days(3_650)).await;
    assert!(exists(s).await);
}

/// TMP-09, TMP-16, PEK-09: each use restarts the time.
pub async fn each_use_of_a_queue_ends_its_idleness(s: &Stage) {
    open(s).await;
    s.open_queue("long-lived").await;
    let step = minutes(9);
    s.advance(step).await;
    s.put(ORDERS, "a").await;
    s.advance(step).await;
    let seen = s.take(ORDERS).await;
    s.advance(seconds(59)).await;
    s.renew(ORDERS, seen.token()).await.unwrap();
    s.advance(seconds(59)).await;
    s.defer(ORDERS, &seen).await;
    s.advance(step).await;
    let mode = ReceiveMode::PeekLock;
    let seen = s.receive_deferred(ORDERS, mode, &[seen.sequence]).await.unwrap().remove(0);
    s.dead_letter(ORDERS, &seen).await;
    s.advance(step).await;
    s.look(ORDERS).await;
    s.advance(step).await;
    s.update(ORDERS, temporary(minutes(10))).await.unwrap();
    s.advance(step).await;
    // Uses of the dead-letter queue are uses of the queue.
    let dead = s.take(DLQ).await;
    s.advance(seconds(59)).await;
    s.abandon(DLQ, &dead).await;
    s.advance(step).await;
    s.look(DLQ).await;
    s.advance(step).await;
    // An empty receive is a use, too (TMP-15).
    s.assert_empty(ORDERS).await;
    s.advance(step).await;
    s.delete_batch(DLQ, 1, None).await.unwrap();
    s.advance(step).await;
    assert_eq!(s.list(0, 10).await.unwrap(), ["long-lived", ORDERS]);
    s.advance(minutes(2)).await;
    assert_eq!(s.list(0, 10).await.unwrap(), ["long-lived"]);
}

/// TMP-17
pub async fn watching_and_rejected_operations_are_no_use(s: &Stage) {
    open(s).await;
    for _ in 0..9 {
        s.advance(minutes(1)).await;
        s.describe(ORDERS).await.unwrap();
        s.list(0, 10).await.unwrap();
        refused(s.cancel(ORDERS, &[1]).await, "MessageNotFound");
        refused(s.send(DLQ, message("x")).await, "InvalidOperation");
        refused(
            s.settle(ORDERS, "9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11", Decision::Complete).await,
            "MessageLockLost",
        );
    }
    s.advance(minutes(2)).await;
    assert!(!exists(s).await);
}

/// TMP-09, TMP-14
pub async fn a_queue_with_scheduled_messages_is_not_idle(s: &Stage) {
    open(s).await;
    let at = s.now().plus(days(1));
    s.schedule(ORDERS, message("a"), at).await.unwrap();
    s.advance(before(days(1))).await;
    assert!(exists(s).await);
    s.advance(TICK).await;
    // The time starts when the last scheduled message is enqueued.
    s.advance(before(minutes(10))).await;
    assert!(exists(s).await);
    s.advance(minutes(1)).await;
    assert!(!exists(s).await);
}

/// TMP-14
pub async fn the_time_starts_when_the_last_scheduled_message_is_cancelled(s: &Stage) {
    open(s).await;
    let sequence = s.schedule(ORDERS, message("a"), s.now().plus(days(1))).await.unwrap();
    s.advance(minutes(60)).await;
    s.cancel(ORDERS, &[sequence]).await.unwrap();
    s.advance(before(minutes(10))).await;
    assert!(exists(s).await);
    s.advance(minutes(1)).await;
    assert!(!exists(s).await);
}

/// TMP-15
pub async fn a_queue_is_not_idle_while_a_receive_waits(s: &Stage) {
    s.open_queue_with(ORDERS, temporary(minutes(5))).await;
    s.advance(before(minutes(5))).await;
    // The longest wait that every transport allows.
    let wait = seconds(60);
    let (received, ()) = tokio::join!(s.receive(ORDERS, ReceiveMode::PeekLock, 1, wait), async {
        s.until_used(ORDERS).await;
        s.advance(before(wait)).await;
        assert!(exists(s).await);
        s.advance(TICK).await;
    });
    assert!(received.unwrap().is_empty());
    // The end of the wait is the last use.
    s.advance(before(minutes(5))).await;
    assert!(exists(s).await);
    s.advance(minutes(1)).await;
    assert!(!exists(s).await);
}

/// TMP-20: a server that waits for replies keeps its queue. When the server is gone, the queue is
/// deleted.
pub async fn a_reply_queue_is_deleted_after_its_server(s: &Stage) {
    s.open_queue_with("replies", temporary(minutes(5))).await;
    s.advance(minutes(4)).await;
    let waiting = s.receive("replies", ReceiveMode::PeekLock, 1, seconds(60));
    let noted = s.until_used("replies");
    let served = futures_util::future::select(Box::pin(waiting), Box::pin(noted)).await;
    assert!(matches!(served, futures_util::future::Either::Right(_)), "nothing was sent");
    s.advance(minutes(4)).await;
    assert!(exists(s).await);
    // The receive is dropped. The transport and the threads determine when the broker notices that.
    drop(served);
    s.until_idle_is_over("replies", minutes(5)).await;
}

/// TMP-06
pub async fn an_update_can_make_a_queue_temporary_and_lasting_again(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(days(1)).await;
    s.update(ORDERS, temporary(minutes(5))).await.unwrap();
    s.advance(before(minutes(5))).await;
    s.update(ORDERS, temporary(TimeSpan::MAX)).await.unwrap();
    s.advance(days(10)).await;
    assert!(exists(s).await);
    s.update(ORDERS, temporary(minutes(5))).await.unwrap();
    s.advance(minutes(6)).await;
    assert!(!exists(s).await);
}

/// TMP-02: the default of the namespace for queues without the property.
pub async fn the_namespace_has_a_default_for_queues_without_the_property(s: &Stage) {
    s.open_queue(ORDERS).await;
    let description = s.describe(ORDERS).await.unwrap().description;
    assert_eq!(description.auto_delete_on_idle, minutes(20));
    s.open_queue_with("lasting", temporary(TimeSpan::MAX)).await;
    s.advance(minutes(21)).await;
    assert_eq!(s.list(0, 10).await.unwrap(), ["lasting"]);
}

/// A namespace whose queues are temporary by default.
pub fn temporary_by_default() -> Setup {
    let mut setup = Setup::default();
    setup.settings.auto_delete_on_idle_default = minutes(20);
    setup
}
