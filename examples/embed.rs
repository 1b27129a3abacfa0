//! A broker inside a program: prints one order that was sent, received under lock and completed.
//! Messages that are not completed stay in `./embed-data` until the next start.
//!
//! `cargo run --example embed`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Duration;

use peeklock::message::Message;
use peeklock::{Broker, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().data_dir("./embed-data")?.start().await?;
    let client = Client::new(&broker);
    if !client.admin().queue_exists("orders").await? {
        client.admin().create_queue("orders").await?;
    }
    client.sender("orders")?.send(Message::new("two coffees")).await?;

    let receiver = client.receiver("orders")?;
    if let Some(order) = receiver.receive(Duration::from_secs(5)).await? {
        println!("order {}: {:?}", order.sequence_number(), order.body());
        receiver.complete(&order).await?;
    }
    broker.stop(Duration::from_secs(1)).await?;
    Ok(())
}
