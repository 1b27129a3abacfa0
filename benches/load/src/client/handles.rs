//! A client with handles, like an embedding program or a network client. Sends are single. In
//! process, messages are received and completed in lists; over WebSocket they are pushed as
//! deliveries, or received one at a time if the window is one.

use std::sync::Arc;
use std::time::Instant;

use peeklock::message::Message;
use peeklock::time::TimeSpan;
use peeklock::{Client, ConsumerOptions, Delivery};

use super::keep_sending;
use crate::BenchError;
use crate::latency::Latencies;
use crate::messages::Run;

pub(super) async fn send(client: &Client, run: &Run, took: &Latencies) -> Result<(), BenchError> {
    let sender = &client.sender(&run.queue)?.with_in_flight_max(run.window);
    keep_sending(run, || async move {
        let started = Instant::now();
        sender.send(Message::new(run.body(started))).await?;
        took.record(started.elapsed());
        run.sent().await;
        Ok(())
    })
    .await
}

pub(super) async fn receive_pushed(
    client: &Client,
    path: &str,
    run: Arc<Run>,
    took: Arc<Latencies>,
) -> Result<(), BenchError> {
    if run.is_one_at_a_time() {
        return receive_one_at_a_time(client, path, &run, &took).await;
    }
    let concurrent_max = u32::try_from(run.window).unwrap_or(u32::MAX);
    let options = ConsumerOptions::at_once(concurrent_max).without_renewal();
    let receiving = Arc::clone(&run);
    let handler = move |message: Delivery| {
        receiving.received(message.body(), message.delivery_count(), &took);
        std::future::ready(Ok(()))
    };
    let consumer = client.consume(path, handler, options).await?;
    tokio::select! {
        () = run.all_received() => {}
        why = consumer.ended() => return Err(match why {
            Some(why) => BenchError::Served(why.to_string()),
            None => BenchError::Served("a receiver ended before it had all messages".to_owned()),
        }),
    }
    // Returns when all its deliveries are completed.
    consumer.stop().await;
    Ok(())
}

/// Receives without a consumer, because a consumer does not report the completion of a message.
async fn receive_one_at_a_time(
    client: &Client,
    path: &str,
    run: &Run,
    took: &Latencies,
) -> Result<(), BenchError> {
    let receiver = client.receiver(path)?;
    loop {
        let message = tokio::select! {
            biased;
            () = run.all_received() => break,
            message = receiver.receive(TimeSpan::from_seconds(30)) => message?,
        };
        let Some(message) = message else { continue };
        run.received(message.body(), message.delivery_count(), took);
        receiver.complete(&message).await?;
        run.completed(1);
    }
    receiver.close().await?;
    Ok(())
}

pub(super) async fn receive_lists(
    client: &Client,
    path: &str,
    run: &Run,
    took: &Latencies,
) -> Result<(), BenchError> {
    let receiver = client.receiver(path)?;
    let count_max = u32::try_from(run.window).unwrap_or(u32::MAX);
    loop {
        let messages = tokio::select! {
            biased;
            () = run.all_received() => break,
            messages = receiver.receive_many(count_max, TimeSpan::from_seconds(30)) => messages?,
        };
        let mut tokens = Vec::with_capacity(messages.len());
        for message in &messages {
            run.received(message.body(), message.delivery_count(), took);
            tokens.extend(message.lock_token());
        }
        for completed in receiver.complete_many(&tokens).await {
            completed?;
            run.completed(1);
        }
    }
    receiver.close().await?;
    Ok(())
}
