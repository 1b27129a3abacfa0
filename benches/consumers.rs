//! Benchmark of an embedded consumer with an empty handler: one queue in memory, one arbiter, and
//! the runtime on one thread; with and without lock renewal in turn.
//!
//! `cargo bench --bench consumers`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

mod measure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock::command::Command;
use peeklock::message::Message;
use peeklock::{Broker, Client, ConsumerOptions, Delivery, Refusal};
use tokio::sync::Notify;

const MESSAGES: u64 = 200_000;
const LIST: u64 = 1_000;
const AT_ONCE: u32 = 256;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let broker = runtime
        .block_on(Broker::builder().arbiters(1).start())
        .unwrap_or_else(|error| panic!("{error}"));
    let client = Client::new(&broker);
    runtime.block_on(async {
        client.admin().create_queue("work").await.unwrap_or_else(|error| panic!("{error}"));
    });
    let renewing = ConsumerOptions::at_once(AT_ONCE);
    let with_prefetch = renewing.with_prefetch(AT_ONCE);
    let kinds = [
        ("256 at once, locks renewed", renewing),
        ("256 at once, no renewal", renewing.without_renewal()),
        ("256 at once, as many prefetched, locks renewed", with_prefetch),
        ("256 at once, as many prefetched, no renewal", with_prefetch.without_renewal()),
    ];
    measure::rates(
        "empty handler",
        &kinds,
        MESSAGES,
        || runtime.block_on(fill(&broker)),
        |options| runtime.block_on(consume(&broker, &client, *options)),
    );
}

/// Sends the messages; not part of the measurement.
async fn fill(broker: &Broker) {
    let entity = broker.entity("work").unwrap_or_else(|error| panic!("{error}"));
    let message = Message::new(vec![7; 1_024]);
    for _ in 0..MESSAGES / LIST {
        let sends = (0..LIST).map(|_| Command::Send { message: broker.inbound(message.clone()) });
        for result in entity.call_many(sends.collect()).await {
            result.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Returns when the last message was handled and settled.
async fn consume(broker: &Broker, client: &Client, options: ConsumerOptions) {
    let (handled, all) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let handler = {
        let (handled, all) = (Arc::clone(&handled), Arc::clone(&all));
        move |_: Delivery| {
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == MESSAGES {
                all.notify_one();
            }
            std::future::ready(Ok::<(), Refusal>(()))
        }
    };
    let consumer = client.consume("work", handler, options).await;
    let consumer = consumer.unwrap_or_else(|error| panic!("{error}"));
    all.notified().await;
    consumer.stop().await;
    // Refused or duplicated messages would distort the figure.
    let described = broker.describe_queue("work").await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(described.counts.total(), 0, "the queue is not empty");
    assert_eq!(handled.load(Ordering::Relaxed), MESSAGES, "messages came twice");
}
