//! Consumers and streams, over each transport that has handles.

use std::future::ready;
use std::pin::pin;

use futures_util::StreamExt as _;
use peeklock_client::{
    ConsumerOptions, Delivery, Received, Refusal, SessionConsumerOptions, SessionDelivery,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::SubscriptionUpdate;
use peeklock_core::path::{dead_letter_path, subscription_path};
use tokio::sync::mpsc;

use super::*;

/// TOP-01, SET-01, SET-03, SET-05: a subscription is consumed like a queue, its dead letters too, with sessions or without.
pub async fn a_subscription_is_consumed(s: &Stage) {
    let client = s.client();
    let admin = client.admin();
    admin.create_topic("events").await.unwrap();
    admin.create_subscription("events", "plain").await.unwrap();
    let sessions =
        SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
    admin.create_subscription_with("events", "steps", sessions, Vec::new()).await.unwrap();
    let [plain, steps] = ["plain", "steps"].map(|name| subscription_path("events", name));
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let work = move |of: &'static str, event: &Received| {
        let body = String::from_utf8(event.body().to_vec()).unwrap();
        let count = event.delivery_count();
        seen.send((of, body.clone(), count)).unwrap();
        match (body.as_str(), count) {
            ("again", 1) => Err(Refusal::abandon()),
            ("bad", _) if of != "letters" => Err(Refusal::dead_letter("Bad", "as asked")),
            _ => Ok(()),
        }
    };
    let (first, second) = (work.clone(), work.clone());
    let alone = move |event: Delivery| ready(first("plain", &event));
    let consumer = client.consume(&plain, alone, ConsumerOptions::at_once(1)).await.unwrap();
    let by_session = move |step: SessionDelivery| ready(second("steps", &step));
    let of_sessions = client
        .consume_sessions(&steps, by_session, SessionConsumerOptions::at_once(1))
        .await
        .unwrap();
    let sender = client.sender("events").unwrap();
    for body in ["a", "again", "bad", "b"] {
        sender.send(Message::new(body).with_session_id("s")).await.unwrap();
    }
    let mut all = Vec::new();
    while all.len() < 10 {
        all.push(arrivals.recv().await.unwrap());
    }
    for of in ["plain", "steps"] {
        let mine = all.iter().filter(|(whose, ..)| *whose == of);
        let mine = mine.map(|(_, body, count)| (body.as_str(), *count));
        let expected = [("a", 1), ("again", 1), ("again", 2), ("bad", 1), ("b", 1)];
        assert!(mine.eq(expected), "{all:?}");
    }
    consumer.stop().await;
    of_sessions.stop().await;
    let letters = move |letter: Delivery| ready(work("letters", &letter));
    let dead = dead_letter_path(&plain);
    let consumer = client.consume(&dead, letters, ConsumerOptions::default()).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap().1, "bad");
    consumer.stop().await;
    let counts = admin.subscription(&plain).await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (0, 0));
    let counts = admin.subscription(&steps).await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (0, 1));
}

/// RCV-10, RCV-14, SES-15, SES-19: the messages of a session are a stream, which receives only
/// requested messages and ends with the lock of its session.
pub async fn a_session_is_a_stream(s: &Stage) {
    let client = s.client();
    let sessions = QueueUpdate {
        requires_session: Some(true),
        lock_duration: Some(seconds(30)),
        ..QueueUpdate::default()
    };
    client.admin().create_queue_with(ORDERS, sessions).await.unwrap();
    let sender = client.sender(ORDERS).unwrap();
    for (session, body) in [("s", "a"), ("other", "x"), ("s", "b"), ("s", "c")] {
        sender.send(Message::new(body).with_session_id(session)).await.unwrap();
    }
    let session = client.accept_session(ORDERS, "s").await.unwrap();
    {
        let mut messages = pin!(session.stream());
        for expected in ["a", "b"] {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(message.body(), expected);
            session.complete(&message).await.unwrap();
        }
    }
    let free = session.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(free.body(), "c");
    session.complete(&free).await.unwrap();
    s.advance(seconds(30)).await;
    let mut messages = pin!(session.stream());
    let lost = messages.next().await.unwrap().unwrap_err();
    assert_eq!(lost.condition(), Condition::SessionLockLost);
    assert!(messages.next().await.is_none(), "it ends after an error");
}
