//! Guarantees of in-process handles in addition to the operations: senders, receivers and their
//! ends (files 04 to 06). Only that transport has them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use peeklock_client::Client;

use super::*;

async fn open(s: &Stage, texts: &[&str]) -> Client {
    s.open_queue(ORDERS).await;
    for text in texts {
        s.put(ORDERS, text).await;
    }
    s.in_process()
}

/// Polls a future once. It must be pending.
async fn assert_pending<F: Future>(mut future: std::pin::Pin<&mut F>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending(), "it did not wait");
        Poll::Ready(())
    })
    .await;
}

/// SET-21, SET-23, SET-31, LIF-03
pub async fn dropping_a_receiver_releases_its_locks_and_counts(s: &Stage) {
    let client = open(s, &["a", "b"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    let held = receiver.receive_many(2, TimeSpan::ZERO).await.unwrap();
    let token = held[0].lock_token().unwrap().to_string();
    drop(receiver);
    let again = s.take_all(ORDERS).await;
    assert_eq!(texts(&again), ["a", "b"]);
    assert!(again.iter().all(|seen| seen.delivery_count == 2));
    refused(s.settle(ORDERS, &token, Decision::Complete).await, "MessageLockLost");
}

/// SET-21
pub async fn closing_a_receiver_keeps_its_locks_until_they_expire(s: &Stage) {
    let client = open(s, &["a"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    receiver.close().await.unwrap();
    s.advance(before(minutes(1))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 2);
}

/// SET-34, SET-31: a consumer that crashes in a loop moves the message to the dead-letter queue.
pub async fn dropped_receivers_take_a_message_to_the_dead_letter_queue(s: &Stage) {
    let client = open(s, &["a"]).await;
    for _ in 0..10 {
        let receiver = client.receiver(ORDERS).unwrap();
        receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    }
    s.advance(TimeSpan::ZERO).await;
    assert_eq!(s.look(DLQ).await[0].reason(), Some("MaxDeliveryCountExceeded"));
}

/// SET-32
pub async fn a_released_message_is_there_again_and_not_counted(s: &Stage) {
    let client = open(s, &["a"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    for _ in 0..20 {
        let message = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        assert_eq!(message.delivery_count(), 1);
        receiver.release(&message).await.unwrap();
    }
}

/// RCV-14
pub async fn a_dropped_receive_takes_nothing(s: &Stage) {
    let client = open(s, &[]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    {
        let mut waiting = pin!(receiver.receive(minutes(1)));
        assert_pending(waiting.as_mut()).await;
    }
    s.put(ORDERS, "a").await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 1);
}

/// RCV-14: also if its message was already locked.
pub async fn a_dropped_receive_releases_its_locked_message(s: &Stage) {
    let client = open(s, &[]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    {
        let mut waiting = pin!(receiver.receive(minutes(1)));
        assert_pending(waiting.as_mut()).await;
        s.put(ORDERS, "a").await;
        s.describe(ORDERS).await.unwrap();
    }
    assert_eq!(s.take(ORDERS).await.delivery_count, 1);
}

/// RCV-16, RCV-21
pub async fn a_receiver_prefetches_nothing(s: &Stage) {
    let client = open(s, &["a", "b", "c"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(texts(&s.take_all(ORDERS).await), ["b", "c"]);
}

/// RCV-17: waiting calls are served completely in order of arrival.
pub async fn waiting_receives_are_served_in_order_of_arrival(s: &Stage) {
    let client = open(s, &[]).await;
    let receivers: Vec<_> = (0..3).map(|_| client.receiver(ORDERS).unwrap()).collect();
    let mut waiting = Vec::new();
    for receiver in &receivers {
        let mut call = Box::pin(receiver.receive_many(2, minutes(1)));
        assert_pending(call.as_mut()).await;
        waiting.push(call);
    }
    let batch = ["a", "b", "c", "d", "e"].map(message).to_vec();
    s.send_batch(ORDERS, batch).await.unwrap();
    let served = join_all(waiting).await;
    let numbers: Vec<Vec<u64>> = served
        .into_iter()
        .map(|one| one.unwrap().iter().map(|seen| seen.sequence_number().0).collect())
        .collect();
    assert_eq!(numbers, [vec![1, 2], vec![3, 4], vec![5]]);
}

/// RCV-22, QUO-01: the limit of concurrent receives is two here.
pub async fn more_receives_at_once_than_allowed_are_refused(s: &Stage) {
    let client = open(s, &[]).await;
    let receivers: Vec<_> = (0..2).map(|_| client.receiver(ORDERS).unwrap()).collect();
    let mut waiting = Vec::new();
    for receiver in &receivers {
        let mut call = Box::pin(receiver.receive(minutes(1)));
        assert_pending(call.as_mut()).await;
        waiting.push(call);
    }
    let mode = ReceiveMode::PeekLock;
    refused(s.receive(ORDERS, mode, 1, TimeSpan::ZERO).await, "QuotaExceeded");
    waiting.pop();
    s.assert_empty(ORDERS).await;
}

/// A broker that lets two receive at once.
pub fn two_receivers() -> Setup {
    let mut setup = Setup::default();
    setup.settings.limits.receiver_count_max = 2;
    setup
}

/// PEK-04
pub async fn a_peek_without_number_continues_after_the_last(s: &Stage) {
    let client = open(s, &["a", "b", "c"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    for expected in [vec![1, 2], vec![3], vec![]] {
        let peeked = receiver.peek_next(2).await.unwrap();
        let numbers: Vec<u64> = peeked.iter().map(|seen| seen.sequence_number().0).collect();
        assert_eq!(numbers, expected);
    }
}

/// SND-07, SND-09: overlapping sends of a sender keep their order.
pub async fn overlapped_sends_of_one_sender_are_numbered_in_their_order(s: &Stage) {
    let client = open(s, &[]).await;
    let sender = client.sender(ORDERS).unwrap();
    let numbers = join_all((0..100).map(|number| sender.send(message(&number.to_string())))).await;
    let numbers: Vec<u64> = numbers.into_iter().map(|number| number.unwrap().0).collect();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
}

/// FND-11: operations apply in the order of their answers, also across the sub-queues of an entity.
pub async fn operations_of_one_entity_are_applied_in_one_order(s: &Stage) {
    let client = open(s, &["a"]).await;
    let receiver = client.receiver(ORDERS).unwrap();
    let dead = client.receiver(DLQ).unwrap();
    let held = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    // Both start without waiting. Whether the second finds the message durable depends on grouping,
    // but after the answer every reader finds it.
    let moved = receiver.dead_letter(&held, Some("reason"), None, &[]);
    let looked = dead.peek_next(1);
    let (moved, looked) = tokio::join!(moved, looked);
    moved.unwrap();
    assert!(looked.unwrap().len() <= 1);
    let first = peeklock_core::ids::SequenceNumber(0);
    let after = dead.peek(first, 1).await.unwrap();
    assert_eq!(after.len(), 1);
}
