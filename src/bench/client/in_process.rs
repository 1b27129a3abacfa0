//! In process: handles, as an embedding program has them.

use std::time::Instant;

use peeklock::Client;
use peeklock::message::Message;
use peeklock::time::TimeSpan;

use super::keep_sending;
use crate::bench::BenchError;
use crate::bench::latency::Latencies;
use crate::bench::messages::Run;

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

pub(super) async fn receive(
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
