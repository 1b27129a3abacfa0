//! Measures the duration of a fork on a quiet machine. The tests of the handles show that forks are
//! independent.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

use std::time::{Duration, Instant};

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;

const MESSAGES: usize = 10_000;
const FORKS: usize = 101;

async fn count(broker: &Broker) -> u64 {
    broker.describe_queue("orders").await.unwrap().counts.active
}

/// A fork is complete when it has started: it contains all messages.
#[tokio::test]
#[ignore = "a measurement: --ignored --nocapture prints it"]
async fn a_fork_of_10_000_messages() {
    let broker = Broker::builder().start().await.unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let orders = broker.entity("orders").unwrap();
    for first in (0..MESSAGES).step_by(100) {
        let message = |number: usize| broker.inbound(Message::new(format!("order {number}")));
        let messages = (first..first + 100).map(message).collect();
        let answer = orders.call(Command::SendBatch { messages }).await.unwrap();
        assert!(matches!(answer, Outcome::AcceptedBatch(numbers) if numbers.len() == 100));
    }
    let mut times = Vec::new();
    for _ in 0..FORKS {
        let begun = Instant::now();
        let fork = broker.fork().await.unwrap();
        times.push(begun.elapsed());
        assert_eq!(count(&fork).await, MESSAGES as u64);
        fork.stop(Duration::ZERO).await.unwrap();
    }
    times.sort_unstable();
    let [least, median, most] = [times[0], times[FORKS / 2], times[FORKS - 1]];
    eprintln!("a fork of {MESSAGES} messages: {median:?} (median), {least:?} to {most:?}");
    assert!(times.iter().all(|time| *time < Duration::from_secs(1)), "{most:?}");
    broker.stop(Duration::ZERO).await.unwrap();
}
