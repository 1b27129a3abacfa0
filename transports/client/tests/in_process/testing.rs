//! Tests of the public test kit: deliveries made by hand, a broker with manual time, and its forks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use peeklock_client::port::Settlement;
use peeklock_client::{
    Client, ConsumerOptions, Delivery, Job, JobType, Refusal, SessionConsumerOptions,
    SessionDelivery, SessionJob, jobs,
};
use peeklock_client_testing::{TestBroker, TestClient, TestDelivery, TestSession};
use peeklock_core::Broker;
use peeklock_core::command::LAST_ERROR_PROPERTY;
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::path::dead_letter_path;
use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::{Fate, FaultStore};
use tokio::sync::Notify;

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    cups: u32,
}

impl JobType for Order {
    const NAME: &'static str = "order";
}

/// An actor that books orders and counts the sold cups.
#[derive(Default)]
struct Till {
    cups: u32,
}

impl Actor for Till {
    type Context = Context<Self>;
}

impl Handler<Job<Order>> for Till {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, order: Job<Order>, _: &mut Context<Self>) -> Self::Result {
        self.cups += order.value.cups;
        if self.cups > 9 { Err(Refusal::dead_letter("SoldOut", "no cup is left")) } else { Ok(()) }
    }
}

impl Handler<Delivery> for Till {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, _: Delivery, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async { Err(Refusal::Defer) })
    }
}

/// Jobs and messages can be given to an actor by hand, and the test sees the settlement.
#[actix_rt::test]
async fn an_actor_is_tested_without_a_broker() {
    let till = Till::default().start();
    let order = TestDelivery::of_job(&Order { cups: 6 }).unwrap();
    let book = jobs(till.clone().recipient::<Job<Order>>());
    assert_eq!(order.given_to(&book).await, Settlement::Complete);
    let Settlement::DeadLetter { reason, .. } = order.again().given_to(&book).await else {
        panic!("twelve cups are too many")
    };
    assert_eq!(reason.as_deref(), Some("SoldOut"));
    // As an actor message, with the raw outcome.
    let outcome = till.send(order.job::<Order>().unwrap()).await.unwrap();
    assert!(matches!(outcome, Err(Refusal::DeadLetter { .. })));
    let deferred = order.given_to(&till.recipient::<Delivery>()).await;
    assert_eq!(deferred, Settlement::Defer { properties: Vec::new() });
}

/// Sends a receipt and completes the order in one transaction; refuses large orders.
async fn receipt(client: Client, order: Job<Order>) -> Result<(), Refusal> {
    let transaction = order.transaction().await?;
    let receipts = client.sender("receipts")?;
    transaction.send(&receipts, Message::new(format!("{} cups", order.value.cups))).await?;
    if order.value.cups > 9 {
        return Err(Refusal::dead_letter("TooMany", "there is not so much coffee"));
    }
    transaction.commit().await?;
    Err(Refusal::already_settled())
}

/// TXN-01, TXN-04: the record of a test client contains the messages of a transaction only after
/// its commit, together with the settlement. This holds for actors, functions and jobs.
#[tokio::test]
async fn messages_of_a_handler_are_recorded_without_a_broker() {
    let test = TestClient::new();
    let client = test.client();
    let handler = jobs(move |order: Job<Order>| receipt(client.clone(), order));
    let small = TestDelivery::of_job(&Order { cups: 2 }).unwrap().with_client(&test);
    assert_eq!(small.given_to(&handler).await, Settlement::Complete);
    let large = TestDelivery::of_job(&Order { cups: 20 }).unwrap().with_client(&test);
    assert!(matches!(large.given_to(&handler).await, Settlement::DeadLetter { .. }));
    let sent = test.sent();
    assert_eq!((sent.len(), sent[0].to.as_str(), sent[0].in_transaction), (1, "receipts", true));
    assert_eq!(test.sent_to("Receipts")[0].body.as_bytes(), "2 cups");
    // The same holds in a session.
    let session = TestSession::new("s");
    assert_eq!(small.given_in(&session, &handler).await, Settlement::Complete);
    assert_eq!(test.sent().len(), 2);
    // Handlers can be tested with refused sends.
    test.refuse("receipts", Condition::QuotaExceeded);
    assert!(is_abandoned(&small.given_to(&handler).await, "QuotaExceeded"));
    test.accept("receipts");
    // The transaction belongs to the delivery's client; other clients cannot take part.
    let alone = TestDelivery::of_job(&Order { cups: 2 }).unwrap();
    assert!(is_abandoned(&alone.given_to(&handler).await, "TransactionUnknown"));
    let other = test.client().sender("receipts").unwrap();
    let transaction = alone.delivery().transaction().await.unwrap();
    let refused = transaction.send(&other, Message::new("a")).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::TransactionUnknown);
    assert!(refused.detail().contains("`TestDelivery::with_client`"), "{refused}");
    assert_eq!(test.sent().len(), 2);
}

/// Whether the message is abandoned with this error (SET-42).
fn is_abandoned(settlement: &Settlement, error: &str) -> bool {
    let Settlement::Abandon { properties, delay: None } = settlement else { return false };
    let [(key, Value::String(text))] = &properties[..] else { return false };
    key == LAST_ERROR_PROPERTY && text.contains(error)
}

/// SCH-05, TXN-10: sequence numbers are per path, lists and batches are recorded message by
/// message, a scheduled message can be cancelled once, and a message that a transaction sends to
/// another entity gets its number there.
#[tokio::test]
async fn a_client_without_a_broker_answers_as_one_does() {
    let test = TestClient::new();
    let client = test.client();
    let (a, b) = (client.sender("a").unwrap(), client.sender_via("b", "a").unwrap());
    let sent = a.send_many(vec![Message::new("1"), Message::new("2")]).await;
    assert!(sent.into_iter().map(Result::unwrap).eq([SequenceNumber(1), SequenceNumber(2)]));
    assert_eq!(b.send_batch(vec![Message::new("3")]).await.unwrap(), [SequenceNumber(1)]);
    assert_eq!(test.sent()[2].via.as_deref(), Some("a"));
    let due = client.now().plus(TimeSpan::from_days(1));
    let number = a.schedule(Message::new("later"), due).await.unwrap();
    assert_eq!(test.sent_to("a")[2].scheduled_enqueue_time, Some(due));
    a.cancel_scheduled(vec![number]).await.unwrap();
    assert_eq!(test.sent_to("a").len(), 2);
    for number in [number, SequenceNumber(1)] {
        let refused = a.cancel_scheduled(vec![number]).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::MessageNotFound);
    }
    let number = a.schedule(Message::new("later"), due).await.unwrap();
    let cancelling = client.begin_transaction().await.unwrap();
    cancelling.cancel_scheduled(&a, vec![number]).await.unwrap();
    assert_eq!(test.sent_to("a").len(), 3, "not before the commit");
    cancelling.commit().await.unwrap();
    assert_eq!(test.sent_to("a").len(), 2);
    let again = client.begin_transaction().await.unwrap();
    let refused = again.cancel_scheduled(&a, vec![number]).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::MessageNotFound);
    let number = a.schedule(Message::new("soon"), due).await.unwrap();
    again.cancel_scheduled(&a, vec![number]).await.unwrap();
    a.cancel_scheduled(vec![number]).await.unwrap();
    assert_eq!(again.commit().await.unwrap_err().condition(), Condition::MessageNotFound);
    let transaction = client.begin_cross_entity_transaction().await.unwrap();
    transaction.send(&a, Message::new("4")).await.unwrap();
    transaction.send(&client.sender("c").unwrap(), Message::new("5")).await.unwrap();
    let dropped = client.begin_transaction().await.unwrap();
    dropped.send(&a, Message::new("never")).await.unwrap();
    drop(dropped);
    assert_eq!(transaction.commit().await.unwrap().sequence_numbers(), [SequenceNumber(6)]);
    assert_eq!(test.sent_to("c").len(), 1);
    let nothing = client.receiver("a").unwrap().receive(TimeSpan::ZERO).await.unwrap();
    assert!(nothing.is_none());
    let refused = client.admin().queue("a").await.unwrap_err();
    assert_eq!(refused.condition(), Condition::NotImplemented);
}

/// SET-01, SET-13: a handler that awaits its settlement gets the result, and a second settlement is
/// refused. The first determines the result, regardless of the handler's outcome.
#[tokio::test]
async fn an_awaited_settlement_determines_the_result() {
    let handler = |order: Delivery| async move {
        order.refuse(Refusal::Defer).await?;
        let again = order.complete().await.unwrap_err();
        assert_eq!(again.condition(), Condition::MessageLockLost);
        assert!(order.transaction().await.is_err());
        Ok(())
    };
    let order = TestDelivery::of(Message::new("a"));
    let deferred = Settlement::Defer { properties: Vec::new() };
    assert_eq!(order.given_to(&handler).await, deferred);
    assert_eq!(order.again().given_to(&handler).await, deferred, "each delivery is one of its own");
    let session = TestSession::new("s");
    let handler = jobs(|order: SessionJob<Order>| async move {
        order.complete().await?;
        Err(Refusal::already_settled())
    });
    let order = TestDelivery::of_job(&Order { cups: 2 }).unwrap();
    assert_eq!(order.given_in(&session, &handler).await, Settlement::Complete);
    assert_eq!(order.job_in::<Order>(&session).unwrap().session.session_id(), "s");
}

/// A handler sees the properties of a delivery made by hand, and a panic abandons it as with a
/// consumer.
#[tokio::test]
async fn a_function_is_tested_without_a_broker() {
    let handler = |delivery: Delivery| async move {
        assert_eq!(delivery.dead_letter_reason(), Some("TTLExpiredException"));
        assert_eq!(delivery.sequence_number().0, 7);
        assert!(delivery.lock_token().is_some());
        match delivery.delivery_count() {
            1 => Err(Refusal::Abandon { properties: vec![("why".into(), Value::from("busy"))] }),
            2 => Err(Refusal::retry_after(TimeSpan::from_minutes(1))),
            3 => panic!("as asked"),
            _ => Ok(()),
        }
    };
    let first = TestDelivery::of(Message::new("late"))
        .with_sequence_number(7)
        .with_dead_letter_reason("TTLExpiredException", "it expired");
    let abandoned = |why: Option<&str>, delay| Settlement::Abandon {
        properties: why.map(|why| ("why".into(), Value::from(why))).into_iter().collect(),
        delay,
    };
    assert_eq!(first.given_to(&handler).await, abandoned(Some("busy"), None));
    let minute = Some(TimeSpan::from_minutes(1));
    assert_eq!(first.again().given_to(&handler).await, abandoned(None, minute));
    let third = first.with_delivery_count(3);
    let panicked = Refusal::abandon().with_error("the handler panicked: as asked");
    assert_eq!(third.given_to(&handler).await, Err(panicked).into());
    assert_eq!(third.again().given_to(&handler).await, Settlement::Complete);
}

/// A handler of sessions sees the given state, and the test sees its operations on the session.
#[tokio::test]
async fn a_handler_of_sessions_is_tested_without_a_broker() {
    let handler = |step: SessionDelivery| async move {
        assert_eq!(step.session.session_id(), "order-7");
        let before = step.session.state().await?.unwrap();
        step.session.set_state(Some([&before[..], b" paid"].concat().into())).await?;
        assert!(step.session.receive(TimeSpan::from_seconds(5)).await?.is_none());
        step.session.complete(&step.message).await?;
        Err(Refusal::AlreadySettled)
    };
    let order = TestSession::new("order-7").with_state("picked");
    let settled = TestDelivery::of(Message::new("pay")).given_in(&order, &handler).await;
    assert_eq!(settled, Settlement::Release);
    assert_eq!(order.state().unwrap(), "picked paid");
    let [(number, Settlement::Complete)] = order.settled()[..] else { panic!("completed once") };
    assert_eq!(number.0, 1);
}

async fn active(client: &Client, queue: &str) -> u64 {
    client.admin().queue(queue).await.unwrap().counts.active
}

/// Checks that a future does not complete while the broker answers many other requests.
async fn while_asked(client: &Client, queue: &str, mut never: Pin<&mut impl Future<Output = ()>>) {
    for _ in 0..1_000 {
        tokio::select! {
            biased;
            () = &mut never => panic!("it is idle too early"),
            _ = active(client, queue) => {}
        }
    }
}

/// The broker is not idle while an operation is in the store.
#[tokio::test]
async fn a_broker_is_idle_when_its_store_is_done() {
    let store = FaultStore::at_once(1, u64::MAX);
    let builder = Broker::builder().store(Arc::clone(&store) as _);
    let test = TestBroker::start_with(builder).await.unwrap();
    let client = test.client();
    for queue in ["orders", "other"] {
        client.admin().create_queue(queue).await.unwrap();
    }
    store.complete_at_once(false);
    let sender = client.sender("orders").unwrap();
    let sending = tokio::spawn(async move { sender.send(Message::new("two coffees")).await });
    while store.queued(Shard(0)) == 0 {
        tokio::task::yield_now().await;
    }
    let mut idle = std::pin::pin!(test.idle());
    while_asked(&client, "other", idle.as_mut()).await;
    store.complete_at_once(true);
    while store.complete_next(Shard(0), Fate::Store) {}
    idle.await;
    assert!(sending.await.unwrap().is_ok());
}

/// A broker is idle only after its handlers are done, with the messages that they sent, no matter
/// how long they take.
#[tokio::test]
async fn a_broker_is_idle_when_its_handlers_are_done() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    for queue in ["orders", "booked"] {
        client.admin().create_queue(queue).await.unwrap();
    }
    let (go_on, onward) = (Arc::new(Notify::new()), test.client());
    let wait = Arc::clone(&go_on);
    let handler = move |order: Delivery| {
        let (wait, onward) = (Arc::clone(&wait), onward.clone());
        async move {
            if order.body() == "slow" {
                wait.notified().await;
            }
            onward.sender("booked")?.send(order.message().clone()).await?;
            Ok(())
        }
    };
    let options = ConsumerOptions::at_once(2).with_prefetch(3);
    let _consumer = client.consume("orders", handler, options).await.unwrap();
    let sender = client.sender("orders").unwrap();
    for round in 1..=50 {
        let messages = (0..10).map(|number| Message::new(format!("{round}.{number}")));
        for sent in sender.send_many(messages.collect()).await {
            sent.unwrap();
        }
        test.idle().await;
        assert_eq!(
            (active(&client, "orders").await, active(&client, "booked").await),
            (0, round * 10)
        );
    }
    sender.send(Message::new("slow")).await.unwrap();
    {
        let mut idle = std::pin::pin!(test.idle());
        while_asked(&client, "orders", idle.as_mut()).await;
        go_on.notify_one();
        idle.await;
    }
    assert_eq!((active(&client, "orders").await, active(&client, "booked").await), (0, 501));
    test.stop().await.unwrap();
}

/// The same holds for forwarded and published messages, and for sessions.
#[tokio::test]
async fn a_broker_is_idle_when_its_transfers_and_sessions_are_done() {
    let test = TestBroker::start().await.unwrap();
    let (client, broker) = (test.client(), test.broker());
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    broker.create_queue("steps", sessions).await.unwrap();
    broker.create_topic("news", TopicUpdate::default()).await.unwrap();
    let to_steps =
        SubscriptionUpdate { forward_to: Some("steps".into()), ..SubscriptionUpdate::default() };
    broker.create_subscription("news", "all", to_steps, Vec::new()).await.unwrap();
    let done = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&done);
    let handler = move |step: SessionDelivery| {
        let counted = Arc::clone(&counted);
        async move {
            step.session.set_state(Some(step.body().clone())).await?;
            counted.fetch_add(1, SeqCst);
            Ok(())
        }
    };
    let options = SessionConsumerOptions::at_once(3);
    let _consumer = client.consume_sessions("steps", handler, options).await.unwrap();
    let sender = client.sender("news").unwrap();
    for round in 1..=30 {
        for session in ["a", "b", "c", "d"] {
            sender.send(Message::new("step").with_session_id(session)).await.unwrap();
        }
        test.idle().await;
        assert_eq!(done.load(SeqCst), round * 4);
        assert_eq!(active(&client, "steps").await, 0);
    }
}

/// Time advances only on demand: delays, schedules and locks then end, and the resulting work is
/// done.
#[tokio::test]
async fn time_advances_only_on_demand() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    let handler = |order: Delivery| async move {
        match order.delivery_count() {
            count if count <= 3 => Err(Refusal::retry_after(TimeSpan::from_days(1))),
            _ => Err(Refusal::dead_letter("TooOften", "as asked")),
        }
    };
    let _consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    let at = test.now().plus(TimeSpan::from_days(1));
    let later = Message::new("later").with_scheduled_enqueue_time(at);
    client.sender("orders").unwrap().send(later).await.unwrap();
    let dead = client.receiver(&dead_letter_path("orders")).unwrap();
    for day in 1..=4 {
        assert!(dead.receive(TimeSpan::ZERO).await.unwrap().is_none(), "day {day}");
        test.advance(TimeSpan::from_days(1)).await;
    }
    let first = dead.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(first.dead_letter_reason(), Some("TooOften"));
    assert!(dead.receive(TimeSpan::ZERO).await.unwrap().is_none());
    // Its lock expires.
    test.advance(TimeSpan::from_minutes(5)).await;
    assert!(dead.receive(TimeSpan::ZERO).await.unwrap().is_some());
}

/// A handler finishes its message before time advances, unless time is advanced immediately and its
/// lock expires.
#[tokio::test]
async fn no_time_passes_under_a_handler() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (began, wait) = (Arc::clone(&begun), Arc::clone(&go_on));
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let handler = move |order: Delivery| {
        let (began, wait) = (Arc::clone(&began), Arc::clone(&wait));
        counted.fetch_add(1, SeqCst);
        async move {
            began.notify_one();
            if order.delivery_count() == 1 {
                wait.notified().await;
            }
            Ok(())
        }
    };
    let _consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    let sender = client.sender("orders").unwrap();

    sender.send(Message::new("two coffees")).await.unwrap();
    begun.notified().await;
    {
        let mut advancing = std::pin::pin!(test.advance(TimeSpan::from_minutes(1)));
        let before = test.now();
        while_asked(&client, "orders", advancing.as_mut()).await;
        assert_eq!(test.now(), before);
        go_on.notify_one();
        advancing.await;
        assert_eq!(test.now(), before.plus(TimeSpan::from_minutes(1)));
    }
    assert_eq!((attempts.load(SeqCst), active(&client, "orders").await), (1, 0));

    sender.send(Message::new("one tea")).await.unwrap();
    begun.notified().await;
    test.advance_now(TimeSpan::from_minutes(1));
    begun.notified().await;
    go_on.notify_one();
    test.idle().await;
    assert_eq!((attempts.load(SeqCst), active(&client, "orders").await), (3, 0));
}

/// A store that is opened again continues at its last time.
#[tokio::test]
async fn a_restarted_broker_continues_at_its_time() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("started-again");
    std::fs::remove_dir_all(&folder).ok();
    let on_disk = || Broker::builder().data_dir(&folder).unwrap();
    let test = TestBroker::start_with(on_disk()).await.unwrap();
    test.client().admin().create_queue("orders").await.unwrap();
    test.advance(TimeSpan::from_days(30)).await;
    let at = test.now().plus(TimeSpan::from_days(1));
    let later = Message::new("later").with_scheduled_enqueue_time(at);
    test.client().sender("orders").unwrap().send(later).await.unwrap();
    let now = test.now();
    test.stop().await.unwrap();
    let test = TestBroker::start_at(on_disk(), now).await.unwrap();
    assert_eq!(active(&test.client(), "orders").await, 0);
    test.advance(TimeSpan::from_days(1)).await;
    assert_eq!((test.now(), active(&test.client(), "orders").await), (at, 1));
    test.stop().await.unwrap();
    std::fs::remove_dir_all(&folder).ok();
}

/// A fork has the existing data, and the two are independent: sends, receives and created entities
/// are not shared.
#[tokio::test]
async fn forks_go_their_own_way() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    client.admin().create_queue("orders").await.unwrap();
    client.admin().create_topic("news").await.unwrap();
    client.admin().create_subscription("news", "all").await.unwrap();
    let sender = client.sender("orders").unwrap();
    let messages = (0..10_000).map(|number| Message::new(format!("order {number}")));
    for sent in sender.send_many(messages.collect()).await {
        sent.unwrap();
    }
    test.advance(TimeSpan::from_minutes(3)).await;
    let fork = test.fork().await.unwrap();
    assert_eq!(fork.now(), test.now());
    let forked = fork.client();
    assert_eq!(active(&forked, "orders").await, 10_000);
    let receiver = forked.receiver("orders").unwrap();
    let first = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(first.body(), "order 0");
    receiver.complete(&first).await.unwrap();
    forked.admin().delete_subscription("news/Subscriptions/all").await.unwrap();
    sender.send(Message::new("of the first")).await.unwrap();
    test.advance(TimeSpan::from_minutes(1)).await;
    assert!(test.now() > fork.now());
    assert_eq!(active(&client, "orders").await, 10_001);
    assert_eq!(active(&forked, "orders").await, 9_999);
    assert!(client.admin().subscription("news/Subscriptions/all").await.is_ok());
    // A fork of a fork stays usable after the first broker is gone.
    drop(test);
    let third = fork.fork().await.unwrap();
    assert_eq!(active(&third.client(), "orders").await, 9_999);
    forked.admin().delete_queue("orders").await.unwrap();
    assert_eq!(active(&third.client(), "orders").await, 9_999);
}

/// A broker on disk cannot be forked, as the error states.
#[tokio::test]
async fn a_broker_on_disk_is_not_forked() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-forked");
    std::fs::remove_dir_all(&folder).ok();
    let broker = Broker::builder().data_dir(&folder).unwrap().start().await.unwrap();
    let refused = broker.fork().await.err().unwrap();
    assert_eq!(refused.to_string(), "the store `journal` cannot be forked");
    broker.stop(Duration::ZERO).await.unwrap();
    std::fs::remove_dir_all(&folder).ok();
}
