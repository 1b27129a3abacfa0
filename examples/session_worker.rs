//! Actors that process sessions, each in order and several concurrently: prints the steps of three
//! orders. One step fails at first and is delivered again before the next step.
//!
//! `cargo run --example session_worker`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Duration;

use actix::{Actor, Context, Handler, ResponseFuture};
use peeklock::description::QueueProperties;
use peeklock::message::Message;
use peeklock::{Broker, Client, Refusal, SessionConsumerOptions, SessionDelivery, actors};
use tokio::sync::mpsc;

struct Warehouse {
    shipped: mpsc::UnboundedSender<String>,
}

impl Actor for Warehouse {
    type Context = Context<Self>;
}

impl Handler<SessionDelivery> for Warehouse {
    type Result = ResponseFuture<Result<(), Refusal>>;

    // The next step of an order arrives after this one is settled.
    fn handle(&mut self, delivery: SessionDelivery, _: &mut Self::Context) -> Self::Result {
        let SessionDelivery { message, session, .. } = delivery;
        let shipped = self.shipped.clone();
        Box::pin(async move {
            let step = String::from_utf8_lossy(message.body()).into_owned();
            if step == "pay" && session.session_id() == "order-2" && message.delivery_count() == 1 {
                return Err(Refusal::abandon());
            }
            // Completed steps are stored with the session, not in the actor.
            let done = session.state().await?.unwrap_or_default();
            let done = format!("{}{step} ", String::from_utf8_lossy(&done));
            if step == "ship" {
                shipped.send(format!("{}: {done}", session.session_id())).ok();
                session.set_state(None).await?;
                return Ok(());
            }
            // If storing the state fails, the message is delivered again.
            Ok(session.set_state(Some(done.into())).await?)
        })
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    let by_session = QueueProperties::new().with_sessions();
    client.admin().create_queue_with("steps", by_session).await?;

    let sender = client.sender("steps")?;
    for step in ["pick", "pay", "ship"] {
        for order in ["order-1", "order-2", "order-3"] {
            sender.send(Message::new(step).with_session_id(order)).await?;
        }
    }

    let (shipped, mut orders) = mpsc::unbounded_channel();
    let warehouses = actors(move || Warehouse { shipped: shipped.clone() }.start().recipient());
    let options = SessionConsumerOptions::at_once(2);
    let consumer = client.consume_sessions("steps", warehouses, options).await?;
    for _ in 0..3 {
        if let Some(order) = orders.recv().await {
            println!("{order}");
        }
    }
    consumer.stop().await;
    broker.stop(Duration::from_secs(1)).await?;
    Ok(())
}
