//! An order service as somebody writes it who knows actix, from the guide alone: duplicate detection, jobs, a filter with an
//! action, sessions with state, a transaction, a reminder, an actor for dead letters, and a restart over the journal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use peeklock::declaration::{Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic};
use peeklock::description::{QueueProperties, SubscriptionProperties};
use peeklock::message::{Message, Value};
use peeklock::path::{dead_letter_path, subscription_path};
use peeklock::rule::Filter;
use peeklock::testing::TestBroker;
use peeklock::time::TimeSpan;
use peeklock::{
    Broker, Client, Consumer, ConsumerOptions, Delivery, Job, JobType, Refusal,
    SessionConsumerOptions, SessionDelivery, actors, job_message, jobs,
};

type Outcome = Result<(), Refusal>;

#[derive(serde::Serialize, serde::Deserialize)]
struct PlaceOrder {
    number: u32,
    customer: String,
    region: String,
    cups: u32,
}

impl JobType for PlaceOrder {
    const NAME: &'static str = "place-order";
}

/// What the service tells the world.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn say(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn since(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.0.lock().unwrap());
        told.sort();
        told
    }
}

/// Takes orders: each is published, and has a reminder of its bill, or nothing of it happens.
struct Clerk(Client);

impl Actor for Clerk {
    type Context = Context<Self>;
}

impl Handler<Job<PlaceOrder>> for Clerk {
    type Result = ResponseFuture<Outcome>;

    fn handle(&mut self, job: Job<PlaceOrder>, _: &mut Self::Context) -> Self::Result {
        let client = self.0.clone();
        Box::pin(async move {
            let PlaceOrder { number, customer, region, cups } = &job.value;
            if *cups == 0 {
                return Err(Refusal::dead_letter("NothingOrdered", "one cup is the least"));
            }
            assert!(*cups != 13 || job.message.delivery_count() > 1, "13 brings bad luck, once");
            let order = Message::new(format!("order {number}: {cups} cups"))
                .with_session_id(customer)
                .with_application_property("region", region.as_str());
            let bill = Message::new(format!("{customer} pays order {number}"));
            let due = client.now().plus(TimeSpan::from_days(30));
            let transaction = job.transaction().await?;
            transaction.send(&client.sender("events")?, order).await?;
            transaction.schedule(&client.sender("reminders")?, bill, due).await?;
            transaction.commit().await?;
            Err(Refusal::already_settled())
        })
    }
}

/// Looks after what nobody else could do.
struct Caretaker(Told);

impl Actor for Caretaker {
    type Context = Context<Self>;
}

impl Handler<Delivery> for Caretaker {
    type Result = Outcome;

    fn handle(&mut self, letter: Delivery, _: &mut Self::Context) -> Outcome {
        let order: PlaceOrder = letter.job()?;
        let reason = letter.dead_letter_reason().unwrap_or("no reason");
        self.0.say(format!("order {} was refused: {reason}", order.number));
        Ok(())
    }
}

/// Ships what a customer has ordered, in that order, and counts it.
async fn ship(step: SessionDelivery, told: Told) -> Outcome {
    let before = step.session.state().await?.unwrap_or_default();
    let count = String::from_utf8_lossy(&before).parse().unwrap_or(0) + 1;
    step.session.set_state(Some(count.to_string().into())).await?;
    let priority = step.message().application_property("priority").and_then(Value::as_str);
    let (customer, order) = (step.session.session_id(), String::from_utf8_lossy(step.body()));
    told.say(format!("{customer} gets {order} ({}), parcel {count}", priority.unwrap_or("low")));
    Ok(())
}

/// What there shall be, and who works on it.
async fn open(client: &Client, told: &Told) -> Result<[Consumer; 4], Box<dyn Error>> {
    let once = QueueProperties::new()
        .with_duplicate_detection(Duration::from_secs(3_600))
        .with_max_delivery_count(3);
    let by_customer = SubscriptionProperties::new().with_sessions();
    let region = Filter::sql("region = 'eu'").named("eu").with_action("SET priority = 'high'");
    let eu = DeclaredSubscription::new("eu").with(by_customer).with_rules([region]);
    let shop = Declaration::new()
        .with_queue(DeclaredQueue::new("orders").with(once))
        .with_queue(DeclaredQueue::new("reminders"))
        .with_topic(DeclaredTopic::new("events").with_subscription(eu));
    client.admin().declare(shop).await?;

    let (of_clerks, of_caretakers) = (client.clone(), told.clone());
    let (shipping, reminding) = (told.clone(), told.clone());
    let clerks =
        jobs(actors(move || Clerk(of_clerks.clone()).start().recipient::<Job<PlaceOrder>>()));
    let caretakers =
        actors(move || Caretaker(of_caretakers.clone()).start().recipient::<Delivery>());
    let remind = move |bill: Delivery| {
        reminding.say(String::from_utf8_lossy(bill.body()).into_owned());
        std::future::ready(Ok(()))
    };
    let options = ConsumerOptions::default();
    Ok([
        client.consume("orders", clerks, options).await?,
        client.consume(&dead_letter_path("orders"), caretakers, options).await?,
        client.consume("reminders", remind, options).await?,
        client.consume_sessions(
            &subscription_path("events", "eu"),
            move |step: SessionDelivery| ship(step, shipping.clone()),
            SessionConsumerOptions::default(),
        )?,
    ])
}

/// Places an order, and tells whether it was placed before.
async fn place(client: &Client, number: u32, region: &str, cups: u32) -> bool {
    let (customer, region) = ("ann".to_owned(), region.to_owned());
    let order = job_message(&PlaceOrder { number, customer, region, cups }).unwrap();
    let order = order.with_message_id(format!("order-{number}"));
    client.sender("orders").unwrap().send(order).await.unwrap().is_duplicate()
}

#[test]
fn an_order_service_keeps_what_it_was_told() {
    actix::System::new().block_on(serve()).unwrap();
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let data = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("order-service");
    std::fs::remove_dir_all(&data).ok();
    let told = Told::default();
    let test = TestBroker::start_with(Broker::builder().data_dir(&data)?).await?;
    let client = test.client();
    let consumers = open(&client, &told).await?;
    for (number, region, cups) in [(1, "eu", 2), (2, "us", 1), (3, "eu", 0)] {
        assert!(!place(&client, number, region, cups).await);
    }
    assert!(place(&client, 1, "eu", 2).await, "it was placed before");
    test.idle().await;
    let expected =
        ["ann gets order 1: 2 cups (high), parcel 1", "order 3 was refused: NothingOrdered"];
    assert_eq!(told.since(), expected);
    drop(consumers);
    test.stop().await?;

    // The next day, with what was kept.
    let test = TestBroker::start_with(Broker::builder().data_dir(&data)?).await?;
    let client = test.client();
    let _consumers = open(&client, &told).await?;
    assert!(place(&client, 1, "eu", 2).await, "it was placed before the restart");
    assert!(!place(&client, 4, "eu", 13).await);
    test.idle().await;
    assert_eq!(told.since(), ["ann gets order 4: 13 cups (high), parcel 2"]);
    test.advance(TimeSpan::from_days(31)).await;
    assert_eq!(told.since(), [1, 2, 4].map(|number| format!("ann pays order {number}")));
    Ok(())
}

#[test]
fn an_order_service_has_less_than_200_lines() {
    assert!(include_str!("order_service.rs").lines().count() < 200);
}
