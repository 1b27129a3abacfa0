//! Receiving messages.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azservicebus::{ServiceBusReceiveMode, ServiceBusReceivedMessage, ServiceBusReceiverOptions};

use crate::broker::World;

/// Time to wait for messages that must not arrive.
pub const QUIET: Duration = Duration::from_millis(300);

pub fn bodies(messages: &[ServiceBusReceivedMessage]) -> Result<Vec<String>> {
    messages.iter().map(|message| Ok(String::from_utf8(message.body()?.to_vec())?)).collect()
}

pub async fn a_waiting_receiver_gets_new_messages(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    let (received, sent) = tokio::join!(receiver.receive_message(), async {
        tokio::time::sleep(QUIET).await;
        sender.send_message("late").await
    });
    sent?;
    ensure!(received?.body()? == b"late");
    Ok(())
}

pub async fn an_empty_queue_returns_no_message(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    ensure!(receiver.receive_message_with_max_wait_time(QUIET).await?.is_none());
    // Returned credit takes no message afterwards.
    sender.send_message("a").await?;
    let seen = receiver.receive_message().await?;
    ensure!((seen.body()?, seen.delivery_count()) == (&b"a"[..], Some(1)));
    Ok(())
}

pub async fn messages_are_received_ahead(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender, _receiver) = w.open("{}").await?;
    let sent: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    sender.send_messages(sent.clone()).await?;
    let options = ServiceBusReceiverOptions { prefetch_count: 10, ..Default::default() };
    let mut ahead = client.create_receiver_for_queue(w.name, options).await?;
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let message = ahead.receive_message().await?;
        seen.extend(bodies(std::slice::from_ref(&message))?);
        ahead.complete_message(&message).await?;
    }
    ensure!(seen == sent, "{seen:?}");
    Ok(())
}

pub async fn a_received_and_deleted_message_is_gone(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_message("a").await?;
    let receive_mode = ServiceBusReceiveMode::ReceiveAndDelete;
    let options = ServiceBusReceiverOptions { receive_mode, ..Default::default() };
    let mut deleting = client.create_receiver_for_queue(w.name, options).await?;
    ensure!(deleting.receive_message().await?.body()? == b"a");
    deleting.dispose().await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    Ok(())
}

pub async fn a_peek_removes_nothing(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_messages(vec!["a", "b", "c"]).await?;
    for _ in 0..2 {
        let seen = receiver.peek_messages(10, Some(2)).await?;
        let numbers: Vec<i64> = seen.iter().map(|message| message.sequence_number()).collect();
        ensure!(numbers == [2, 3], "{numbers:?}");
    }
    let first = receiver.peek_message(Some(1)).await?.context("a message")?;
    ensure!((first.body()?, first.sequence_number()) == (&b"a"[..], 1));
    Ok(())
}
