//! Consumers in process: functions and actors, what they take ahead, and what they survive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod local;

use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler, Supervised, Supervisor};
use peeklock_core::Broker;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::TimeSpan;
use peeklock_inproc::{ConsumerOptions, Delivery, Refusal};
use tokio::sync::{Semaphore, mpsc};

use local::Local;

async fn client() -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    client.admin().create_queue("orders").await.unwrap();
    client
}

async fn send(client: &Local, bodies: &[&str]) {
    let sender = client.sender("orders").unwrap();
    for body in bodies {
        sender.send(Message::new((*body).to_owned())).await.unwrap();
    }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.body().to_vec()).unwrap()
}

/// SET-01, SET-03, SET-05, SET-32, DEF-01: the outcome of a function settles, as that of an actor does, and a
/// panic abandons.
#[tokio::test]
async fn the_outcome_of_a_function_settles() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |delivery: Delivery| {
        let (body, count) = (text(&delivery), delivery.delivery_count());
        let is_again = delivery.message().application_property("why").is_some();
        seen.send((body.clone(), count)).unwrap();
        async move {
            let properties = vec![("why".to_owned(), Value::from("busy"))];
            match (body.as_str(), count) {
                ("abandon", 1) => Err(Refusal::Abandon { properties }),
                ("abandon", _) if !is_again => panic!("the property is not there"),
                ("defer", _) => Err(Refusal::Defer),
                ("panic", 1) => panic!("as asked"),
                ("dead-letter", _) => Err(Refusal::DeadLetter {
                    reason: "r".repeat(5_000),
                    description: "as asked".to_owned(),
                }),
                _ => Ok(()),
            }
        }
    };
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    send(&client, &["complete", "abandon", "defer", "panic", "dead-letter", "last"]).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "last") {
        order.push(arrivals.recv().await.unwrap());
    }
    consumer.stop().await;
    let expected = [
        ("complete", 1),
        ("abandon", 1),
        ("abandon", 2),
        ("defer", 1),
        ("panic", 1),
        ("panic", 2),
        ("dead-letter", 1),
        ("last", 1),
    ];
    assert!(order.iter().map(|(body, count)| (body.as_str(), *count)).eq(expected), "{order:?}");
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter), (0, 1, 1));
    let dead = client.receiver("orders/$DeadLetterQueue").unwrap();
    let letter = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(
        letter.dead_letter_reason().unwrap().len(),
        4_096,
        "cut to what is allowed (SET-11)"
    );
    client.stop().await;
}

/// RCV-16, RCV-19: beside the messages that the handler has, as many wait locked as the options say, and no more.
/// When the consumer is stopped, those go back uncounted (RCV-14).
#[tokio::test]
async fn what_is_taken_ahead_waits_locked_and_goes_back() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let handler = {
        let gate = Arc::clone(&gate);
        move |delivery: Delivery| {
            seen.send(text(&delivery)).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    };
    send(&client, &["a", "b", "c", "d"]).await;
    let options = ConsumerOptions::at_once(1).with_prefetch(2);
    let consumer = client.consume("orders", handler, options).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap(), "a");
    let receiver = client.receiver("orders").unwrap();
    let free = receiver.receive_many(9, TimeSpan::ZERO).await.unwrap();
    assert!(free.iter().map(|message| message.body()).eq(["d"]), "two are taken ahead");
    assert!(arrivals.try_recv().is_err(), "one at a time");
    gate.add_permits(1);
    assert_eq!(arrivals.recv().await.unwrap(), "b");
    let stopping = tokio::spawn(consumer.stop());
    // What waited is there again while the handler still has its own.
    let back = receiver.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    assert_eq!((back.body().as_ref(), back.delivery_count()), (&b"c"[..], 1));
    gate.add_permits(1);
    stopping.await.unwrap();
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!(counts.active, 2, "b is completed, c and d are locked");
    client.stop().await;
}

/// Stops itself with each message that says so; its supervisor starts it anew.
struct Restarted {
    seen: mpsc::UnboundedSender<(String, u32)>,
}

impl Actor for Restarted {
    type Context = Context<Self>;
}

impl Supervised for Restarted {}

impl Handler<Delivery> for Restarted {
    type Result = actix::ResponseActFuture<Self, Result<(), Refusal>>;

    fn handle(&mut self, delivery: Delivery, context: &mut Self::Context) -> Self::Result {
        let (body, count) = (text(&delivery), delivery.delivery_count());
        self.seen.send((body.clone(), count)).unwrap();
        if body == "stop" && count == 1 {
            context.stop();
        }
        Box::pin(actix::fut::wrap_future(async { Ok(()) }))
    }
}

/// SET-03: an actor that is started anew by its supervisor goes on; what it had then is abandoned.
#[actix::test]
async fn a_restart_of_a_supervised_actor_does_not_end_its_consumer() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let worker = Supervisor::start(move |_| Restarted { seen });
    let options = ConsumerOptions::at_once(1);
    let consumer = client.consume("orders", worker.recipient(), options).await.unwrap();
    send(&client, &["a", "stop", "b"]).await;
    let mut order = Vec::new();
    while order.last().is_none_or(|(body, _)| body != "b") {
        order.push(arrivals.recv().await.unwrap());
    }
    let expected = [("a", 1), ("stop", 1), ("stop", 2), ("b", 1)];
    assert!(order.iter().map(|(body, count)| (body.as_str(), *count)).eq(expected), "{order:?}");
    consumer.stop().await;
    assert_eq!(client.admin().queue("orders").await.unwrap().counts.total(), 0);
    client.stop().await;
}
