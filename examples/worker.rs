//! A worker inside a program: prints two drinks that it prepares, one at the second attempt, and
//! the order that it refuses, with the reason.
//!
//! `cargo run --example worker`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Duration;

use peeklock::message::Message;
use peeklock::path::dead_letter_path;
use peeklock::{Broker, Client, ConsumerOptions, Delivery, Refusal};

async fn prepare(order: Delivery) -> Result<(), Refusal> {
    let drink = String::from_utf8_lossy(order.body()).into_owned();
    let attempt = order.delivery_count();
    match drink.as_str() {
        "one soup" => return Err(Refusal::dead_letter("NotOnTheMenu", "we serve drinks only")),
        "one tea" if attempt == 1 => return Err(Refusal::abandon()),
        _ => {}
    }
    println!("prepared {drink} at attempt {attempt}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().data_dir("./worker-data")?.start().await?;
    let client = Client::new(&broker);
    if !client.admin().queue_exists("orders").await? {
        client.admin().create_queue("orders").await?;
    }
    let consumer = client.consume("orders", prepare, ConsumerOptions::at_once(1)).await?;

    let sender = client.sender("orders")?;
    for drink in ["two coffees", "one tea", "one soup"] {
        sender.send(Message::new(drink)).await?;
    }

    let refused = client.receiver(&dead_letter_path("orders"))?;
    if let Some(order) = refused.receive(Duration::from_secs(5)).await? {
        let reason = order.dead_letter_reason().unwrap_or_default();
        println!("refused {:?}: {reason}", order.body());
        refused.complete(&order).await?;
    }
    consumer.stop().await;
    broker.stop(Duration::from_secs(1)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use peeklock::message::Message;
    use peeklock::port::Settlement; // `port`: types that handlers and clients share
    use peeklock::testing::TestDelivery;

    use super::prepare;

    #[tokio::test]
    async fn tea_is_prepared_at_the_second_attempt() {
        let tea = TestDelivery::of(Message::new("one tea"));
        let first = tea.given_to(&prepare).await;
        // The handler sets no property and no delay, so the message is available again at once.
        assert_eq!(first, Settlement::Abandon { properties: vec![], delay: None });
        assert_eq!(tea.again().given_to(&prepare).await, Settlement::Complete);
    }
}
