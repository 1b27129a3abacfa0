//! The connection is lost repeatedly.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use peeklock_core::condition::Condition;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use peeklock_websocket::Encoding;
use peeklock_websocket::client::{ClientOptions, ConsumerOptions, Delivery};
use tokio::sync::Notify;

use super::proxy::Proxy;
use super::server::{Server, run};

const MESSAGES: usize = 400;

/// SET-21: whichever frame is cut, each message is sent once, delivered once and completed, and
/// callers do not notice.
fn everything_happens_once(encoding: Encoding, seed: u64) {
    run(async {
        let server = Server::start(60).await;
        let proxy = Proxy::start(server.address, seed, 40).await;
        let mut options = ClientOptions::default();
        options.encoding = encoding;
        let client = Server::quick_client(proxy.address, options).await;
        let handled = Arc::new((Mutex::new(BTreeMap::<String, u32>::new()), Notify::new()));
        let consumer = {
            let handled = Arc::clone(&handled);
            let options = ConsumerOptions::at_once(8);
            client
                .consume(
                    "q",
                    move |message: Delivery| {
                        assert_eq!(message.delivery_count(), 1, "it was delivered before");
                        let text = String::from_utf8(message.body().to_vec()).unwrap();
                        let mut all = handled.0.lock().unwrap();
                        *all.entry(text).or_default() += 1;
                        if all.len() == MESSAGES {
                            handled.1.notify_one();
                        }
                        std::future::ready(Ok(()))
                    },
                    options,
                )
                .await
                .unwrap()
        };
        let sender = client.sender("q").unwrap().with_in_flight_max(16);
        let sends = (0..MESSAGES).map(|number| sender.send(Message::new(number.to_string())));
        let mut numbers: Vec<u64> =
            join_all(sends).await.into_iter().map(|number| number.unwrap().0).collect();
        handled.1.notified().await;
        consumer.stop().await;
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=MESSAGES as u64).collect::<Vec<_>>(), "seed {seed}");
        let all = handled.0.lock().unwrap().clone();
        assert!(all.values().all(|count| *count == 1), "seed {seed}: {all:?}");
        assert_eq!(server.delivery_counts().await, [], "seed {seed}");
        assert!(proxy.cuts.load(Ordering::Relaxed) > 5, "seed {seed}: nothing was cut");
        client.close().await;
        server.stop().await;
    });
}

#[test]
fn cuts_anywhere_lose_and_double_nothing_in_binary() {
    for seed in 0..4 {
        everything_happens_once(Encoding::Binary, seed);
    }
}

#[test]
fn cuts_anywhere_lose_and_double_nothing_in_json() {
    for seed in 10..14 {
        everything_happens_once(Encoding::Json, seed);
    }
}

/// SET-27, SET-31: after a restart no acknowledged message is lost, and unsettled ones are
/// delivered again without an increased count. The consumer continues by itself.
#[test]
fn over_a_restart_nothing_acknowledged_is_lost() {
    run(async {
        let server = Server::start(60).await;
        let client = Server::quick_client(server.address, ClientOptions::default()).await;
        let sender = client.sender("q").unwrap();
        for text in ["a", "b"] {
            sender.send(Message::new(text)).await.unwrap();
        }
        let (seen, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
        let gate = Arc::new(Notify::new());
        let consumer = {
            let gate = Arc::clone(&gate);
            client
                .consume(
                    "q",
                    move |message: Delivery| {
                        seen.send((message.sequence_number().0, message.delivery_count())).unwrap();
                        let gate = Arc::clone(&gate);
                        async move {
                            gate.notified().await;
                            Ok(())
                        }
                    },
                    ConsumerOptions::default(),
                )
                .await
                .unwrap()
        };
        assert_eq!(arrivals.recv().await, Some((1, 1)));
        assert_eq!(arrivals.recv().await, Some((2, 1)));
        let receiver = Arc::new(client.receiver("q").unwrap());
        let waiting = {
            let receiver = Arc::clone(&receiver);
            tokio::spawn(async move { receiver.receive(TimeSpan::from_minutes(5)).await })
        };
        while receiver.peek_next(1).await.unwrap().is_empty() {}
        let server = server.restart().await;
        // The wait was ended either by the stop or by the loss.
        match waiting.await.unwrap() {
            Ok(received) => assert!(received.is_none()),
            Err(error) => assert_eq!(error.condition(), Condition::CommunicationProblem),
        }
        // Both are delivered again: their locks ended with the old broker.
        let mut again = vec![arrivals.recv().await.unwrap(), arrivals.recv().await.unwrap()];
        again.sort_unstable();
        assert_eq!(again, [(1, 1), (2, 1)]);
        // Releases handlers of the old and of the new deliveries.
        for _ in 0..4 {
            gate.notify_one();
            tokio::task::yield_now().await;
        }
        while !server.delivery_counts().await.is_empty() {
            gate.notify_one();
            tokio::task::yield_now().await;
        }
        assert_eq!(sender.send(Message::new("c")).await.unwrap().0, 3);
        assert_eq!(arrivals.recv().await, Some((3, 1)));
        gate.notify_one();
        consumer.stop().await;
        client.close().await;
        server.stop().await;
    });
}

/// ERR-06: without a grace period, a call in flight fails with an error that leaves its outcome
/// open.
#[test]
fn without_grace_calls_in_flight_fail_as_unknown() {
    run(async {
        let server = Server::start(60).await;
        let proxy = Proxy::start(server.address, 1, 1).await;
        let mut options = ClientOptions::default();
        options.grace = std::time::Duration::ZERO;
        let client = Server::quick_client(proxy.address, options).await;
        let receiver = client.receiver("q").unwrap();
        let waiting = receiver.receive(TimeSpan::from_minutes(5));
        let sender = client.sender("q").unwrap();
        let filling = async {
            // Sends bytes until the connection is cut; the sends that are lost with it also fail.
            loop {
                let message = Message::new(vec![0; 2_000]).with_session_id("elsewhere");
                let at = peeklock_core::time::Timestamp::NEVER;
                if sender.schedule(message, at).await.is_err() {
                    return;
                }
            }
        };
        let (waited, ()) = tokio::join!(waiting, filling);
        let error = waited.unwrap_err();
        assert_eq!(error.condition(), Condition::CommunicationProblem);
        assert!(error.retryable());
        // Later calls use the new connection.
        assert_eq!(receiver.receive(TimeSpan::ZERO).await.unwrap().map(|_| ()), None);
        client.close().await;
        server.stop().await;
    });
}
