//! Gauges of the broker and of single entities. [`crate::Otlp::observe`] registers them; the SDK
//! reads them when metrics are due.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use peeklock_core::Broker;
use peeklock_core::telemetry::{
    CLOCK_OFFSET_SECONDS, ENTITY_MESSAGES, ENTITY_MESSAGES_DELAYED, ENTITY_OLDEST_AGE,
    ENTITY_SIZE_BYTES, Gauges, LEASE_SECONDS, READY, SHARDS, STANDBY, STORE_BYTES, STORE_FULL,
};

/// Registers the gauges of the broker, and the gauges of the `count_max` entities with the most
/// messages.
pub(crate) fn observe(meter: &Meter, broker: &Broker, count_max: usize) {
    let watched = broker.clone();
    meter
        .u64_observable_gauge(READY)
        .with_description("Whether the broker is ready")
        .with_callback(move |observer| {
            let is_ready = watched.failure().is_none()
                && watched.outage().is_none()
                && !watched.is_suspended();
            observer.observe(u64::from(is_ready), &[]);
        })
        .build();
    if broker.lease_left().is_some() {
        observe_ownership(meter, broker);
    }
    let watched = broker.clone();
    meter
        .u64_observable_gauge(STORE_FULL)
        .with_description("Whether the store is full and refuses new messages")
        .with_callback(move |observer| {
            observer.observe(u64::from(watched.shortage().is_some()), &[]);
        })
        .build();
    let watched = broker.clone();
    meter
        .u64_observable_gauge(STORE_BYTES)
        .with_description("Bytes that the store uses on its medium")
        .with_unit("By")
        .with_callback(move |observer| {
            if let Some(bytes) = watched.store_bytes() {
                observer.observe(bytes, &[]);
            }
        })
        .build();
    if count_max == 0 {
        return;
    }
    let largest = |broker: &Broker| {
        let broker = broker.clone();
        move || Gauges::largest(Gauges::of(broker.observed()), count_max)
    };
    let entities = largest(broker);
    meter
        .u64_observable_gauge(ENTITY_MESSAGES)
        .with_description("Messages of an entity, by state")
        .with_callback(move |observer| {
            for gauges in entities() {
                for (state, count) in gauges.states() {
                    observer.observe(count, &[entity(&gauges), KeyValue::new("state", state)]);
                }
            }
        })
        .build();
    let entities = largest(broker);
    meter
        .u64_observable_gauge(ENTITY_MESSAGES_DELAYED)
        .with_description("Active messages of an entity that wait for another attempt")
        .with_callback(move |observer| {
            for gauges in entities() {
                observer.observe(gauges.counts.delayed, &[entity(&gauges)]);
            }
        })
        .build();
    let (entities, watched) = (largest(broker), broker.clone());
    meter
        .f64_observable_gauge(ENTITY_OLDEST_AGE)
        .with_description(
            "Time for which the oldest message of an entity has waited for a receiver",
        )
        .with_unit("s")
        .with_callback(move |observer| {
            let now = watched.now();
            for gauges in entities() {
                observer.observe(gauges.oldest_age_seconds(now), &[entity(&gauges)]);
            }
        })
        .build();
    let entities = largest(broker);
    meter
        .u64_observable_gauge(ENTITY_SIZE_BYTES)
        .with_description("Sum of stored sizes of an entity")
        .with_unit("By")
        .with_callback(move |observer| {
            for gauges in entities() {
                observer.observe(gauges.size_bytes, &[entity(&gauges)]);
            }
        })
        .build();
}

fn entity(gauges: &Gauges) -> KeyValue {
    KeyValue::new("entity", gauges.path.to_string())
}

/// Registers the gauges of a broker that owns the shards of a store.
fn observe_ownership(meter: &Meter, broker: &Broker) {
    let watched = broker.clone();
    meter
        .f64_observable_gauge(LEASE_SECONDS)
        .with_description("Time that is left of the lease of this broker")
        .with_unit("s")
        .with_callback(move |observer| {
            let left = watched.lease_left().unwrap_or_default();
            observer.observe(left.as_seconds_f64(), &[]);
        })
        .build();
    meter
        .u64_observable_gauge(STANDBY)
        .with_description("Whether this process stands by for another broker")
        .with_callback(|observer| observer.observe(0, &[]))
        .build();
    let watched = broker.clone();
    meter
        .u64_observable_gauge(SHARDS)
        .with_description("Shards that this broker owns, by state")
        .with_callback(move |observer| {
            let is_suspended = watched.is_suspended();
            for (state, is_so) in [("serving", !is_suspended), ("suspended", is_suspended)] {
                let count = if is_so { u64::from(watched.shard_count()) } else { 0 };
                observer.observe(count, &[KeyValue::new("state", state)]);
            }
        })
        .build();
    let watched = broker.clone();
    meter
        .f64_observable_gauge(CLOCK_OFFSET_SECONDS)
        .with_description("Time by which the database is ahead of this broker")
        .with_unit("s")
        .with_callback(move |observer| {
            observer.observe(watched.clock_offset().as_seconds_f64(), &[]);
        })
        .build();
}
