//! Test of the counters of failed deliveries. A process has one recorder, so there is only one
//! test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, LinkEnd, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::{Jitter, QueueUpdate, RetryKind, RetryPolicy, Settings};
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_metrics_prometheus::{EntityGauges, PrometheusMetrics, install};

async fn receive(broker: &Broker, holder: Option<ReceiverId>) -> Vec<LockToken> {
    let command = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 10,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder,
    };
    let answer = broker.entity("q").unwrap().call(command).await.unwrap();
    let Outcome::Received(received) = answer else { panic!() };
    received.iter().map(|message| message.facts.lock.unwrap().token).collect()
}

/// Returns the counters of deliveries, redeliveries, lapsed deliveries and failures without delay.
async fn counted(metrics: &PrometheusMetrics, broker: &Broker) -> [u64; 4] {
    // A turn updates its counters after sending its answers; a second turn waits for that.
    broker.describe_queue("q").await.unwrap();
    let page = metrics.render(broker, EntityGauges::None);
    [
        "peeklock_messages_delivered_total",
        "peeklock_messages_redelivered_total",
        "peeklock_deliveries_lapsed_total",
        "peeklock_retries_undelayed_total",
    ]
    .map(|name| {
        let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    })
}

/// Returns the waiting time of the oldest message, in seconds.
async fn oldest_age(metrics: &PrometheusMetrics, broker: &Broker) -> String {
    broker.describe_queue("q").await.unwrap();
    let page = metrics.render(broker, EntityGauges::All);
    let name = "peeklock_entity_oldest_available_age_seconds{entity=\"q\"} ";
    page.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

/// RTY-32: lapsed locks and lost connections, redeliveries, and failures that would have been
/// delayed by the policy are counted. An abandon does not count as lapsed, and a first delivery not
/// as a redelivery.
#[tokio::test]
async fn failed_deliveries_are_counted() {
    let metrics = install().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let mut settings = Settings::default();
    settings.limits.broker_delayed_count_max = 0;
    let builder = Broker::builder().settings(settings).arbiters(1);
    let broker = builder.clock(Arc::clone(&clock) as _).start().await.unwrap();
    let lock = TimeSpan::from_seconds(10);
    let properties = QueueUpdate { lock_duration: Some(lock), ..QueueUpdate::default() };
    broker.create_queue("q", properties).await.unwrap();
    let queue = broker.entity("q").unwrap();
    for _ in 0..3 {
        let message = broker.inbound(Message::new("a"));
        queue.call(Command::Send { message }).await.unwrap();
    }
    clock.advance(TimeSpan::from_ms(2_500));
    assert_eq!(oldest_age(&metrics, &broker).await, "2.5");
    let tokens = receive(&broker, None).await;
    assert_eq!(oldest_age(&metrics, &broker).await, "0", "none waits");
    assert_eq!(counted(&metrics, &broker).await, [3, 0, 0, 0]);
    let abandon = Settlement::Abandon { properties: None, delay: None };
    queue.call(Command::Settle { token: tokens[0], settlement: abandon }).await.unwrap();
    let release = Settlement::Release;
    queue.call(Command::Settle { token: tokens[1], settlement: release }).await.unwrap();
    // After the third message's lock has expired, the first and the third are delivered again.
    clock.advance(lock);
    let holder = broker.receiver_id();
    assert_eq!(receive(&broker, Some(holder)).await.len(), 3);
    assert_eq!(counted(&metrics, &broker).await, [6, 2, 1, 0]);
    let policy =
        RetryPolicy { kind: RetryKind::Fixed, delay: lock, delay_max: None, jitter: Jitter::NONE };
    let properties = QueueUpdate { retry_policy: Some(Some(policy)), ..QueueUpdate::default() };
    broker.update_queue("q", properties, None).await.unwrap();
    queue.call(Command::Detach { receiver: holder, end: LinkEnd::Broken }).await.unwrap();
    assert_eq!(counted(&metrics, &broker).await, [6, 2, 4, 3]);
    assert_eq!(receive(&broker, None).await.len(), 3, "at once");
    assert_eq!(counted(&metrics, &broker).await, [9, 5, 4, 3]);
    // RCV-02: a message removed on receive counts as undelivered if its receiver leaves without
    // taking the answer.
    let undelivered = |metrics: &PrometheusMetrics| {
        let page = metrics.render(&broker, EntityGauges::None);
        let name = "peeklock_messages_undelivered_total ";
        let value = page.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        value.map_or(0, |value| value.parse::<u64>().unwrap())
    };
    let command = Command::Receive {
        mode: ReceiveMode::ReceiveAndDelete,
        count_max: 10,
        bytes_max: u64::MAX,
        wait: TimeSpan::from_minutes(1),
        holder: None,
    };
    let mut call = Box::pin(queue.call(command));
    std::future::poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending(), "all others are locked");
        Poll::Ready(())
    })
    .await;
    let message = broker.inbound(Message::new("b"));
    queue.call(Command::Send { message }).await.unwrap();
    broker.describe_queue("q").await.unwrap();
    assert_eq!(undelivered(&metrics), 0, "it has its answer");
    drop(call);
    assert_eq!(undelivered(&metrics), 1);
    broker.stop(Duration::ZERO).await.unwrap();
}
