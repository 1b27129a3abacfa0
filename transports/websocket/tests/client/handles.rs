//! Handles behave over a connection as they do in process: closing, dropped futures, handlers and
//! their outcomes.

use std::sync::Arc;

use peeklock_core::clock::Clock as _;
use peeklock_core::condition::Condition;
use peeklock_core::contract::AllowAll;
use peeklock_core::declaration::{Declaration, DeclaredQueue};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::{Message, Value};
use peeklock_core::store::{Journal, JournalConfig};
use peeklock_core::time::TimeSpan;
use peeklock_websocket::client::{
    Cleared, Client, ClientOptions, ConsumerOptions, Delivery, Received, Refusal,
    SessionConsumerOptions, SessionDelivery, connect, connect_with, message_from_json,
    message_to_json, queue_to_json, received_to_json,
};
use tokio::sync::Notify;

use super::server::{Server, run};

/// Runs a test over a connection and in process.
fn on_both(promise: impl AsyncFn(&Server, &Client)) {
    run(async {
        for is_in_process in [false, true] {
            let server = Server::start(60).await;
            let client =
                if is_in_process { Client::new(&server.broker) } else { server.client().await };
            promise(&server, &client).await;
            client.close().await;
            server.stop().await;
        }
    });
}

async fn put(client: &Client, texts: &[&str]) {
    let sender = client.sender("q").unwrap();
    for text in texts {
        sender.send(Message::new((*text).to_owned())).await.unwrap();
    }
}

/// SET-21, SET-23, SET-31
#[test]
fn dropping_a_receiver_releases_its_locks_and_closing_it_keeps_them() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        put(&client, &["a"]).await;
        let receiver = client.receiver("q").unwrap();
        receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        drop(receiver);
        while server.delivery_counts().await != [(1, 1)] {
            tokio::task::yield_now().await;
        }
        let receiver = client.receiver("q").unwrap();
        let held = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        assert_eq!(held.delivery_count(), 2);
        receiver.close().await.unwrap();
        assert_eq!(server.available().await, 0);
        client.close().await;
        server.stop().await;
    });
}

/// RCV-14: a dropped receive takes nothing, even if its message was under way.
#[test]
fn a_receive_that_is_dropped_takes_nothing() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let receiver = client.receiver("q").unwrap();
        for round in 0..10 {
            {
                let waiting = receiver.receive(TimeSpan::from_minutes(1));
                tokio::pin!(waiting);
                let put = put(&client, &["a"]);
                tokio::select! {
                    biased;
                    () = put => {}
                    got = &mut waiting => drop(got),
                }
            }
            while server.available().await == 0 {
                // A message that was received and dropped is locked, and its receiver is not.
                server.clock.advance(TimeSpan::from_minutes(1));
            }
            assert!(round < 10);
            server.clock.advance(TimeSpan::from_minutes(1));
            while receiver.purge().await.unwrap() == 0 {}
        }
        client.close().await;
        server.stop().await;
    });
}

/// SET-42, SET-45, SET-46, DLQ-34: a handler that fails or panics leaves its error on the message,
/// and the dead letter describes it, unless the consumer reports no errors.
#[test]
fn the_error_of_a_handler_travels_with_its_message() {
    on_both(async |_, client| {
        let once = QueueUpdate { max_delivery_count: Some(1), ..QueueUpdate::default() };
        client.admin().update_queue("q", once).await.unwrap();
        let dead = client.receiver("q/$deadletterqueue").unwrap();
        let handler = |message: Delivery| async move {
            assert_ne!(message.body(), "panic", "a handler that breaks");
            Err(Refusal::failed("sold out"))
        };
        for reports in [true, false] {
            let mut options = ConsumerOptions::at_once(1);
            options.reports_errors = reports;
            let consumer = client.consume("q", handler, options).await.unwrap();
            for (body, error) in [("fail", "sold out"), ("panic", "the handler panicked: assert")] {
                put(client, &[body]).await;
                let wait = TimeSpan::from_seconds(60);
                let letter = dead.receive(wait).await.unwrap().unwrap();
                assert_eq!(letter.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
                let description = letter.dead_letter_error_description().unwrap();
                assert_eq!(description.starts_with(error), reports, "{description}");
                let has_error = letter.last_error().is_some_and(|text| text.starts_with(error));
                assert_eq!(has_error, reports);
                dead.complete(&letter).await.unwrap();
            }
            consumer.stop().await;
        }
    });
}

/// SET-01, SET-03, SET-05, SET-07: the outcome of a handler settles its message; a panic abandons
/// it.
#[test]
fn the_outcome_of_a_handler_settles() {
    on_both(async |_, client| {
        put(client, &["complete", "abandon", "defer", "dead", "panic"]).await;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let options = ConsumerOptions::at_once(1);
        let consumer = client
            .consume(
                "q",
                move |message: Delivery| {
                    let text = String::from_utf8(message.body().to_vec()).unwrap();
                    tell.send((text.clone(), message.delivery_count())).unwrap();
                    async move {
                        let properties = vec![("why".to_owned(), Value::from("busy"))];
                        match (text.as_str(), message.delivery_count()) {
                            ("abandon", 1) => Err(Refusal::Abandon { properties }),
                            ("defer", _) => Err(Refusal::Defer),
                            ("dead", _) => Err(Refusal::DeadLetter {
                                reason: "poison".to_owned(),
                                description: "no".to_owned(),
                            }),
                            ("panic", 1) => panic!("a handler that breaks"),
                            ("abandon", _) => {
                                let why = message.message().application_property("why");
                                assert_eq!(why, Some(&Value::from("busy")));
                                Ok(())
                            }
                            _ => Ok(()),
                        }
                    }
                },
                options,
            )
            .await
            .unwrap();
        let mut all = Vec::new();
        while all.len() < 7 {
            all.push(told.recv().await.unwrap());
        }
        consumer.stop().await;
        all.sort();
        let expected = [("abandon", 1), ("abandon", 2), ("complete", 1), ("dead", 1), ("defer", 1)];
        let expected = expected.into_iter().chain([("panic", 1), ("panic", 2)]);
        let expected: Vec<_> = expected.map(|(text, count)| (text.to_owned(), count)).collect();
        assert_eq!(all, expected);
        let described = client.admin().queue("q").await.unwrap();
        let counts = described.counts;
        assert_eq!((counts.active, counts.deferred, counts.dead_letter), (0, 1, 1));
        let dead = client.receiver("q/$deadletterqueue").unwrap();
        let letter = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        assert_eq!(letter.dead_letter_reason(), Some("poison"));
    });
}

/// SET-17, SET-18: the lock of a message is renewed while its handler runs.
#[test]
fn locks_are_renewed_while_a_handler_runs() {
    run(async {
        let server = Server::start(2).await;
        let client = server.client().await;
        let gate = Arc::new(Notify::new());
        let consumer = {
            let gate = Arc::clone(&gate);
            client
                .consume(
                    "q",
                    move |_: Delivery| {
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
        put(&client, &["a"]).await;
        // Renewed each second, twice more: a renewal updates the access time of the queue.
        for _ in 0..2 {
            server.clock.advance(TimeSpan::from_ms(1_500));
            let now = server.clock.now();
            while server.broker.describe_queue("q").await.unwrap().accessed_at != now {
                tokio::task::yield_now().await;
            }
        }
        gate.notify_one();
        consumer.stop().await;
        // After three seconds it was completed under its first lock.
        assert_eq!(server.delivery_counts().await, []);
        client.close().await;
        server.stop().await;
    });
}

/// ENT-24: a consumer whose queue no longer delivers ends with the reason.
#[test]
fn a_consumer_ends_with_its_queue() {
    on_both(async |server, client| {
        let ignore = |_: Delivery| std::future::ready(Ok(()));
        let consumer = client.consume("q", ignore, ConsumerOptions::default()).await.unwrap();
        put(client, &["a"]).await;
        while !server.delivery_counts().await.is_empty() {
            tokio::task::yield_now().await;
        }
        client.admin().delete_queue("q").await.unwrap();
        let why = consumer.ended().await.unwrap();
        assert_eq!(why.condition(), Condition::EntityNotFound);
        let absent = client.consume("absent", ignore, ConsumerOptions::default()).await;
        assert_eq!(absent.unwrap_err().condition(), Condition::EntityNotFound);
    });
}

#[test]
fn a_failed_connect_reports_its_reason() {
    run(async {
        for url in ["http://localhost:1", "ws://", "ws://host:1/path", "ws://host:1?token=x"] {
            let error = connect(url).await.err().unwrap();
            assert_eq!(error.condition(), Condition::ArgumentError, "{url}");
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let error = connect(&format!("ws://{address}")).await.err().unwrap();
        assert_eq!(error.condition(), Condition::CommunicationProblem);
        let server = Server::start(60).await;
        let url = format!("ws://{}", server.address);
        let client = connect_with(&url, ClientOptions::default()).await.unwrap();
        let kept = client.sender("q").unwrap();
        client.close().await;
        let error = kept.send(Message::new("late")).await.unwrap_err();
        assert_eq!(error.condition(), Condition::CommunicationProblem);
        server.stop().await;
    });
}

/// SET-14, SET-18, SET-32, DEL-01: many locks in one request have a result each.
#[test]
fn many_locks_are_renewed_and_released_at_once() {
    on_both(async |server, client| {
        put(client, &["a", "b", "c"]).await;
        let receiver = client.receiver("q").unwrap();
        let held = receiver.receive_many(3, TimeSpan::ZERO).await.unwrap();
        let tokens: Vec<_> = held.iter().filter_map(Received::lock_token).collect();
        receiver.complete(&held[1]).await.unwrap();
        server.clock.advance(TimeSpan::from_seconds(40));
        let renewed = receiver.renew_many(&tokens).await;
        let is_ok: Vec<bool> = renewed.iter().map(Result::is_ok).collect();
        assert_eq!(is_ok, [true, false, true]);
        server.clock.advance(TimeSpan::from_seconds(40));
        let released = receiver.release_many(&tokens).await;
        let conditions: Vec<_> =
            released.iter().map(|result| result.as_ref().err().map(|e| e.condition())).collect();
        assert_eq!(conditions, [None, Some(Condition::MessageLockLost), None]);
        assert_eq!(server.delivery_counts().await, [(1, 0), (3, 0)]);
        assert_eq!(receiver.delete_most(held[0].enqueued_at()).await.unwrap(), 0);
        assert_eq!(receiver.delete_most(server.clock.now()).await.unwrap(), 2);
    });
}

/// ENT-17, ENT-30, CNT-13
#[test]
fn queues_are_listed_whole_and_changed_in_part() {
    on_both(async |_, client| {
        put(client, &["a"]).await;
        let admin = client.admin();
        let named = QueueUpdate { user_metadata: Some("ours".into()), ..QueueUpdate::default() };
        admin.change_queue("q", named, Cleared::default()).await.unwrap();
        let count = QueueUpdate { max_delivery_count: Some(3), ..QueueUpdate::default() };
        admin.change_queue("q", count, Cleared::default()).await.unwrap();
        let queues = admin.queues(0).await.unwrap();
        let [queue] = queues.as_slice() else { panic!("{queues:?}") };
        assert_eq!(queue.description.user_metadata.as_deref(), Some("ours"));
        assert_eq!(queue.description.max_delivery_count, 3);
        assert_eq!((queue.counts.active, queue.last_sequence.0), (1, 1));
        assert!(queue_to_json(queue).contains(r#""lastSequenceNumber":1"#));
        let cleared = Cleared { user_metadata: true, ..Cleared::default() };
        let queue = admin.change_queue("q", QueueUpdate::default(), cleared).await.unwrap();
        assert_eq!(queue.description.user_metadata, None);
        assert_eq!(queue.description.max_delivery_count, 3);
        assert!(admin.queues(1).await.unwrap().is_empty());
    });
}

/// MSG-11, MSG-20: the printed form of a received message reads as the same message.
#[test]
fn a_received_message_is_written_as_text_and_read_again() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let message = Message::new(&b"\xff\x00"[..])
            .with_message_id("order-1")
            .with_time_to_live(TimeSpan::from_minutes(5))
            .with_application_property("price", 1.5_f64)
            .with_application_property("table", 7_i32);
        client.sender("q").unwrap().send(message.clone()).await.unwrap();
        let receiver = client.receiver("q").unwrap();
        let peeked = receiver.peek_next(1).await.unwrap().remove(0);
        assert_eq!(peeked.own_time_to_live(), Some(TimeSpan::from_minutes(5)));
        let text = received_to_json(&peeked);
        assert!(text.contains(r#""sequenceNumber":1"#) && !text.contains('\n'), "{text}");
        assert_eq!(message_from_json(&text).unwrap(), message);
        assert_eq!(message_from_json(&message_to_json(&message)).unwrap(), message);
        let error = message_from_json(r#"{"bdy": "a"}"#).unwrap_err().to_string();
        assert!(error.contains("bdy"), "{error}");
        client.close().await;
        server.stop().await;
    });
}

/// RCV-14: a stopped receive returns the messages it has received, and leaves none locked.
#[test]
fn stopped_receive_returns_its_messages() {
    on_both(async |server, client| {
        let receiver = client.receiver("q").unwrap();
        let wait = TimeSpan::from_minutes(5);
        let stopped = receiver.receive_many_until(1, wait, std::future::ready(()));
        assert!(stopped.await.unwrap().is_empty());
        put(client, &["a"]).await;
        let got = receiver.receive_many_until(1, wait, std::future::ready(())).await.unwrap();
        assert_eq!(got.len() + server.available().await, 1);
    });
}

/// A message that exceeds every frame is refused by the client, and one that fills a frame gets its
/// own: the broker closes connections with larger frames.
#[test]
fn a_message_too_large_for_a_frame_leaves_the_connection_open() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let sized = |bytes: usize| Message::new(vec![b'x'; bytes]);
        let messages =
            vec![sized(200 << 10), sized(5 << 20), sized((4 << 20) - (10 << 10)), sized(1)];
        let results = client.sender("q").unwrap().send_many(messages).await;
        let conditions: Vec<_> =
            results.iter().map(|result| result.as_ref().err().map(|e| e.condition())).collect();
        let too_large = Some(Condition::MessageSizeExceeded);
        assert_eq!(conditions, [None, too_large, too_large, None]);
        client.close().await;
        server.stop().await;
    });
}

/// RCV-16: messages of a deep backlog have left the memory of the store. A frame of many such
/// messages is read from disk whole, and none of the messages ends the flow.
#[test]
fn a_frame_of_messages_that_are_on_disk_alone_reaches_a_consumer() {
    const COUNT: usize = 1_000;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("a-frame-on-disk");
    std::fs::remove_dir_all(&path).ok();
    run(async {
        let config = JournalConfig { cache_bytes: 0, ..JournalConfig::default() };
        let store = Journal::open(&path, config).unwrap();
        let server = Server::start_on(store, 60, Arc::new(AllowAll)).await;
        let client = server.client().await;
        let sender = client.sender("q").unwrap();
        let messages = vec![Message::new("x".repeat(100)); COUNT];
        for sent in sender.send_many(messages).await {
            sent.unwrap();
        }
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let concurrent_max = u32::try_from(COUNT).unwrap();
        let options = ConsumerOptions::at_once(concurrent_max).without_renewal();
        let consumer = client
            .consume(
                "q",
                move |message: Delivery| {
                    tell.send(message.body().len()).unwrap();
                    std::future::ready(Ok(()))
                },
                options,
            )
            .await
            .unwrap();
        for _ in 0..COUNT {
            let length = tokio::select! {
                length = told.recv() => length.unwrap(),
                why = consumer.ended() => panic!("the flow ended: {why:?}"),
            };
            assert_eq!(length, 100);
        }
        consumer.stop().await;
        assert_eq!(client.admin().queue("q").await.unwrap().counts.total(), 0);
        client.close().await;
        server.stop().await;
    });
    std::fs::remove_dir_all(&path).unwrap();
}

/// SES-07, SES-19, SES-20, SES-24: several sessions are processed concurrently, each in order; the
/// handler can read the state of its session.
#[test]
fn a_function_works_off_sessions() {
    on_both(async |_, client| {
        let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        client.admin().create_queue_with("steps", by_session).await.unwrap();
        let sender = client.sender("steps").unwrap();
        for (session, text) in [("x", "a"), ("y", "b"), ("x", "c"), ("y", "d")] {
            sender.send(Message::new(text).with_session_id(session)).await.unwrap();
        }
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let handler = move |delivery: SessionDelivery| {
            let tell = tell.clone();
            async move {
                let SessionDelivery { message, session, .. } = delivery;
                let text = String::from_utf8(message.body().to_vec()).unwrap();
                let before = session.state().await.unwrap().unwrap_or_default();
                session
                    .set_state(Some([&before[..], text.as_bytes()].concat().into()))
                    .await
                    .unwrap();
                tell.send((
                    session.session_id().to_owned(),
                    text,
                    before,
                    message.delivery_count(),
                ))
                .unwrap();
                if message.delivery_count() == 1 && &message.body()[..] == b"a" {
                    return Err(Refusal::Abandon { properties: Vec::new() });
                }
                Ok(())
            }
        };
        let options = SessionConsumerOptions::at_once(2);
        let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
        let mut all = Vec::new();
        while all.len() < 5 {
            all.push(told.recv().await.unwrap());
        }
        consumer.stop().await;
        let of = |id: &str| -> Vec<(String, String, u32)> {
            let mine = all.iter().filter(|(session, ..)| session == id);
            mine.map(|(_, text, before, count)| {
                (text.clone(), String::from_utf8(before.to_vec()).unwrap(), *count)
            })
            .collect()
        };
        let is = |rows: &[(&str, &str, u32)]| -> Vec<(String, String, u32)> {
            rows.iter().map(|(text, before, n)| ((*text).into(), (*before).into(), *n)).collect()
        };
        assert_eq!(of("x"), is(&[("a", "", 1), ("a", "a", 2), ("c", "aa", 1)]));
        assert_eq!(of("y"), is(&[("b", "", 1), ("d", "b", 1)]));
        assert_eq!(client.admin().queue("steps").await.unwrap().counts.total(), 0);
    });
}

/// An actor receives the same over a connection as in process.
#[test]
fn an_actor_receives_over_a_connection() {
    struct Counter(tokio::sync::mpsc::UnboundedSender<u32>);
    impl actix::Actor for Counter {
        type Context = actix::Context<Self>;
    }
    impl actix::Handler<Delivery> for Counter {
        type Result = Result<(), Refusal>;

        fn handle(&mut self, delivery: Delivery, _: &mut Self::Context) -> Self::Result {
            self.0.send(delivery.delivery_count()).unwrap();
            match delivery.delivery_count() {
                1 => Err(Refusal::Abandon { properties: Vec::new() }),
                _ => Ok(()),
            }
        }
    }
    actix::System::new().block_on(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let counter = actix::Actor::start(Counter(tell));
        let options = ConsumerOptions::at_once(1);
        let consumer = client.consume("q", counter.recipient(), options).await.unwrap();
        put(&client, &["a"]).await;
        assert_eq!((told.recv().await, told.recv().await), (Some(1), Some(2)));
        consumer.stop().await;
        assert_eq!(server.delivery_counts().await, []);
        client.close().await;
        server.stop().await;
    });
}

/// DEC-13: a declaration that exceeds every frame is refused with the limit and a remedy, and the
/// connection stays open.
#[test]
fn a_declaration_that_no_frame_holds_is_refused() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let large =
            QueueUpdate { user_metadata: Some("m".repeat(1_000).into()), ..QueueUpdate::default() };
        let queues =
            (0..5_000).map(|index| DeclaredQueue::new(format!("q{index}")).with(large.clone()));
        let declaration = Declaration { queues: queues.collect(), ..Declaration::default() };
        let refused = client.admin().plan(&declaration).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::MessageSizeExceeded);
        let detail = refused.detail();
        assert!(detail.contains("websocket.frame_bytes_max); split it"), "{detail}");
        assert!(client.admin().queue("q").await.is_ok());
        client.close().await;
        server.stop().await;
    });
}
