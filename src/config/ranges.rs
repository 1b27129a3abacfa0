//! The range of each number and duration that is no limit of the namespace; those have theirs in
//! `Limits::validate`.

use std::ops::RangeInclusive;

use peeklock::limits::Limits;
use peeklock::time::TimeSpan;

use super::Config;
use super::text::span_text;

/// Threads of one kind: more than any machine has cores, fewer than it can start.
const THREADS: RangeInclusive<u64> = 0..=1_024;
/// Connections, where zero stands for the limit of the namespace.
const CONNECTIONS: RangeInclusive<u64> = 0..=1_000_000;
/// Memory for what is under way: less serves nobody, more is a slip of the pen.
const MEMORY: RangeInclusive<u64> = 64 << 10..=1 << 40;
/// Room for messages, where zero stands for what there is.
const ROOM: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Time for something that a peer has to do.
const PATIENCE: RangeInclusive<TimeSpan> = TimeSpan::from_ms(10)..=TimeSpan::from_minutes(60);

/// The silence of an AMQP client: .NET closes a connection whose other end announces less than five seconds (AMQP-05).
const IDLE: RangeInclusive<TimeSpan> = TimeSpan::from_seconds(10)..=TimeSpan::from_minutes(60);

/// The first key whose value is outside its range, with the range.
pub(super) fn judge(config: &Config, limits: &Limits) -> Result<(), (&'static str, String)> {
    let Config { server, journal, http, websocket, amqp, gateway, tls, .. } = config;
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    for (key, value, range, unit) in [
        ("server.arbiters", count(server.arbiters.0), THREADS, "threads"),
        ("http.workers", count(http.workers.0), THREADS, "threads"),
        ("websocket.workers", count(websocket.workers.0), THREADS, "threads"),
        ("amqp.workers", count(amqp.workers.0), THREADS, "threads"),
        ("gateway.workers", count(gateway.workers.0), THREADS, "threads"),
        (
            "http.connection_count_max",
            count(http.connection_count_max.0),
            CONNECTIONS,
            "connections",
        ),
        (
            "websocket.connection_count_max",
            count(websocket.connection_count_max.0),
            CONNECTIONS,
            "connections",
        ),
        // As many as there are places beside the connections there may be.
        ("tls.handshake_count_max", count(tls.handshake_count_max.0), 1..=256, "handshakes"),
        (
            "amqp.connection_count_max",
            count(amqp.connection_count_max.0),
            CONNECTIONS,
            "connections",
        ),
        ("journal.cache_bytes", journal.cache_bytes.0, 0..=1 << 40, "bytes"),
        ("http.inbound_bytes_max", http.inbound_bytes_max.0, MEMORY, "bytes"),
        ("http.outbound_bytes_max", http.outbound_bytes_max.0, MEMORY, "bytes"),
        ("websocket.inbound_bytes_max", websocket.inbound_bytes_max.0, MEMORY, "bytes"),
        ("websocket.outbound_bytes_max", websocket.outbound_bytes_max.0, MEMORY, "bytes"),
        ("amqp.inbound_bytes_max", amqp.inbound_bytes_max.0, MEMORY, "bytes"),
        ("amqp.outbound_bytes_max", amqp.outbound_bytes_max.0, MEMORY, "bytes"),
        ("amqp.link_count_max", count(amqp.link_count_max.0), 1..=65_536, "links"),
        ("amqp.shared_link_count_max", count(amqp.shared_link_count_max.0), 0..=1_000_000, "links"),
        (
            "amqp.unsettled_count_max",
            u64::from(amqp.unsettled_count_max.0),
            1..=1 << 20,
            "deliveries",
        ),
        ("websocket.link_count_max", count(websocket.link_count_max.0), 1..=65_536, "links"),
        (
            "websocket.unsettled_count_max",
            u64::from(websocket.unsettled_count_max.0),
            1..=1 << 20,
            "deliveries",
        ),
        (
            "websocket.frame_bytes_max",
            count(websocket.frame_bytes_max.0),
            // A frame has to hold a hello at least; one of a gigabyte holds any message.
            4 << 10..=1 << 30,
            "bytes",
        ),
    ] {
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            return Err((
                key,
                format!("{value} is out of range; write a number from {least} to {most} {unit}"),
            ));
        }
    }
    for (key, value) in [
        ("server.ephemeral_bytes_max", server.ephemeral_bytes_max.0),
        ("journal.capacity_bytes", journal.capacity_bytes.0),
    ] {
        if value != 0 && !ROOM.contains(&value) {
            let (least, most) = (ROOM.start(), ROOM.end());
            return Err((
                key,
                format!(
                    "{value} is out of range; write 0, or a number from {least} to {most} bytes"
                ),
            ));
        }
    }
    for (key, value, range) in [
        ("http.head_timeout", http.head_timeout.0, PATIENCE),
        ("http.body_timeout", http.body_timeout.0, PATIENCE),
        ("http.write_timeout", http.write_timeout.0, PATIENCE),
        ("http.operation_timeout", http.operation_timeout.0, PATIENCE),
        ("http.keep_alive", http.keep_alive.0, PATIENCE),
        ("tls.handshake_timeout", tls.handshake_timeout.0, PATIENCE),
        ("websocket.handshake_timeout", websocket.handshake_timeout.0, PATIENCE),
        ("websocket.frame_timeout", websocket.frame_timeout.0, PATIENCE),
        ("websocket.heartbeat", websocket.heartbeat.0, PATIENCE),
        ("amqp.opening_timeout", amqp.opening_timeout.0, PATIENCE),
        ("gateway.opening_timeout", gateway.opening_timeout.0, PATIENCE),
        ("amqp.idle_timeout", amqp.idle_timeout.0, IDLE),
        ("amqp.write_timeout", amqp.write_timeout.0, PATIENCE),
        ("websocket.grace", websocket.grace.0, TimeSpan::ZERO..=TimeSpan::from_minutes(60)),
    ] {
        if !range.contains(&value) {
            let [value, least, most] = [value, *range.start(), *range.end()].map(span_text);
            return Err((
                key,
                format!("{value} is out of range; write a duration from {least} to {most}"),
            ));
        }
    }
    // A whole message has to fit beside its frame's own bytes, or none of that size can ever be sent.
    let frame = count(websocket.frame_bytes_max.0);
    if frame > websocket.inbound_bytes_max.0 {
        let detail = format!(
            "{frame} bytes for one frame exceed websocket.inbound_bytes_max = {}, the limit for \
             all frames together; lower one or raise the other",
            websocket.inbound_bytes_max.0
        );
        return Err(("websocket.frame_bytes_max", detail));
    }
    if limits.connection_inbound_bytes_max > limits.broker_inbound_bytes_max {
        let detail = format!(
            "{} bytes for one connection exceed limits.broker_inbound_bytes_max = {}, the limit \
             for all together; lower one or raise the other",
            limits.connection_inbound_bytes_max, limits.broker_inbound_bytes_max
        );
        return Err(("limits.connection_inbound_bytes_max", detail));
    }
    Ok(())
}
