//! Scheduled messages (file 08, "Scheduled messages").

use super::*;
use crate::subjects::Transport;

/// SCH-01, SCH-02
pub async fn a_scheduled_message_is_received_from_its_instant_on(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    s.schedule(ORDERS, message("by operation"), at).await.unwrap();
    let by_property = message("by property").with_scheduled_enqueue_time(at);
    s.send(ORDERS, by_property).await.unwrap();
    s.advance(before(minutes(5))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(texts(&s.take_all(ORDERS).await), ["by operation", "by property"]);
}

/// SCH-03, MSG-14, PEK-05
pub async fn a_materialised_message_is_appended_with_a_new_number_and_enqueued_time(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    assert_eq!(s.schedule(ORDERS, message("scheduled"), at).await.unwrap(), 1);
    assert_eq!(s.put(ORDERS, "plain").await, 2);
    let peeked = &s.look(ORDERS).await[0];
    assert_eq!((peeked.sequence, peeked.state), (1, MessageState::Scheduled));
    assert_eq!(peeked.message.scheduled_enqueue_time, Some(at));
    s.advance(minutes(5)).await;
    let peeked = &s.look(ORDERS).await[1];
    // PEK-05: over AMQP its state stays Scheduled.
    let state = match s.transport {
        Transport::Amqp => MessageState::Scheduled,
        _ => MessageState::Active,
    };
    assert_eq!((peeked.sequence, peeked.state), (3, state));
    let received = s.take_all(ORDERS).await;
    assert_eq!(texts(&received), ["plain", "scheduled"]);
    assert_eq!((received[1].sequence, received[1].enqueued_at), (3, at));
    assert_eq!(received[1].message.scheduled_enqueue_time, Some(at));
    assert_eq!(s.put(ORDERS, "next").await, 4);
}

/// SCH-04, SCH-05
pub async fn a_cancelled_message_is_never_delivered(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    let sequence = s.schedule(ORDERS, message("a"), at).await.unwrap();
    s.cancel(ORDERS, &[sequence]).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.total(), 0);
    refused(s.cancel(ORDERS, &[sequence]).await, "MessageNotFound");
    s.advance(minutes(5)).await;
    s.assert_empty(ORDERS).await;
}

/// SCH-05
pub async fn a_cancel_of_many_is_all_or_nothing(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    let first = s.schedule(ORDERS, message("a"), at).await.unwrap();
    let second = s.schedule(ORDERS, message("b"), at).await.unwrap();
    let active = s.put(ORDERS, "active").await;
    for unknown in [active, 99] {
        refused(s.cancel(ORDERS, &[first, unknown, second]).await, "MessageNotFound");
    }
    assert_eq!(s.counts(ORDERS).await.scheduled, 2);
    s.cancel(ORDERS, &[second, first]).await.unwrap();
    assert_eq!(s.counts(ORDERS).await.scheduled, 0);
}

/// SCH-05
pub async fn a_materialised_message_cannot_be_cancelled(s: &Stage) {
    s.open_queue(ORDERS).await;
    let at = s.now().plus(minutes(5));
    let sequence = s.schedule(ORDERS, message("a"), at).await.unwrap();
    s.advance(minutes(5)).await;
    let now_at = s.look(ORDERS).await[0].sequence;
    for number in [sequence, now_at] {
        refused(s.cancel(ORDERS, &[number]).await, "MessageNotFound");
    }
    assert_eq!(s.drain(ORDERS).await, ["a"]);
}

/// SCH-06
pub async fn a_message_scheduled_for_now_or_earlier_is_enqueued_at_once(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(minutes(1)).await;
    s.schedule(ORDERS, message("now"), s.now()).await.unwrap();
    s.schedule(ORDERS, message("past"), s.now().minus(days(1))).await.unwrap();
    let received = s.take_all(ORDERS).await;
    assert_eq!(texts(&received), ["now", "past"]);
    assert_eq!(sequences(&received), [1, 2]);
    assert!(received.iter().all(|seen| seen.enqueued_at == s.now()));
}

/// SCH-07
pub async fn messages_materialise_by_instant_then_by_number_without_a_receiver(s: &Stage) {
    s.open_queue(ORDERS).await;
    let in_minutes = |count| s.now().plus(minutes(count));
    let plan = [("late", 3), ("second", 2), ("third", 2), ("first", 1), ("later", 9)];
    for (text, count) in plan {
        s.schedule(ORDERS, message(text), in_minutes(count)).await.unwrap();
    }
    s.advance(minutes(5)).await;
    let counts = s.counts(ORDERS).await;
    assert_eq!((counts.active, counts.scheduled), (4, 1));
    assert_eq!(s.drain(ORDERS).await, ["first", "second", "third", "late"]);
}

/// SCH-07, RCV-11
pub async fn a_waiting_receive_gets_a_message_when_it_materialises(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.schedule(ORDERS, message("a"), s.now().plus(seconds(10))).await.unwrap();
    s.advance(seconds(1)).await;
    let mode = ReceiveMode::PeekLock;
    let (received, ()) = tokio::join!(s.receive(ORDERS, mode, 1, minutes(1)), async {
        s.until_used(ORDERS).await;
        s.advance(seconds(9)).await;
    });
    assert_eq!(received.unwrap()[0].enqueued_at, s.now());
}

/// SCH-08, CNT-01, CNT-02
pub async fn scheduled_messages_are_counted_apart_and_in_the_size(s: &Stage) {
    s.open_queue(ORDERS).await;
    let later = Message::default().with_scheduled_enqueue_time(s.now().plus(minutes(5)));
    let later = later.with_message_id("a");
    s.send(ORDERS, sized_as(1_000, &later)).await.unwrap();
    let described = s.describe(ORDERS).await.unwrap();
    assert_eq!((described.counts.active, described.counts.scheduled), (0, 1));
    assert_eq!(described.size_bytes, 1_000);
    s.advance(minutes(5)).await;
    let described = s.describe(ORDERS).await.unwrap();
    assert_eq!((described.counts.active, described.counts.scheduled), (1, 0));
    assert_eq!(described.size_bytes, 1_000);
}

/// SCH-09
pub async fn a_scheduled_message_is_enqueued_once(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.schedule(ORDERS, message("a"), s.now().plus(minutes(5))).await.unwrap();
    s.advance(minutes(5)).await;
    assert_eq!(s.drain(ORDERS).await, ["a"]);
    s.advance(days(5)).await;
    s.assert_empty(ORDERS).await;
}
