//! Receiving (file 05).

use super::*;

const PEEK_LOCK: ReceiveMode = ReceiveMode::PeekLock;
const RECEIVE_AND_DELETE: ReceiveMode = ReceiveMode::ReceiveAndDelete;

/// RCV-01, RCV-02, RCV-04, RCV-08, FND-10: at most once, without a lock.
pub async fn receive_and_delete_removes_a_message_when_it_is_delivered(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let first = s.receive(ORDERS, RECEIVE_AND_DELETE, 1, TimeSpan::ZERO).await.unwrap();
    // The next receive needs no settlement of the first message.
    let second = s.receive(ORDERS, RECEIVE_AND_DELETE, 1, TimeSpan::ZERO).await.unwrap();
    assert_eq!((first[0].text(), second[0].text()), ("a", "b"));
    assert_eq!(first[0].delivery_count, 0);
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    s.advance(minutes(10)).await;
    s.assert_empty(ORDERS).await;
}

/// RCV-05, RCV-06, RCV-23, FND-06, FND-10: at least once, under a lock.
pub async fn a_locked_message_is_kept_from_others_for_the_lock_duration(s: &Stage) {
    let lock_duration = Some(seconds(30));
    s.open_queue_with(ORDERS, QueueUpdate { lock_duration, ..QueueUpdate::default() }).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let seen = s.take(ORDERS).await;
    assert_eq!(seen.locked_until, Some(s.now().plus(seconds(30))));
    assert_eq!(s.take(ORDERS).await.text(), "b");
    s.assert_empty(ORDERS).await;
    s.advance(before(seconds(30))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.take(ORDERS).await.text(), "a");
}

/// RCV-07
pub async fn the_lock_of_a_waiting_receive_starts_when_its_message_arrives(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let waiting = s.receive(ORDERS, PEEK_LOCK, 1, minutes(1));
    let (received, sent_at) = tokio::join!(waiting, async {
        s.until_used(ORDERS).await;
        s.advance(seconds(20)).await;
        s.put(ORDERS, "a").await;
        s.now()
    });
    assert_eq!(received.unwrap()[0].locked_until, Some(sent_at.plus(minutes(1))));
}

/// RCV-08, SET-33
pub async fn receive_and_delete_shows_the_stored_count_and_does_not_raise_it(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.abandon(ORDERS, &seen).await;
    let seen = s.receive(ORDERS, RECEIVE_AND_DELETE, 1, TimeSpan::ZERO).await.unwrap();
    assert_eq!(seen[0].delivery_count, 1);
}

/// RCV-09, DLQ-04
pub async fn both_modes_work_on_a_dead_letter_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b"] {
        s.put(ORDERS, text).await;
        let seen = s.take(ORDERS).await;
        s.dead_letter(ORDERS, &seen).await;
    }
    let seen = s.take(DLQ).await;
    assert_eq!(seen.text(), "a");
    s.complete(DLQ, &seen).await;
    assert_eq!(s.drain(DLQ).await, ["b"]);
    for mode in [PEEK_LOCK, RECEIVE_AND_DELETE] {
        assert!(s.receive(TDLQ, mode, 1, TimeSpan::ZERO).await.unwrap().is_empty());
    }
}

/// RCV-10, RCV-11
pub async fn a_receive_without_wait_answers_at_once(s: &Stage) {
    s.open_queue(ORDERS).await;
    for mode in [PEEK_LOCK, RECEIVE_AND_DELETE] {
        assert!(s.receive(ORDERS, mode, 5, TimeSpan::ZERO).await.unwrap().is_empty());
    }
}

/// RCV-11, FND-06
pub async fn a_waiting_receive_ends_empty_at_its_time_and_not_before(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let waiting = s.receive(ORDERS, PEEK_LOCK, 1, seconds(10));
    let mut waiting = std::pin::pin!(waiting);
    tokio::select! {
        biased;
        answer = &mut waiting => panic!("the receive did not wait: {answer:?}"),
        () = async {
            s.until_used(ORDERS).await;
            s.advance(before(seconds(10))).await;
        } => {}
    }
    s.advance(TICK).await;
    assert!(waiting.await.unwrap().is_empty());
}

/// RCV-11, RCV-12
pub async fn a_waiting_receive_takes_the_first_message_and_waits_for_no_more(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let (received, ()) = tokio::join!(s.receive(ORDERS, PEEK_LOCK, 10, seconds(30)), async {
        s.until_used(ORDERS).await;
        s.put(ORDERS, "a").await;
    });
    assert_eq!(texts(&received.unwrap()), ["a"]);
}

/// RCV-12, RCV-13
pub async fn a_receive_for_many_takes_available_messages_up_to_its_count(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b", "c", "d", "e"] {
        s.put(ORDERS, text).await;
    }
    let received = s.receive(ORDERS, PEEK_LOCK, 3, TimeSpan::ZERO).await.unwrap();
    assert_eq!(texts(&received), ["a", "b", "c"]);
    let received = s.receive(ORDERS, PEEK_LOCK, 10, seconds(30)).await.unwrap();
    assert_eq!(texts(&received), ["d", "e"]);
}

/// RCV-15, DLQ-30, SET-28, SET-30, SET-35, SET-36
pub async fn ten_abandons_take_a_message_to_the_dead_letter_queue(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "poison").await;
    for count in 1..=10 {
        let seen = s.take(ORDERS).await;
        assert_eq!((seen.text(), seen.delivery_count), ("poison", count));
        s.abandon(ORDERS, &seen).await;
    }
    s.assert_empty(ORDERS).await;
    let dead = s.take(DLQ).await;
    assert_eq!((dead.text(), dead.reason()), ("poison", Some("MaxDeliveryCountExceeded")));
}

/// RCV-23, RCV-24, LIF-03
pub async fn a_message_is_given_to_one_of_the_competing_receivers(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let receivers = (0..10).map(|_| s.receive(ORDERS, PEEK_LOCK, 1, minutes(1)));
    let (received, ()) = tokio::join!(join_all(receivers), async {
        s.until_used(ORDERS).await;
        for number in 0..10 {
            s.put(ORDERS, &number.to_string()).await;
        }
    });
    let mut seen: Vec<u64> =
        received.into_iter().flat_map(|one| sequences(&one.unwrap())).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
}

/// RCV-25, RCV-26
pub async fn a_returned_message_takes_its_old_place(s: &Stage) {
    s.open_queue(ORDERS).await;
    for text in ["a", "b", "c"] {
        s.put(ORDERS, text).await;
    }
    let first = s.take(ORDERS).await;
    let second = s.take(ORDERS).await;
    s.abandon(ORDERS, &second).await;
    s.abandon(ORDERS, &first).await;
    s.put(ORDERS, "d").await;
    assert_eq!(s.drain(ORDERS).await, ["a", "b", "c", "d"]);
}

/// RCV-26, SET-16
pub async fn a_message_with_an_expired_lock_takes_its_old_place(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.take(ORDERS).await;
    s.put(ORDERS, "b").await;
    s.advance(minutes(1)).await;
    assert_eq!(s.drain(ORDERS).await, ["a", "b"]);
}

/// RCV-27
pub async fn a_receive_returns_neither_deferred_scheduled_locked_nor_expired_messages(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(minutes(5))).await.unwrap();
    s.put(ORDERS, "locked").await;
    s.take(ORDERS).await;
    s.send(ORDERS, message("expired").with_time_to_live(seconds(1))).await.unwrap();
    s.put(ORDERS, "available").await;
    s.advance(seconds(1)).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["available"]);
}

/// A receive must request at least one message (ERR-01).
pub async fn a_receive_for_no_message_is_refused(s: &Stage) {
    s.open_queue(ORDERS).await;
    refused(s.receive(ORDERS, PEEK_LOCK, 0, TimeSpan::ZERO).await, "ArgumentOutOfRange");
}
