//! Tests of metrics from the facade to the collector.

use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder as _, Unit};
use peeklock_core::Broker;
use peeklock_core::command::Command;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_otlp::Otlp;

use crate::collector::{Collector, Request, numbers};
use crate::world::{PATIENCE, config};

#[tokio::test]
async fn counters_gauges_and_histograms_have_their_values() {
    let collector = Collector::start();
    let otlp = Otlp::start(&config(&collector)).unwrap();
    let recorder = otlp.recorder().unwrap();
    let about = Metadata::new("test", Level::INFO, None);
    recorder.describe_counter("cups_total".into(), Some(Unit::Count), "Cups".into());
    let of = |kind: &'static str| Key::from_parts("cups_total", vec![Label::new("kind", kind)]);
    let coffees = recorder.register_counter(&of("coffee"), &about);
    coffees.increment(2);
    // The same series in a second handle.
    recorder.register_counter(&of("coffee"), &about).increment(1);
    recorder.register_counter(&of("tea"), &about).increment(5);
    let heat = recorder.register_gauge(&Key::from_name("heat"), &about);
    heat.set(2.5);
    heat.decrement(1.0);
    let waits = recorder.register_histogram(&Key::from_name("wait_seconds"), &about);
    waits.record(0.1);
    waits.record(7.0);
    // More series than the limit.
    for number in 0..1_200 {
        let label = Label::new("number", number.to_string());
        let key = Key::from_parts("many_total", vec![label]);
        recorder.register_counter(&key, &about).increment(1);
    }
    otlp.stop(PATIENCE).await;
    let numbers = numbers(&collector.all());
    assert_eq!(numbers["cups_total{kind=coffee}"], 3.0);
    assert_eq!(numbers["cups_total{kind=tea}"], 5.0);
    assert_eq!(numbers["heat{}"], 1.5);
    assert_eq!(numbers["wait_seconds{}"], 2.0);
    assert_eq!(numbers.keys().filter(|series| series.starts_with("many_total")).count(), 1_000);
}

/// Only the configured number of entities, those with the most messages, have gauges; with 0 no
/// entity has.
#[tokio::test]
async fn gauges_are_limited_to_the_largest_entities() {
    for count in [0, 2] {
        let collector = Collector::start();
        let otlp = Otlp::start(&config(&collector)).unwrap();
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        for name in ["a", "b", "c"] {
            broker.create_queue(name, QueueUpdate::default()).await.unwrap();
        }
        otlp.observe(&broker, count);
        broker.stop(Duration::ZERO).await.unwrap();
        otlp.stop(PATIENCE).await;
        let numbers = numbers(&collector.all());
        assert_eq!(numbers["peeklock_ready{}"], 1.0);
        let sizes = numbers.keys().filter(|series| series.starts_with("peeklock_entity_size"));
        let expected =
            ["{entity=a}", "{entity=b}"].map(|of| format!("peeklock_entity_size_bytes{of}"));
        assert!(sizes.eq(expected.iter().take(count)), "{numbers:#?}");
    }
}

/// QUO-02: with as many entities as the limits allow, each has its own series in each gauge and for
/// each state. The overflow series stays unused.
#[tokio::test]
async fn each_permitted_entity_has_its_series() {
    let collector = Collector::start();
    let mut config = config(&collector);
    let limits = peeklock_core::limits::Limits::default();
    let all = limits.entity_count_max + limits.broker_subscription_count_max;
    assert_eq!(config.entity_count_max, all);
    config.entity_count_max = 3;
    let otlp = Otlp::start(&config).unwrap();
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    for name in ["a", "b", "c"] {
        broker.create_queue(name, QueueUpdate::default()).await.unwrap();
    }
    otlp.observe(&broker, usize::MAX);
    broker.stop(Duration::ZERO).await.unwrap();
    otlp.stop(PATIENCE).await;
    let numbers = numbers(&collector.all());
    for (gauge, each) in [
        ("peeklock_entity_messages", 6),
        ("peeklock_entity_messages_delayed", 1),
        ("peeklock_entity_size_bytes", 1),
        ("peeklock_entity_oldest_available_age_seconds", 1),
    ] {
        let series = numbers.keys().filter(|series| series.starts_with(&format!("{gauge}{{")));
        let of: Vec<_> = series.filter(|series| series.contains("entity=")).collect();
        assert_eq!(of.len(), 3 * each, "{gauge}");
    }
    assert!(numbers.keys().all(|series| !series.contains("overflow")), "{numbers:#?}");
}

/// DESIGN section 5: when another entity becomes the largest, its gauges appear under its own name
/// in the first report that contains them, not in the overflow series.
#[tokio::test]
async fn an_entity_replacing_another_has_its_series() {
    let collector = Collector::start();
    let mut config = config(&collector);
    config.entity_count_max = 1;
    config.interval = Duration::from_millis(10);
    let otlp = Otlp::start(&config).unwrap();
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let mut requests = Vec::new();
    for (name, count) in [("a", 1), ("b", 2)] {
        broker.create_queue(name, QueueUpdate::default()).await.unwrap();
        let queue = broker.entity(name).unwrap();
        for _ in 0..count {
            let message = broker.inbound(Message::new("x"));
            queue.call(Command::Send { message }).await.unwrap();
        }
        if requests.is_empty() {
            otlp.observe(&broker, 1);
        }
        // All gauges of the entity arrive in one request.
        let gauges_of = |request: &Request| {
            let numbers = numbers(std::slice::from_ref(request));
            numbers.keys().filter(|series| series.contains(&format!("entity={name}"))).count()
        };
        loop {
            let request = collector.next();
            let found = gauges_of(&request);
            requests.push(request);
            if found == 9 {
                break;
            }
        }
    }
    broker.stop(Duration::ZERO).await.unwrap();
    otlp.stop(PATIENCE).await;
    requests.extend(collector.all());
    let numbers = numbers(&requests);
    assert!(numbers.keys().all(|series| !series.contains("overflow")), "{numbers:#?}");
}
