//! Settling messages.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azservicebus::receiver::DeadLetterOptions;
use azservicebus::{ServiceBusReceiverOptions, SubQueue};

use crate::broker::World;
use crate::receiving::QUIET;

pub async fn a_completed_message_is_gone(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_message("a").await?;
    let seen = receiver.receive_message().await?;
    receiver.complete_message(&seen).await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    Ok(())
}

pub async fn an_abandoned_message_returns_and_is_counted(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_message("a").await?;
    let seen = receiver.receive_message().await?;
    receiver.abandon_message(&seen, None).await?;
    let again = receiver.receive_message().await?;
    ensure!((again.sequence_number(), again.delivery_count()) == (1, Some(2)));
    Ok(())
}

pub async fn a_deferred_message_is_received_by_its_number(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_messages(vec!["later", "now"]).await?;
    let later = receiver.receive_message().await?;
    receiver.defer_message(&later, None).await?;
    let now = receiver.receive_message().await?;
    ensure!(now.body()? == b"now");
    receiver.complete_message(&now).await?;
    ensure!(receiver.receive_message_with_max_wait_time(QUIET).await?.is_none());
    let deferred = receiver.receive_deferred_message(1).await?.context("the deferred message")?;
    ensure!(deferred.body()? == b"later");
    receiver.complete_message(&deferred).await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    Ok(())
}

pub async fn a_dead_letter_has_its_reason(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender, mut receiver) = w.open("{}").await?;
    sender.send_message("a").await?;
    let seen = receiver.receive_message().await?;
    let options = DeadLetterOptions {
        dead_letter_reason: Some("poison".into()),
        dead_letter_error_description: Some("it has no price".into()),
        ..Default::default()
    };
    receiver.dead_letter_message(&seen, options).await?;
    let options =
        ServiceBusReceiverOptions { sub_queue: SubQueue::DeadLetter, ..Default::default() };
    let mut dead = client.create_receiver_for_queue(w.name, options).await?;
    let seen = dead.receive_message().await?;
    let told = (seen.dead_letter_reason(), seen.dead_letter_error_description());
    ensure!(told == (Some("poison"), Some("it has no price")), "{told:?}");
    dead.complete_message(&seen).await?;
    Ok(())
}

pub async fn a_lock_is_renewed(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open(r#"{"lockDuration":"PT2S"}"#).await?;
    sender.send_message("a").await?;
    let mut seen = receiver.receive_message().await?;
    let before = seen.locked_until();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        receiver.renew_message_lock(&mut seen).await?;
    }
    ensure!(seen.locked_until() > before);
    receiver.complete_message(&seen).await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    Ok(())
}

pub async fn a_lost_lock_completes_nothing(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open(r#"{"lockDuration":"PT1S"}"#).await?;
    sender.send_message("a").await?;
    let mut seen = receiver.receive_message().await?;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let refused = receiver.renew_message_lock(&mut seen).await.err().context("it was renewed")?;
    ensure!(format!("{refused:?}").contains("ock"), "{refused:?}");
    // The crate ignores the outcome of a settlement.
    receiver.complete_message(&seen).await?;
    let again = receiver.receive_message().await?;
    ensure!((again.sequence_number(), again.delivery_count()) == (1, Some(2)));
    Ok(())
}
