//! Sending messages.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azservicebus::{CreateMessageBatchOptions, ServiceBusMessage};
use time::OffsetDateTime;

use crate::broker::World;
use crate::receiving::{QUIET, bodies};

pub async fn a_message_arrives_with_all_its_properties(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    let mut message = ServiceBusMessage::new("two coffees");
    message.set_message_id("order-1")?;
    message.set_correlation_id("c".to_owned());
    message.set_subject("s".to_owned());
    message.set_to("t".to_owned());
    message.set_reply_to("r".to_owned());
    message.set_content_type("text/plain".to_owned());
    message.set_time_to_live(Duration::from_secs(60))?;
    sender.send_message(message).await?;
    let seen = receiver.receive_message().await?;
    ensure!(seen.body()? == b"two coffees");
    let texts = [
        seen.message_id().as_deref().map(str::to_owned),
        seen.correlation_id().as_deref().map(str::to_owned),
        seen.subject().map(str::to_owned),
        seen.to().map(str::to_owned),
        seen.reply_to().map(str::to_owned),
        seen.content_type().map(str::to_owned),
    ];
    let expected = ["order-1", "c", "s", "t", "r", "text/plain"];
    ensure!(texts.iter().map(Option::as_deref).eq(expected.map(Some)), "{texts:?}");
    ensure!(seen.time_to_live() == Some(Duration::from_secs(60)), "{:?}", seen.time_to_live());
    ensure!((seen.sequence_number(), seen.delivery_count()) == (1, Some(1)));
    ensure!(seen.expires_at() - seen.enqueued_time() == time::Duration::seconds(60));
    ensure!(seen.locked_until() > Some(OffsetDateTime::now_utc()));
    receiver.complete_message(&seen).await?;
    Ok(())
}

pub async fn messages_sent_together_arrive_in_order(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    let sent: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    sender.send_messages(sent.clone()).await?;
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let messages = receiver.receive_messages(50).await?;
        seen.extend(bodies(&messages)?);
        for message in messages {
            receiver.complete_message(&message).await?;
        }
    }
    ensure!(seen == sent, "{seen:?}");
    Ok(())
}

pub async fn a_batch_accepts_fitting_messages(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    let options = CreateMessageBatchOptions { max_size_in_bytes: Some(1_000) };
    let mut batch = sender.create_message_batch(options)?;
    let mut count = 0;
    while batch.try_add_message(vec![b'x'; 100]).is_ok() {
        count += 1;
    }
    ensure!((5..10).contains(&count), "{count} messages of 100 bytes fit into 1,000");
    // A message over the limit is refused before it is sent; otherwise the crate would split it.
    let mut largest = sender.create_message_batch(Default::default())?;
    ensure!(
        largest.try_add_message(vec![b'x'; 1 << 20]).is_err(),
        "a batch of more than it may have"
    );
    sender.send_message_batch(batch).await?;
    let mut seen = 0;
    while seen < count {
        seen += receiver.receive_messages(count).await?.len() as u32;
    }
    ensure!(receiver.receive_message_with_max_wait_time(QUIET).await?.is_none());
    Ok(())
}

pub async fn a_schedule_is_kept_and_can_be_cancelled(w: &World<'_>) -> Result<()> {
    let (_client, mut sender, mut receiver) = w.open("{}").await?;
    let now = OffsetDateTime::now_utc();
    let never = sender.schedule_message("never", now + Duration::from_secs(600)).await?;
    let soon = sender.schedule_message("soon", now + Duration::from_millis(700)).await?;
    ensure!((never, soon) == (1, 2), "{never} and {soon}");
    sender.cancel_scheduled_message(never).await?;
    let seen = receiver.receive_message().await?;
    ensure!(seen.body()? == b"soon");
    // The protocol has milliseconds.
    ensure!(seen.enqueued_time() >= now + Duration::from_millis(699), "{}", seen.enqueued_time());
    receiver.complete_message(&seen).await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    let again = sender.cancel_scheduled_message(never).await.err().context("cancelled twice")?;
    ensure!(
        again.to_string().contains("MessageNotFound") || format!("{again:?}").contains("404"),
        "{again:?}"
    );
    Ok(())
}
