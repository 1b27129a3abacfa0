//! Consumers behave over a connection as they do in process: restarts, prefetch, renewals and logs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use actix::{Actor, ActorContext as _, Context, Handler, Supervised, Supervisor};
use peeklock_core::condition::Condition;
use peeklock_core::contract::AllowAll;
use peeklock_core::declaration::{Declaration, DeclaredQueue};
use peeklock_core::description::{QueueProperties, QueueUpdate};
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::{Fate, FaultStore};
use peeklock_websocket::client::{
    Client, ClientOptions, ConsumerOptions, Delivery, Received, Refusal, SessionConsumerOptions,
    SessionDelivery, actors,
};
use tokio::sync::{Notify, Semaphore, mpsc};

use super::log::Log;
use super::proxy::Proxy;
use super::server::{Server, run};

type Outcome = Result<(), Refusal>;
/// Body and delivery count of each message that a handler has received.
type Seen = mpsc::UnboundedSender<(String, u32)>;

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

async fn put(client: &Client, texts: &[&str]) {
    let sender = client.sender("q").unwrap();
    for text in texts {
        sender.send(Message::new((*text).to_owned())).await.unwrap();
    }
}

/// Creates a queue with sessions.
async fn steps(client: &Client) {
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("steps", sessions).await.unwrap();
}

/// Runs a test body in an actix system.
fn run_with_actors(body: impl Future<Output = ()>) {
    actix::System::new().block_on(body);
}

/// Stops or panics on the first delivery of a message whose text says so.
struct Worker {
    seen: Seen,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Supervised for Worker {}

impl Worker {
    fn work(
        &self,
        message: &Received,
        context: &mut Context<Self>,
    ) -> actix::ResponseActFuture<Self, Outcome> {
        let (text, count) = (text(message), message.delivery_count());
        self.seen.send((text.clone(), count)).unwrap();
        match (text.as_str(), count) {
            ("stop", 1) => context.stop(),
            ("panic", 1) => panic!("as asked"),
            _ => {}
        }
        Box::pin(actix::fut::wrap_future(async { Ok(()) }))
    }
}

impl Handler<Delivery> for Worker {
    type Result = actix::ResponseActFuture<Self, Outcome>;

    fn handle(&mut self, delivery: Delivery, context: &mut Self::Context) -> Self::Result {
        self.work(&delivery, context)
    }
}

impl Handler<SessionDelivery> for Worker {
    type Result = actix::ResponseActFuture<Self, Outcome>;

    fn handle(&mut self, step: SessionDelivery, context: &mut Self::Context) -> Self::Result {
        self.work(&step, context)
    }
}

/// SET-03: an actor that its supervisor restarts keeps its consumer.
#[test]
fn a_restart_of_a_supervised_actor_does_not_end_its_consumer() {
    run_with_actors(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let worker = Supervisor::start(move |_| Worker { seen });
        let options = ConsumerOptions::at_once(1);
        let consumer = client.consume("q", worker.recipient(), options).await.unwrap();
        put(&client, &["a", "stop", "b"]).await;
        for (text, count) in [("a", 1), ("stop", 1), ("stop", 2), ("b", 1)] {
            assert_eq!(arrivals.recv().await, Some((text.to_owned(), count)));
        }
        consumer.stop().await;
        assert_eq!(server.delivery_counts().await, []);
        client.close().await;
        server.stop().await;
    });
}

/// SET-03, SES-20: actors that are recreated survive a panic, for messages and for sessions.
#[test]
fn a_worker_survives_a_panic() {
    run_with_actors(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        steps(&client).await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let again = seen.clone();
        let workers = actors(move || Worker { seen: seen.clone() }.start().recipient::<Delivery>());
        let options = ConsumerOptions::at_once(1);
        let consumer = client.consume("q", workers, options).await.unwrap();
        put(&client, &["a", "panic", "b"]).await;
        let expected = [("a", 1), ("panic", 1), ("panic", 2), ("b", 1)];
        for (text, count) in expected {
            assert_eq!(arrivals.recv().await, Some((text.to_owned(), count)));
        }
        consumer.stop().await;
        let workers =
            actors(move || Worker { seen: again.clone() }.start().recipient::<SessionDelivery>());
        let options = SessionConsumerOptions::default();
        let consumer = client.consume_sessions("steps", workers, options).await.unwrap();
        for text in ["a", "panic", "b"] {
            let step = Message::new(text).with_session_id("s");
            client.sender("steps").unwrap().send(step).await.unwrap();
        }
        for (text, count) in expected {
            assert_eq!(arrivals.recv().await, Some((text.to_owned(), count)));
        }
        consumer.stop().await;
        assert_eq!(client.admin().queue("steps").await.unwrap().counts.total(), 0);
        client.close().await;
        server.stop().await;
    });
}

/// SET-28: after the maximum time a lock is no longer renewed; a warning is logged, and the message
/// is delivered again.
#[test]
fn a_lock_is_not_renewed_for_ever() {
    run(async {
        let (log, _guard) = Log::begin();
        let server = Server::start(2).await;
        let client = server.client().await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let gate = Arc::new(Notify::new());
        let handler = {
            let gate = Arc::clone(&gate);
            move |order: Delivery| {
                seen.send(order.delivery_count()).unwrap();
                let gate = Arc::clone(&gate);
                async move {
                    if order.delivery_count() == 1 {
                        gate.notified().await;
                    }
                    Ok(())
                }
            }
        };
        let options = ConsumerOptions::default().with_renewal_max(TimeSpan::from_ms(1_500));
        let consumer = client.consume("q", handler, options).await.unwrap();
        put(&client, &["a"]).await;
        assert_eq!(arrivals.recv().await, Some(1));
        // It is renewed after the first second, but not after the second one.
        let line = loop {
            if let Some(line) = log.line("a lock is no longer renewed") {
                break line;
            }
            tokio::task::yield_now().await;
        };
        assert!(line.contains("path=\"q\"") && line.contains("sequence_number=1"), "{line}");
        server.clock.advance(TimeSpan::from_seconds(3));
        assert_eq!(server.delivery_counts().await, [(1, 1)]);
        assert_eq!(arrivals.recv().await, Some(2));
        gate.notify_one();
        consumer.stop().await;
        let line = log.line("a settlement was refused").unwrap();
        assert!(line.contains("WARN") && line.contains("MessageLockLost"), "{line}");
        client.close().await;
        server.stop().await;
    });
}

/// SET-31: a link that the entity closed because of a failure is reattached. Unsettled messages are
/// delivered again without an increased count.
#[test]
fn a_consumer_goes_on_when_its_entity_is_rebuilt() {
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        let server = Server::start_on(Arc::clone(&store) as _, 60, Arc::new(AllowAll)).await;
        let client = server.client().await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let opened = Arc::clone(&gate);
        let handler = move |order: Delivery| {
            seen.send((text(&order), order.delivery_count())).unwrap();
            let gate = Arc::clone(&opened);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        };
        let consumer = client.consume("q", handler, ConsumerOptions::at_once(2)).await.unwrap();
        put(&client, &["a"]).await;
        assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 1)));
        store.complete_at_once(false);
        let failing = async {
            while !store.complete_next(Shard(0), Fate::Fail) {
                tokio::task::yield_now().await;
            }
            store.complete_at_once(true);
            while store.complete_next(Shard(0), Fate::Store) {}
        };
        let sender = client.sender("q").unwrap();
        let (lost, ()) = tokio::join!(sender.send(Message::new("lost")), failing);
        assert_eq!(lost.unwrap_err().condition(), Condition::InternalError);
        assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 1)), "it is with two handlers");
        gate.add_permits(2);
        put(&client, &["b"]).await;
        assert_eq!(arrivals.recv().await, Some(("b".to_owned(), 1)));
        gate.add_permits(1);
        consumer.stop().await;
        assert!(consumer.ended().await.is_none(), "it was stopped");
        assert_eq!(server.delivery_counts().await, []);
        client.close().await;
        server.stop().await;
    });
}

/// RTY-02, SET-03: a refused settlement is logged as a warning with its reason, and the message is
/// abandoned.
#[test]
fn a_refused_settlement_is_logged_and_the_message_abandoned() {
    run(async {
        let (log, _guard) = Log::begin();
        let server = Server::start(60).await;
        let client = server.client().await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let handler = move |order: Delivery| {
            seen.send(order.delivery_count()).unwrap();
            std::future::ready(match order.delivery_count() {
                1 => Err(Refusal::retry_after(TimeSpan::from_days(8))),
                _ => Ok(()),
            })
        };
        let consumer = client.consume("q", handler, ConsumerOptions::default()).await.unwrap();
        put(&client, &["a"]).await;
        assert_eq!((arrivals.recv().await, arrivals.recv().await), (Some(1), Some(2)));
        consumer.stop().await;
        let line = log.line("a settlement was refused").unwrap();
        let expected = ["WARN", "condition=ArgumentOutOfRange", "path=\"q\"", "sequence_number=1"];
        assert!(expected.iter().all(|part| line.contains(part)), "{line}");
        assert_eq!(server.delivery_counts().await, []);
        client.close().await;
        server.stop().await;
    });
}

/// DLQ-01, DLQ-14: dead letters are consumed with their reason.
#[test]
fn dead_letters_are_consumed() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let bad = |_: Delivery| std::future::ready(Err(Refusal::dead_letter("Bad", "as asked")));
        let consumer = client.consume("q", bad, ConsumerOptions::default()).await.unwrap();
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let handler = move |letter: Delivery| {
            seen.send((text(&letter), letter.dead_letter_reason().map(str::to_owned))).unwrap();
            std::future::ready(Ok(()))
        };
        let path = dead_letter_path("q");
        let letters = client.consume(&path, handler, ConsumerOptions::default()).await.unwrap();
        put(&client, &["a"]).await;
        assert_eq!(arrivals.recv().await, Some(("a".to_owned(), Some("Bad".to_owned()))));
        letters.stop().await;
        consumer.stop().await;
        assert_eq!(client.admin().queue("q").await.unwrap().counts.total(), 0);
        client.close().await;
        server.stop().await;
    });
}

/// RCV-16, RCV-14: the configured number of prefetched messages is locked in addition to those in
/// handlers; they go back without an increased count.
#[test]
fn prefetched_messages_are_locked_and_go_back() {
    run(async {
        let server = Server::start(60).await;
        let client = server.client().await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            move |order: Delivery| {
                seen.send(text(&order)).unwrap();
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                }
            }
        };
        put(&client, &["a", "b", "c", "d"]).await;
        let options = ConsumerOptions::at_once(1).with_prefetch(2);
        let consumer = client.consume("q", handler, options).await.unwrap();
        assert_eq!(arrivals.recv().await.unwrap(), "a");
        let receiver = client.receiver("q").unwrap();
        let free = receiver.receive_many(9, TimeSpan::ZERO).await.unwrap();
        assert!(free.iter().map(|message| message.body()).eq(["d"]), "two are taken ahead");
        assert!(arrivals.try_recv().is_err(), "one at a time");
        let stopping = tokio::spawn(async move { consumer.stop().await });
        for text in ["b", "c"] {
            let back = receiver.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
            assert_eq!((back.body(), back.delivery_count()), (&bytes::Bytes::from(text), 1));
        }
        gate.add_permits(1);
        stopping.await.unwrap();
        assert_eq!(client.admin().queue("q").await.unwrap().counts.active, 3, "a is completed");
        client.close().await;
        server.stop().await;
    });
}

const SESSIONS: u32 = 6;
const STEPS: u32 = 20;

/// SES-19, SET-21: after any cuts of connections, the steps of each session are processed in order,
/// and none is left.
#[test]
fn sessions_go_on_over_lost_connections() {
    for seed in 0..3 {
        run(async {
            let server = Server::start(60).await;
            let direct = server.client().await;
            steps(&direct).await;
            let proxy = Proxy::start(server.address, seed, 40).await;
            let client = Server::quick_client(proxy.address, ClientOptions::default()).await;
            let done = Arc::new((Mutex::new(BTreeMap::<String, Vec<u32>>::new()), Notify::new()));
            let handler = {
                let done = Arc::clone(&done);
                move |step: SessionDelivery| {
                    let number = text(&step).parse().unwrap();
                    let mut all = done.0.lock().unwrap();
                    all.entry(step.session.session_id().to_owned()).or_default().push(number);
                    if all.values().map(Vec::len).sum::<usize>() >= (SESSIONS * STEPS) as usize {
                        done.1.notify_one();
                    }
                    std::future::ready(Ok(()))
                }
            };
            let options = SessionConsumerOptions::at_once(3);
            let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
            let sender = direct.sender("steps").unwrap();
            for number in 0..STEPS {
                for session in 0..SESSIONS {
                    let step = Message::new(number.to_string());
                    sender.send(step.with_session_id(session.to_string())).await.unwrap();
                }
            }
            done.1.notified().await;
            consumer.stop().await;
            let all = done.0.lock().unwrap().clone();
            assert_eq!(all.len(), SESSIONS as usize);
            let every: Vec<u32> = (0..STEPS).collect();
            assert!(all.values().all(|steps| *steps == every), "seed {seed}: {all:?}");
            assert_eq!(direct.admin().queue("steps").await.unwrap().counts.total(), 0);
            assert!(proxy.cuts.load(Ordering::Relaxed) > 3, "seed {seed}: nothing was cut");
            client.close().await;
            direct.close().await;
            server.stop().await;
        });
    }
}

/// SES-15, SET-27: after a restart of the broker sessions are accepted again, and the step in hand
/// is delivered again.
#[test]
fn sessions_go_on_over_a_restart() {
    run(async {
        let server = Server::start(60).await;
        let client = Server::quick_client(server.address, ClientOptions::default()).await;
        steps(&client).await;
        let sender = client.sender("steps").unwrap();
        for text in ["a", "b"] {
            sender.send(Message::new(text).with_session_id("s")).await.unwrap();
        }
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            move |step: SessionDelivery| {
                seen.send(text(&step)).unwrap();
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                }
            }
        };
        let options = SessionConsumerOptions::at_once(1);
        let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
        assert_eq!(arrivals.recv().await.unwrap(), "a");
        let server = server.restart().await;
        // The settlement of the handler is refused, and the message is delivered again.
        gate.add_permits(3);
        assert_eq!(arrivals.recv().await.unwrap(), "a");
        assert_eq!(arrivals.recv().await.unwrap(), "b");
        while client.admin().queue("steps").await.unwrap().counts.total() > 0 {
            tokio::task::yield_now().await;
        }
        consumer.stop().await;
        assert!(consumer.ended().await.is_none());
        client.close().await;
        server.stop().await;
    });
}

/// Returns a client over a connection and one in process.
async fn both(server: &Server) -> [Client; 2] {
    [server.client().await, Client::new(&server.broker)]
}

/// TXN-01, TXN-04, TXN-09: the messages that a handler sends and the completion of its message take
/// effect together or not at all. This holds for functions, jobs and sessions, over a connection
/// and in process.
#[test]
fn a_delivery_has_a_transaction() {
    run(async {
        let server = Server::start(60).await;
        for client in both(&server).await {
            let admin = client.admin();
            let sessions = QueueProperties::new().with_sessions();
            admin.declare(DeclaredQueue::new("receipts")).await.unwrap();
            admin.declare(DeclaredQueue::new("steps").with(sessions)).await.unwrap();
            let receipts = client.sender("receipts").unwrap();
            let (seen, mut arrivals) = mpsc::unbounded_channel();
            let by_session = (receipts.clone(), seen.clone());
            let handler = move |order: Delivery| {
                let (receipts, seen) = (receipts.clone(), seen.clone());
                async move {
                    let transaction = order.transaction().await?;
                    transaction.send(&receipts, Message::new(order.body().clone())).await?;
                    seen.send(order.delivery_count()).unwrap();
                    if order.delivery_count() == 1 {
                        return Err(std::io::Error::other("as asked").into());
                    }
                    transaction.commit().await?;
                    Err(Refusal::already_settled())
                }
            };
            let consumer = client.consume("q", handler, ConsumerOptions::default()).await.unwrap();
            put(&client, &["a"]).await;
            assert_eq!((arrivals.recv().await, arrivals.recv().await), (Some(1), Some(2)));
            consumer.stop().await;
            let handler = move |step: SessionDelivery| {
                let (receipts, seen) = by_session.clone();
                async move {
                    let transaction = step.transaction().await?;
                    transaction.send(&receipts, Message::new(step.body().clone())).await?;
                    transaction.commit().await?;
                    seen.send(step.delivery_count()).unwrap();
                    Err(Refusal::already_settled())
                }
            };
            let options = SessionConsumerOptions::default();
            let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
            let step = Message::new("b").with_session_id("s");
            client.sender("steps").unwrap().send(step).await.unwrap();
            assert_eq!(arrivals.recv().await, Some(1));
            consumer.stop().await;
            for queue in ["q", "steps"] {
                assert_eq!(admin.queue(queue).await.unwrap().counts.total(), 0);
            }
            let receipts = client.receiver("receipts").unwrap();
            let mut got = Vec::new();
            while got.len() < 2 {
                // Transfers take a moment.
                got.extend(receipts.receive_many(9, TimeSpan::from_seconds(9)).await.unwrap());
            }
            let texts: Vec<String> = got.iter().map(text).collect();
            assert_eq!(texts, ["a", "b"]);
            for message in &got {
                receipts.complete(message).await.unwrap();
            }
            for queue in ["receipts", "steps"] {
                admin.delete_queue(queue).await.unwrap();
            }
            client.close().await;
        }
        server.stop().await;
    });
}

/// DEC-01, DEC-10: one call carries out a declaration, even with more steps than a broker does at
/// once.
#[test]
fn a_declaration_is_carried_out_by_one_call() {
    run(async {
        let server = Server::start(60).await;
        for client in both(&server).await {
            let admin = client.admin();
            let named = |number: u32| DeclaredQueue::new(format!("queue-{number}"));
            let many = (0..250).map(named).fold(Declaration::new(), Declaration::with_queue);
            assert_eq!(admin.declare(&many).await.unwrap().steps.len(), 250);
            assert!(admin.declare(&many).await.unwrap().is_empty());
            let five = QueueProperties::new().with_max_delivery_count(5);
            let plan = admin.declare(named(7).with(five)).await.unwrap();
            assert_eq!(plan.steps[0].to_string(), "update queue `queue-7`");
            let queue = admin.queue("queue-7").await.unwrap();
            assert_eq!(queue.description.max_delivery_count, 5);
            let sessions = QueueProperties::new().with_sessions();
            let error = admin.declare(named(7).with(sessions)).await.unwrap_err();
            assert!(error.detail().contains("requires_session"), "{error}");
            for number in 0..250 {
                admin.delete_queue(&format!("queue-{number}")).await.unwrap();
            }
            client.close().await;
        }
        server.stop().await;
    });
}
