//! An order service as an actix developer would write it from the guide: duplicate detection, jobs,
//! a filter with an action, sessions with state, a transaction, a reminder, a worker for dead
//! letters, and a restart over the journal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use peeklock::declaration::{Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic};
use peeklock::description::{QueueProperties, SubscriptionProperties};
use peeklock::message::{Message, Value};
use peeklock::path::{dead_letter_path, subscription_path};
use peeklock::port::Settlement;
use peeklock::rule::Filter;
use peeklock::testing::{TestBroker, TestClient, TestDelivery};
use peeklock::time::TimeSpan;
use peeklock::{
    Broker, Client, Consumer, ConsumerOptions, Delivery, Job, JobType, Refusal,
    SessionConsumerOptions, SessionJob, actors, job_message, jobs,
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

/// Messages of the service to the outside.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn since(&self) -> Vec<String> {
        let mut reports = std::mem::take(&mut *self.0.lock().unwrap());
        reports.sort();
        reports
    }
}

/// Takes orders: publishes each and schedules a reminder of its bill, in one transaction.
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
            let order = job_message(&job.value)?
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

/// Handles dead letters.
async fn look_after(letter: Job<PlaceOrder>, reports: Reports) -> Outcome {
    let reason = letter.message.dead_letter_reason().unwrap_or("no reason");
    reports.add(format!("order {} was refused: {reason}", letter.value.number));
    Ok(())
}

/// Ships the orders of a customer in order, and counts them.
async fn ship(step: SessionJob<PlaceOrder>, reports: Reports) -> Outcome {
    let count = step.session.state_json().await?.unwrap_or(0) + 1;
    step.session.set_state_json(&count).await?;
    let priority = step.message.message().application_property("priority").and_then(Value::as_str);
    let (priority, PlaceOrder { number, customer, cups, .. }) =
        (priority.unwrap_or("low"), &step.value);
    reports
        .add(format!("{customer} gets order {number}: {cups} cups ({priority}), parcel {count}"));
    Ok(())
}

/// Declares the entities and starts the workers.
async fn open(client: &Client, reports: &Reports) -> Result<[Consumer; 4], Box<dyn Error>> {
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

    let of_clerks = client.clone();
    let (caring, shipping, reminding) = (reports.clone(), reports.clone(), reports.clone());
    let clerks =
        jobs(actors(move || Clerk(of_clerks.clone()).start().recipient::<Job<PlaceOrder>>()));
    let caretakers = jobs(move |letter: Job<PlaceOrder>| look_after(letter, caring.clone()));
    let shippers = jobs(move |step: SessionJob<PlaceOrder>| ship(step, shipping.clone()));
    let remind = move |bill: Delivery| {
        reminding.add(String::from_utf8_lossy(bill.body()).into_owned());
        std::future::ready(Ok(()))
    };
    let (eu, options) = (subscription_path("events", "eu"), ConsumerOptions::default());
    Ok([
        client.consume("orders", clerks, options).await?,
        client.consume(&dead_letter_path("orders"), caretakers, options).await?,
        client.consume("reminders", remind, options).await?,
        client.consume_sessions(&eu, shippers, SessionConsumerOptions::default()).await?,
    ])
}

fn order(number: u32, region: &str, cups: u32) -> Message {
    let (customer, region) = ("ann".to_owned(), region.to_owned());
    let order = job_message(&PlaceOrder { number, customer, region, cups }).unwrap();
    order.with_message_id(format!("order-{number}"))
}

/// Places an order. Returns whether it was already placed.
async fn place(client: &Client, number: u32, region: &str, cups: u32) -> bool {
    let orders = client.sender("orders").unwrap();
    orders.send(order(number, region, cups)).await.unwrap().is_duplicate()
}

#[test]
fn an_order_service_keeps_its_data() {
    actix::System::new().block_on(serve()).unwrap();
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let data = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("order-service");
    std::fs::remove_dir_all(&data).ok();
    let reports = Reports::default();
    let test = TestBroker::start_with(Broker::builder().data_dir(&data)?).await?;
    let client = test.client();
    let consumers = open(&client, &reports).await?;
    for (number, region, cups) in [(1, "eu", 2), (2, "us", 1), (3, "eu", 0)] {
        assert!(!place(&client, number, region, cups).await);
    }
    assert!(place(&client, 1, "eu", 2).await, "it was placed before");
    test.idle().await;
    let expected =
        ["ann gets order 1: 2 cups (high), parcel 1", "order 3 was refused: NothingOrdered"];
    assert_eq!(reports.since(), expected);
    drop(consumers);
    test.stop().await?;

    // The next day, with the stored data.
    let test = TestBroker::start_with(Broker::builder().data_dir(&data)?).await?;
    let client = test.client();
    let _consumers = open(&client, &reports).await?;
    assert!(place(&client, 1, "eu", 2).await, "it was placed before the restart");
    assert!(!place(&client, 4, "eu", 13).await);
    test.idle().await;
    assert_eq!(reports.since(), ["ann gets order 4: 13 cups (high), parcel 2"]);
    test.advance(TimeSpan::from_days(31)).await;
    assert_eq!(reports.since(), [1, 2, 4].map(|number| format!("ann pays order {number}")));
    Ok(())
}

#[actix::test]
async fn a_clerk_is_tried_without_a_broker() {
    let test = TestClient::new();
    let clerk = jobs(Clerk(test.client()).start().recipient::<Job<PlaceOrder>>());
    let order = TestDelivery::of(order(1, "eu", 2)).with_client(&test);
    assert_eq!(order.given_to(&clerk).await, Settlement::Complete);
    assert_eq!(test.sent().len(), 2, "an event and a reminder");
}

#[test]
fn an_order_service_has_less_than_200_lines() {
    assert!(include_str!("order_service.rs").lines().count() < 200);
}
