//! Tests of actors that are started on demand, and of the effect of panics.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use actix::{Actor, ActorContext as _, Arbiter, Context, Handler, Recipient, ResponseFuture};
use peeklock_client::{
    ConsumerOptions, Delivery, Job, JobType, Received, Refusal, SessionConsumerOptions,
    SessionDelivery, actors, actors_on, jobs,
};
use peeklock_client_testing::{Simulation, TestDelivery, World};
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::TimeSpan;
use tokio::sync::mpsc;

use crate::local::Local;
use crate::log::Log;

type Outcome = Result<(), Refusal>;

async fn client(properties: QueueUpdate) -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    client.admin().create_queue_with("orders", properties).await.unwrap();
    client
}

fn text(message: &Received) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}

/// Records its messages, and panics, stops or answers as the message demands.
struct Worker {
    seen: mpsc::UnboundedSender<(String, u32)>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Worker {
    fn work(&self, message: &Received, context: &mut Context<Self>) -> Outcome {
        let (text, count) = (text(message), message.delivery_count());
        self.seen.send((text.clone(), count)).unwrap();
        match (text.as_str(), count) {
            ("poison", _) | ("panic", 1) => panic!("as asked"),
            ("stop", _) => context.stop(),
            _ => {}
        }
        Ok(())
    }
}

impl Handler<Delivery> for Worker {
    type Result = Outcome;

    fn handle(&mut self, delivery: Delivery, context: &mut Self::Context) -> Outcome {
        self.work(&delivery, context)
    }
}

impl Handler<SessionDelivery> for Worker {
    type Result = Outcome;

    fn handle(&mut self, delivery: SessionDelivery, context: &mut Self::Context) -> Outcome {
        self.work(&delivery, context)
    }
}

/// SET-03, SET-35: a message that kills its actors ends as a dead letter and costs no other message
/// an attempt. The consumer continues.
#[actix::test]
async fn a_worker_survives_a_panic() {
    let two = QueueUpdate { max_delivery_count: Some(2), ..QueueUpdate::default() };
    let client = client(two).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let workers = actors(move || {
        counted.fetch_add(1, SeqCst);
        Worker { seen: seen.clone() }.start().recipient::<Delivery>()
    });
    let sender = client.sender("orders").unwrap();
    let orders = ["a", "poison", "b", "panic", "stop", "c", "d"];
    for order in orders {
        sender.send(Message::new(order)).await.unwrap();
    }
    let consumer = client.consume("orders", workers, ConsumerOptions::default()).await.unwrap();
    let mut all = BTreeSet::new();
    while all.len() < 9 {
        all.insert(arrivals.recv().await.unwrap());
    }
    let counts = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("panic", 1), ("panic", 2)];
    let counts = counts.into_iter().chain([("poison", 1), ("poison", 2), ("stop", 1)]);
    assert!(all.iter().map(|(text, count)| (text.as_str(), *count)).eq(counts), "{all:?}");
    sender.send(Message::new("e")).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(("e".to_owned(), 1)));
    consumer.stop().await;
    assert!(consumer.ended().await.is_none());
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.dead_letter), (0, 1));
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    let letter = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(letter.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
    let made = made.load(SeqCst);
    assert!((5..=10).contains(&made), "one for each at once, and for each that is gone: {made}");
    client.stop().await;
}

/// SES-19, SES-20: the same holds for sessions, each in order.
#[actix::test]
async fn a_worker_of_sessions_survives_a_panic() {
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    let client = client(sessions).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let workers =
        actors(move || Worker { seen: seen.clone() }.start().recipient::<SessionDelivery>());
    let sender = client.sender("orders").unwrap();
    for order in ["a", "panic", "b", "stop", "c"] {
        sender.send(Message::new(order).with_session_id("s")).await.unwrap();
    }
    let options = SessionConsumerOptions::default();
    let consumer = client.consume_sessions("orders", workers, options).await.unwrap();
    for (text, count) in [("a", 1), ("panic", 1), ("panic", 2), ("b", 1), ("stop", 1), ("c", 1)] {
        assert_eq!(arrivals.recv().await, Some((text.to_owned(), count)));
    }
    consumer.stop().await;
    assert!(consumer.ended().await.is_none());
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    client.stop().await;
}

/// Returns the reason of the end. The paused clock advances while all tasks are idle, so waits of a
/// second are not real.
async fn why_it_ended(consumer: &peeklock_client::Consumer) -> Condition {
    tokio::time::pause();
    let why = consumer.ended().await.unwrap();
    tokio::time::resume();
    assert!(why.detail().contains("actor"), "{why}");
    why.condition()
}

/// SES-31: an actor that stops while no messages arrive ends its consumer within a second.
#[actix::test]
async fn a_consumer_ends_with_its_actor_also_where_nothing_comes() {
    for is_by_session in [false, true] {
        let sessions =
            QueueUpdate { requires_session: Some(is_by_session), ..QueueUpdate::default() };
        let client = client(sessions).await;
        let (seen, _arrivals) = mpsc::unbounded_channel();
        let worker = Worker { seen }.start();
        let by_session = worker.clone().recipient::<SessionDelivery>();
        let alone = worker.clone().recipient::<Delivery>();
        let consumer = if is_by_session {
            let options = SessionConsumerOptions::default();
            client.consume_sessions("orders", by_session, options).await.unwrap()
        } else {
            client.consume("orders", alone, ConsumerOptions::default()).await.unwrap()
        };
        assert!(futures_util::poll!(std::pin::pin!(consumer.ended())).is_pending());
        worker.do_send(Stop);
        assert_eq!(why_it_ended(&consumer).await, Condition::OperationCancelled);
        client.stop().await;
    }
}

struct Stop;

impl actix::Message for Stop {
    type Result = ();
}

impl Handler<Stop> for Worker {
    type Result = ();

    fn handle(&mut self, _: Stop, context: &mut Self::Context) {
        context.stop();
    }
}

/// Actors of an arbiter serve a consumer in another runtime. The consumer ends with the arbiter.
#[test]
fn actors_of_an_arbiter_serve_another_runtime() {
    let system = actix::System::new();
    let arbiter = system.block_on(async { Arbiter::new() });
    let handle = arbiter.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(QueueUpdate::default()).await;
        let (seen, mut arrivals) = mpsc::unbounded_channel();
        let workers = actors_on(&handle, move || {
            Worker { seen: seen.clone() }.start().recipient::<Delivery>()
        });
        let consumer = client.consume("orders", workers, ConsumerOptions::default()).await.unwrap();
        client.sender("orders").unwrap().send(Message::new("panic")).await.unwrap();
        for count in [1, 2] {
            assert_eq!(arrivals.recv().await, Some(("panic".to_owned(), count)));
        }
        arbiter.stop();
        let why = consumer.ended().await.unwrap();
        assert_eq!(why.condition(), Condition::OperationCancelled);
        client.stop().await;
    });
    arbiter.join().unwrap();
}

/// Where no actor can be started, no consumer starts, and the error names the remedy: for messages,
/// jobs and sessions.
#[tokio::test]
async fn outside_of_an_actix_system_no_actor_consumes() {
    let client = client(QueueUpdate::default()).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = move || Worker { seen: seen.clone() }.start();
    let (of_messages, of_sessions) = (worker.clone(), worker);
    let refused = [
        client
            .consume(
                "orders",
                actors(move || of_messages().recipient::<Delivery>()),
                ConsumerOptions::default(),
            )
            .await,
        client
            .consume(
                "orders",
                jobs(actors(|| Barista.start().recipient::<Job<Order>>())),
                ConsumerOptions::default(),
            )
            .await,
        client
            .consume_sessions(
                "orders",
                actors(move || of_sessions().recipient::<SessionDelivery>()),
                SessionConsumerOptions::default(),
            )
            .await,
    ];
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!(refused.condition(), Condition::InvalidOperation);
        assert!(refused.to_string().contains("`actors_on`"), "{refused}");
    }
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    assert!(arrivals.recv().await.is_none(), "nobody is left to tell anything");
    client.stop().await;
}

/// A panic of the function that starts actors costs the message an attempt; the next attempt calls
/// the function again.
#[actix::test]
async fn a_panicking_actor_factory_is_called_again() {
    let client = client(QueueUpdate::default()).await;
    let (log, _guard) = Log::begin();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let mut attempts = 0;
    let workers = actors(move || -> Recipient<Delivery> {
        attempts += 1;
        assert!(attempts > 1, "not yet");
        Worker { seen: seen.clone() }.start().recipient()
    });
    client.sender("orders").unwrap().send(Message::new("a")).await.unwrap();
    let consumer = client.consume("orders", workers, ConsumerOptions::default()).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(("a".to_owned(), 2)));
    consumer.stop().await;
    assert!(log.line("there is no actor for a message").contains("WARN"));
    client.stop().await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    cups: u32,
}

impl JobType for Order {
    const NAME: &'static str = "order";
}

struct Barista;

impl Actor for Barista {
    type Context = Context<Self>;
}

impl Handler<Job<Order>> for Barista {
    type Result = ResponseFuture<Outcome>;

    fn handle(&mut self, order: Job<Order>, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert_ne!(order.value.cups, 0, "as asked");
            Ok(())
        })
    }
}

/// Actors take jobs, and can be tested without a broker.
#[actix::test]
async fn actors_take_jobs() {
    let baristas = jobs(actors(|| Barista.start().recipient::<Job<Order>>()));
    let stopped = Refusal::abandon().with_error("the actor stopped or panicked before it answered");
    for (cups, expected) in [
        (0, peeklock_client::port::Settlement::from(Err(stopped))),
        (2, peeklock_client::port::Settlement::Complete),
    ] {
        let order = TestDelivery::of(peeklock_client::job_message(&Order { cups }).unwrap());
        assert_eq!(order.given_to(&baristas).await, expected);
    }
}

/// Books orders in a simulated external system, one at a time.
struct Clerk {
    books: Arc<Mutex<BTreeSet<String>>>,
    world: World,
}

impl Actor for Clerk {
    type Context = Context<Self>;
}

impl Handler<Delivery> for Clerk {
    type Result = ResponseFuture<Outcome>;

    fn handle(&mut self, order: Delivery, _: &mut Self::Context) -> Self::Result {
        let (books, world) = (Arc::clone(&self.books), self.world.clone());
        Box::pin(async move {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            world.note(format!("books {}", text(&order)));
            assert!(order.delivery_count() > 1 || text(&order) != "order 2", "as asked");
            books.lock().unwrap().insert(text(&order));
            world.client().sender("receipts")?.send(Message::new(text(&order))).await?;
            Ok(())
        })
    }
}

/// SET-28, SET-31: in every simulated run a worker of actors processes all messages, despite all
/// mishaps.
#[test]
fn actors_are_simulated() {
    let passed = Simulation::new().seeds(0..30).run(|world| async move {
        let client = world.client();
        for queue in ["orders", "receipts"] {
            client.admin().create_queue(queue).await?;
        }
        let books = Arc::<Mutex<BTreeSet<String>>>::default();
        let (booked, of) = (Arc::clone(&books), world.clone());
        let clerks = actors(move || {
            Clerk { books: Arc::clone(&booked), world: of.clone() }.start().recipient::<Delivery>()
        });
        world.consume("orders", clerks, ConsumerOptions::default()).await?;
        for number in 1..=5 {
            client.sender("orders")?.send(Message::new(format!("order {number}"))).await?;
        }
        world.come_to_rest().await;
        let counts = client.admin().queue("orders").await?.counts;
        assert_eq!((counts.total(), books.lock().unwrap().len()), (0, 5));
        Ok::<(), Box<dyn Error>>(())
    });
    assert_eq!(passed.runs, 30);
    assert!(passed.mishaps.values().sum::<u64>() > 30, "{:?}", passed.mishaps);
}

/// RCV-16: an error that an actor converts to a refusal with `?` is logged with the queue, the
/// sequence number and the id of its message, like the error of a function.
#[actix::test]
async fn an_error_of_an_actor_is_logged_with_its_message() {
    struct Clerk;

    impl Actor for Clerk {
        type Context = Context<Self>;
    }

    impl Handler<Delivery> for Clerk {
        type Result = Outcome;

        fn handle(&mut self, _: Delivery, _: &mut Self::Context) -> Outcome {
            Err(std::io::Error::other("the drawer is stuck"))?
        }
    }

    let (log, _guard) = Log::begin();
    let client =
        client(QueueUpdate { max_delivery_count: Some(1), ..QueueUpdate::default() }).await;
    let clerks = actors(|| Clerk.start().recipient());
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", clerks, options).await.unwrap();
    let message = Message::new("a").with_message_id("order-7");
    client.sender("orders").unwrap().send(message).await.unwrap();
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    dead.receive(TimeSpan::from_seconds(20)).await.unwrap().unwrap();
    consumer.stop().await;
    let line = log.line("a handler returned its message unsettled");
    let told = ["the drawer is stuck", "path=\"orders\"", "sequence_number=1 ", "order-7"];
    assert!(told.iter().all(|part| line.contains(part)), "{line}");
    client.stop().await;
}
