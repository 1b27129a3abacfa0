//! Tests of actors that receive by session: order, concurrency, and refusals.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Recipient, ResponseFuture};
use peeklock_client::{Client, Refusal, SessionConsumerOptions, SessionDelivery, SessionReceiver};
use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::{mpsc, oneshot};

/// A message that the actor received, and the channel for its answer.
struct Got {
    session: Arc<SessionReceiver>,
    text: String,
    count: u32,
    answer: oneshot::Sender<Result<(), Refusal>>,
}

impl Got {
    fn is(&self) -> (&str, &str, u32) {
        (self.session.session_id(), &self.text, self.count)
    }

    fn complete(self) {
        self.answer.send(Ok(())).unwrap();
    }

    fn refuse(self, refusal: Refusal) {
        self.answer.send(Err(refusal)).unwrap();
    }
}

/// Answers as the test demands, or panics if the message demands it.
struct Worker {
    got: mpsc::UnboundedSender<Got>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Handler<SessionDelivery> for Worker {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, delivery: SessionDelivery, _: &mut Self::Context) -> Self::Result {
        let SessionDelivery { message, session, .. } = delivery;
        let (answer, answered) = oneshot::channel();
        let text = String::from_utf8(message.body().to_vec()).unwrap();
        assert_ne!(text, "panic", "as asked");
        let got = Got { session, text, count: message.delivery_count(), answer };
        self.got.send(got).ok();
        Box::pin(async move { answered.await.unwrap() })
    }
}

struct World {
    broker: Broker,
    client: Client,
    clock: Arc<ManualClock>,
}

impl World {
    async fn open() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let broker = Broker::builder()
            .clock(Arc::clone(&clock) as Arc<_>)
            .arbiters(1)
            .start()
            .await
            .unwrap();
        let client = Client::new(&broker);
        let properties = QueueUpdate {
            requires_session: Some(true),
            max_delivery_count: Some(2),
            lock_duration: Some(TimeSpan::from_seconds(30)),
            ..QueueUpdate::default()
        };
        client.admin().create_queue_with("steps", properties).await.unwrap();
        Self { broker, client, clock }
    }

    async fn put(&self, session: &str, texts: &[&str]) {
        let sender = self.client.sender("steps").unwrap();
        for text in texts {
            let message = Message::new((*text).to_owned()).with_session_id(session);
            sender.send(message).await.unwrap();
        }
    }

    async fn locked(&self) -> u64 {
        self.client.admin().queue("steps").await.unwrap().sessions.unwrap().locked
    }

    async fn until_locked(&self, count: u64) {
        while self.locked().await != count {
            tokio::task::yield_now().await;
        }
    }

    async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

fn worker() -> (Recipient<SessionDelivery>, mpsc::UnboundedReceiver<Got>) {
    let (got, all) = mpsc::unbounded_channel();
    (Worker { got }.start().recipient(), all)
}

fn sessions(sessions_max: u32) -> SessionConsumerOptions {
    SessionConsumerOptions::at_once(sessions_max)
}

/// SES-07, SES-16, SES-19: up to the configured number of sessions at a time, with one message each
/// at the actor.
#[actix::test]
async fn sessions_are_worked_off_side_by_side_each_in_its_order() {
    let world = World::open().await;
    world.put("a", &["1", "2"]).await;
    world.put("b", &["3", "4"]).await;
    world.put("c", &["5"]).await;
    let (recipient, mut all) = worker();
    let consumer = world.client.consume_sessions("steps", recipient, sessions(2)).await.unwrap();
    let (first, second) = (all.recv().await.unwrap(), all.recv().await.unwrap());
    let (a, b) = if first.is().0 == "a" { (first, second) } else { (second, first) };
    assert_eq!((a.is(), b.is()), (("a", "1", 1), ("b", "3", 1)));
    assert_eq!(world.locked().await, 2);
    assert!(all.try_recv().is_err(), "a session has two messages with the actor");
    a.complete();
    let a = all.recv().await.unwrap();
    assert_eq!(a.is(), ("a", "2", 1));
    a.complete();
    let c = all.recv().await.unwrap();
    assert_eq!(c.is(), ("c", "5", 1));
    c.complete();
    b.complete();
    let b = all.recv().await.unwrap();
    assert_eq!(b.is(), ("b", "4", 1));
    b.complete();
    world.until_locked(0).await;
    // The consumer continues with new messages.
    world.put("a", &["6"]).await;
    let a = all.recv().await.unwrap();
    assert_eq!(a.is(), ("a", "6", 1));
    a.complete();
    consumer.stop().await;
    assert_eq!(world.client.admin().queue("steps").await.unwrap().counts.total(), 0);
    world.stop().await;
}

/// SES-20, SES-22, SET-03, SET-05, SET-35: a refused message is delivered again before later ones,
/// up to the maximum number of attempts.
#[actix::test]
async fn a_refused_message_comes_again_before_those_behind_it() {
    let world = World::open().await;
    world.put("a", &["1", "2", "3"]).await;
    let (recipient, mut all) = worker();
    let consumer = world.client.consume_sessions("steps", recipient, sessions(1)).await.unwrap();
    for count in [1, 2] {
        let got = all.recv().await.unwrap();
        assert_eq!(got.is(), ("a", "1", count));
        got.refuse(Refusal::Abandon { properties: Vec::new() });
    }
    let got = all.recv().await.unwrap();
    assert_eq!(got.is(), ("a", "2", 1));
    got.refuse(Refusal::DeadLetter { reason: "bad".into(), description: "no".into() });
    let got = all.recv().await.unwrap();
    got.session.set_state(Some("half way".into())).await.unwrap();
    got.refuse(Refusal::Defer);
    world.until_locked(0).await;
    let counts = world.client.admin().queue("steps").await.unwrap().counts;
    assert_eq!((counts.active, counts.deferred, counts.dead_letter), (0, 1, 2));
    consumer.stop().await;
    world.stop().await;
}

/// SES-15, SES-30: a session lock that expires during handling is lost; the message is delivered
/// again.
#[actix::test]
async fn an_expired_session_lock_costs_only_the_delivery() {
    let world = World::open().await;
    world.put("a", &["1"]).await;
    let (recipient, mut all) = worker();
    let consumer = world.client.consume_sessions("steps", recipient, sessions(1)).await.unwrap();
    let got = all.recv().await.unwrap();
    world.clock.advance(TimeSpan::from_seconds(31));
    assert_eq!(world.locked().await, 0);
    got.complete();
    let got = all.recv().await.unwrap();
    assert_eq!(got.is(), ("a", "1", 2));
    got.complete();
    world.until_locked(0).await;
    assert_eq!(world.client.admin().queue("steps").await.unwrap().counts.total(), 0);
    consumer.stop().await;
    world.stop().await;
}

/// SES-31: a stopping consumer lets the actor finish its message, and gives the rest back
/// uncounted.
#[actix::test]
async fn a_stopped_consumer_finishes_its_actors_message() {
    let world = World::open().await;
    world.put("a", &["1", "2"]).await;
    let (recipient, mut all) = worker();
    let consumer = world.client.consume_sessions("steps", recipient, sessions(3)).await.unwrap();
    let got = all.recv().await.unwrap();
    let stopping = actix::spawn(async move { consumer.stop().await });
    got.complete();
    stopping.await.unwrap();
    assert_eq!(world.locked().await, 0);
    let holder = world.client.accept_session("steps", "a").await.unwrap();
    let rest = holder.receive_many(9, TimeSpan::ZERO).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!((rest[0].body().as_ref(), rest[0].delivery_count()), (&b"2"[..], 1));
    world.stop().await;
}

/// SES-09, ENT-14, ENT-24: a permanent error prevents the start, as with `consume`. A consumer ends
/// by itself when its queue is gone.
#[actix::test]
async fn a_consumer_begins_and_ends_with_its_queue() {
    let world = World::open().await;
    let (recipient, _all) = worker();
    let admin = world.client.admin();
    admin.create_queue("plain").await.unwrap();
    let disabled = QueueUpdate {
        requires_session: Some(true),
        status: Some(EntityStatus::Disabled),
        ..QueueUpdate::default()
    };
    admin.create_queue_with("disabled", disabled).await.unwrap();
    let refused = [
        ("absent", Condition::EntityNotFound),
        ("plain", Condition::InvalidOperation),
        ("disabled", Condition::EntityDisabled),
    ];
    for (queue, condition) in refused {
        let begun = world.client.consume_sessions(queue, recipient.clone(), sessions(2)).await;
        assert_eq!(begun.unwrap_err().condition(), condition, "{queue}");
    }
    let consumer = world.client.consume_sessions("steps", recipient, sessions(2)).await.unwrap();
    admin.delete_queue("steps").await.unwrap();
    assert_eq!(consumer.ended().await.unwrap().condition(), Condition::EntityNotFound);
    world.stop().await;
}

/// SES-31, SET-03: a consumer ends with the reason when its actor is gone. The session is given
/// back, and the message of an actor that panicked counts as failed.
#[actix::test]
async fn a_consumer_ends_with_its_actor() {
    let world = World::open().await;
    world.put("a", &["panic", "2"]).await;
    let (recipient, _all) = worker();
    let consumer = world.client.consume_sessions("steps", recipient, sessions(2)).await.unwrap();
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::OperationCancelled);
    assert!(why.detail().contains("actor"), "{why}");
    world.until_locked(0).await;
    let holder = world.client.accept_session("steps", "a").await.unwrap();
    let rest = holder.receive_many(9, TimeSpan::ZERO).await.unwrap();
    let counts: Vec<_> = rest.iter().map(|message| message.delivery_count()).collect();
    assert_eq!(counts, [2, 1]);
    world.stop().await;
}
