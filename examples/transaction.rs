//! Repair of a dead letter: completes it and sends a corrected copy, both or nothing. Prints the
//! counts before and after the commit.
//!
//! `cargo run --example transaction`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use peeklock::message::{Body, Message};
use peeklock::path::dead_letter_path;
use peeklock::time::TimeSpan;
use peeklock::{Broker, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    client.admin().create_queue("orders").await?;
    let sender = client.sender("orders")?;
    let receiver = client.receiver("orders")?;

    // An order that nobody can process ends in the dead-letter queue.
    sender.send(Message::new("3 aples").with_message_id("order-1")).await?;
    let order = receiver.receive(TimeSpan::ZERO).await?.ok_or("no order")?;
    receiver.dead_letter(&order, Some("unknown article"), None, &[]).await?;

    let dead_letters = client.receiver(&dead_letter_path("orders"))?;
    let wrong = dead_letters.receive(TimeSpan::ZERO).await?.ok_or("no dead letter")?;
    let right = Message { body: Body::Data("3 apples".into()), ..wrong.message().clone() };

    let transaction = client.begin_transaction().await?;
    transaction.send(&sender, right).await?;
    transaction.complete(&dead_letters, &wrong).await?;
    show(&client, "before the commit").await?;
    let committed = transaction.commit().await?;
    show(&client, "after the commit").await?;
    println!("the copy is message {:?}", committed.sequence_numbers());

    let order = receiver.receive(TimeSpan::ZERO).await?.ok_or("no order")?;
    println!("received {:?}", order.body());

    // A transaction that is dropped is rolled back: the order is still locked, nothing was sent.
    let forgotten = client.begin_transaction().await?;
    forgotten.complete(&receiver, &order).await?;
    forgotten.send(&sender, Message::new("never")).await?;
    drop(forgotten);
    receiver.complete(&order).await?;
    show(&client, "at the end").await?;

    broker.stop(std::time::Duration::from_secs(1)).await?;
    Ok(())
}

async fn show(client: &Client, when: &str) -> Result<(), Box<dyn std::error::Error>> {
    let counts = client.admin().queue("orders").await?.counts;
    let (there, dead) = (counts.active, counts.dead_letter);
    println!("{when}: {there} in the queue, {dead} in its dead-letter queue");
    Ok(())
}
