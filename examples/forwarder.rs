//! A forwarder of your own: sends each order to the queue of its region. Prints the orders in the
//! queues of two regions, and the order that no queue accepts, with the reason.
//!
//! `cargo run --example forwarder`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;

use peeklock::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock::description::QueueProperties;
use peeklock::error::Rejection;
use peeklock::message::{Message, Value};
use peeklock::time::TimeSpan;
use peeklock::{Broker, Client};

const REGIONS: [&str; 2] = ["eu", "us"];

/// For destinations such as `region://orders`: an order of the region eu goes to the queue `orders-eu`.
struct ByRegion;

/// The route from one queue.
struct RegionRoute {
    prefix: String,
}

impl Forwarder for ByRegion {
    fn name(&self) -> &'static str {
        "region"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["region"]
    }

    // The destination is the queue's property ForwardTo.
    fn check(&self, destination: &str) -> Result<(), Rejection> {
        match destination.strip_prefix("region://") {
            Some(prefix) if !prefix.is_empty() => Ok(()),
            _ => Err(Rejection::argument("write region:// and the start of the queue names")),
        }
    }

    fn route(&self, destination: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
        self.check(destination)?;
        Ok(Box::new(RegionRoute { prefix: destination.replace("region://", "") }))
    }
}

#[async_trait::async_trait]
impl Route for RegionRoute {
    // The route only decides; the broker moves the messages.
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        messages.iter().map(|outgoing| self.decide(outgoing)).collect()
    }
}

impl RegionRoute {
    fn decide(&self, outgoing: &Outgoing) -> Verdict {
        // An unreadable message counts as one without a region.
        let region = outgoing.message().ok().and_then(|message| {
            match message.application_property("region") {
                Some(Value::String(region)) => Some(region.clone()),
                _ => None,
            }
        });
        match region {
            Some(region) if REGIONS.contains(&region.as_str()) => {
                Verdict::To(format!("{}-{region}", self.prefix).into())
            }
            region => Verdict::Refused {
                reason: "UnknownRegion".into(),
                description: format!("no queue is for {region:?}").into(),
            },
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().forwarder(Arc::new(ByRegion)).start().await?;
    let client = Client::new(&broker);
    let admin = client.admin();
    admin.create_queue("orders-eu").await?;
    admin.create_queue("orders-us").await?;
    let by_region = QueueProperties::new().with_forward_to("region://orders");
    admin.create_queue_with("incoming", by_region).await?;

    let sender = client.sender("incoming")?;
    for (body, region) in [("two coffees", "eu"), ("one tea", "us"), ("dust", "mars")] {
        sender.send(Message::new(body).with_application_property("region", region)).await?;
    }
    for queue in ["orders-eu", "orders-us", "incoming/$Transfer/$deadletterqueue"] {
        let receiver = client.receiver(queue)?;
        if let Some(order) = receiver.receive(TimeSpan::from_seconds(5)).await? {
            println!("{queue}: {:?}, {:?}", order.body(), order.dead_letter_reason());
            receiver.complete(&order).await?;
        }
    }
    broker.stop(std::time::Duration::ZERO).await?;
    Ok(())
}
