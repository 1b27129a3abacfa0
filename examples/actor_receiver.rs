//! Actix actors as receivers: prints three invoices. The second is unreadable and ends in the
//! dead-letter queue with the reason. An actor that panics is replaced.
//!
//! `cargo run --example actor_receiver`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use actix::{Actor, Context, Handler};
use peeklock::path::dead_letter_path;
use peeklock::time::TimeSpan;
use peeklock::{
    Broker, Client, ConsumerOptions, Delivery, Refusal, actors, json_message, message::Message,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Invoice {
    number: u32,
    total: f64,
}

struct Bookkeeper;

impl Actor for Bookkeeper {
    type Context = Context<Self>;
}

impl Handler<Delivery> for Bookkeeper {
    type Result = Result<(), Refusal>;

    // `Ok` completes the message, an error selects another settlement, a panic abandons it. A
    // message that is not an invoice goes to the dead-letter queue.
    fn handle(&mut self, delivery: Delivery, _: &mut Self::Context) -> Self::Result {
        let invoice: Invoice = delivery.message.json()?;
        println!("booked invoice {} over {:.2}", invoice.number, invoice.total);
        Ok(())
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    client.admin().create_queue("invoices").await?;

    let sender = client.sender("invoices")?;
    sender.send(json_message(&Invoice { number: 1, total: 12.5 })?).await?;
    sender.send(Message::new("not an invoice")).await?;
    sender.send(json_message(&Invoice { number: 3, total: 99.0 })?).await?;

    let bookkeepers = actors(|| Bookkeeper.start().recipient());
    let consumer = client.consume("invoices", bookkeepers, ConsumerOptions::default()).await?;

    let dead = client.receiver(&dead_letter_path("invoices"))?;
    if let Some(letter) = dead.receive(TimeSpan::from_seconds(5)).await? {
        println!(
            "dead-lettered {}: {} ({})",
            letter.sequence_number(),
            letter.dead_letter_reason().unwrap_or_default(),
            letter.dead_letter_error_description().unwrap_or_default()
        );
        dead.complete(&letter).await?;
    }
    consumer.stop().await;
    broker.stop(std::time::Duration::from_secs(1)).await?;
    Ok(())
}
