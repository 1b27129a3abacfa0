//! A topic and three subscriptions: prints the messages of each, selected by an SQL filter, by a
//! correlation filter, and by no filter, with a copy marked by an action. Then prints the reason
//! why a rule did not select a message.
//!
//! `cargo run --example topic`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use peeklock::description::SubscriptionProperties;
use peeklock::message::Message;
use peeklock::path::subscription_path;
use peeklock::rule::{CorrelationFilter, Filter};
use peeklock::time::TimeSpan;
use peeklock::{Broker, Client};

fn order(text: &'static str, region: &str, price: i32) -> Message {
    Message::new(text)
        .with_subject("order")
        .with_application_property("region", region)
        .with_application_property("price", price)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    let admin = client.admin();
    let defaults = SubscriptionProperties::default;
    admin.create_topic("orders").await?;

    // Two rules: all messages, and a second copy of the expensive ones, marked by an action.
    let dear = Filter::sql("price > 100").named("dear").with_action("SET priority = 'high'");
    let audit = vec![Filter::True.named("all"), dear];
    admin.create_subscription_with("orders", "audit", defaults(), audit).await?;
    // A filter with an SQL expression.
    let eu = vec![Filter::sql("region = 'eu' AND sys.Label = 'order'").named("eu")];
    admin.create_subscription_with("orders", "eu", defaults(), eu).await?;
    // A filter with exact values: one lookup, regardless of the number of subscriptions.
    let filter = CorrelationFilter::property("region", "us");
    let us = vec![Filter::Correlation(filter).named("us")];
    admin.create_subscription_with("orders", "us", defaults(), us).await?;

    let sender = client.sender("orders")?;
    sender.send(order("two coffees", "eu", 7)).await?;
    sender.send(order("an espresso machine", "us", 700)).await?;

    for name in ["audit", "eu", "us"] {
        let receiver = client.receiver(&subscription_path("orders", name))?;
        for message in receiver.receive_many(10, TimeSpan::from_seconds(1)).await? {
            let priority = message.message().application_property("priority");
            let mark = if priority.is_some() { " (marked)" } else { "" };
            println!("{name}: {}{mark}", String::from_utf8_lossy(message.body()));
            receiver.complete(&message).await?;
        }
    }

    // Explains without sending.
    let eu = subscription_path("orders", "eu");
    for explanation in admin.explain(&eu, order("a filter", "us", 5)).await? {
        println!("{explanation}");
    }
    broker.stop(std::time::Duration::ZERO).await?;
    Ok(())
}
