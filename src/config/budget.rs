//! Memory that clients can use for work in progress: a row for each such row in docs/reference/security.md, so
//! that none is left out of the sum.
//!
//! Room that clients share is full with a few of them already, and is what a machine should have from the first day. The
//! rest is of each connection: it comes to its sum only when there are as many connections as there may be, and each of
//! them does its worst.

use std::cmp::Reverse;

use peeklock::Access;
use peeklock::core::admission::sockets;
use peeklock::declaration::PLAN_RULE_BYTES_MAX;
use peeklock::otlp::{ENTITY_GAUGES_BYTES, TRACES_BYTES_MAX};
use peeklock::store::JournalConfig;

use super::Config;

/// The one message over AMQP that is larger than others may be together, each way.
const LARGE_BYTES: u64 = 2 * (84 << 20);
/// A plan, and the form in which it is answered, of which each has what is told of rules that are there.
const PLAN_BYTES: u64 = 2 * PLAN_RULE_BYTES_MAX as u64;
/// What an entity takes on the metrics page.
const PAGE_ENTITY_BYTES: u64 = 1_000;
/// What is remembered of a transaction that was rolled back before its client has ended it.
const TIMED_OUT_BYTES: u64 = 8;
/// The keys of an issuer.
const ISSUER_BYTES: u64 = 256 << 10;
/// Headers of proxies that have begun, of one listener.
const PROXY_BYTES: u64 = 256 * (4 << 10);
/// Connections of one port that have not shown their protocol.
const UNSPOKEN_BYTES: u64 = 256 * (16 << 10);
/// A TLS handshake.
const HANDSHAKE_BYTES: u64 = 64 << 10;

/// Of a connection over HTTP: what is read and written at once.
const HTTP_BYTES: u64 = 64 << 10;
/// What its request needs no room for, and what of a body nobody has looked at yet.
const HTTP_REQUEST_BYTES: u64 = (16 + 80) << 10;
/// What its answer needs no room for.
const HTTP_ANSWER_BYTES: u64 = 16 << 10;
/// Of a connection over WebSocket: what is kept of the pieces of frames that were read and written last.
const WEBSOCKET_BYTES: u64 = 128 << 10;
/// What its frame needs no room for, and what is read at once.
const FRAME_BYTES: u64 = (16 + 8) << 10;
/// Of a connection over AMQP: what is read at once, and what of its messages needs no room; within WebSocket also what is
/// kept of the pieces of messages that were read and written last, and pongs.
const AMQP_BYTES: u64 = (48 + 144) << 10;
/// Of a connection to another broker or a webhook: what is read and written at once, the largest answer and what is made of
/// it, the list or request that is not confirmed, TLS.
const FORWARD_BYTES: u64 = 3 << 20;
/// What a connection over AMQP or WebSocket has not taken, without room for it.
const UNTAKEN_BYTES: u64 = 64 << 10;
/// A link over AMQP or WebSocket: itself, its names, what its entity and the rights of its client know of it.
const LINK_BYTES: u64 = 2 << 10;
/// Links over AMQP that each connection has of its own, and what one beyond those may take, with its session and its
/// token.
const AMQP_OWN_LINKS: usize = 256;
const SHARED_LINK_BYTES: u64 = 4 << 10;
/// What is asked of links over AMQP that are not attached yet.
const ATTACH_BYTES: u64 = 64 << 10;
/// The token of a connection, and those of a connection over AMQP.
const TOKEN_BYTES: u64 = 16 << 10;
const AMQP_TOKENS_BYTES: u64 = 128 << 10;
/// What is remembered of what a client may do.
const RIGHTS_BYTES: u64 = 16 << 10;
/// What TLS takes more of a connection, by the bounds of the library: records that were read and written in part.
const TLS_BYTES: u64 = 100 << 10;

/// What clients may have under way of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name of the row in docs/reference/security.md.
    pub what: &'static str,
    /// The setting that lowers it; none of what is fixed.
    pub setting: Option<&'static str>,
    /// In room that all of them share.
    pub shared_bytes: u64,
    /// Of all connections beside that, when each has all that it may have.
    pub connection_bytes: u64,
}

impl Row {
    /// What is shared, and nobody can change.
    const fn fixed(what: &'static str, bytes: u64) -> Self {
        Self { what, setting: None, shared_bytes: bytes, connection_bytes: 0 }
    }

    /// What is shared.
    const fn shared(what: &'static str, setting: &'static str, bytes: u64) -> Self {
        Self { what, setting: Some(setting), shared_bytes: bytes, connection_bytes: 0 }
    }

    /// What each of so many has.
    fn each(what: &'static str, setting: &'static str, (count, bytes): (u64, u64)) -> Self {
        let setting = Some(setting);
        Self { what, setting, shared_bytes: 0, connection_bytes: count.saturating_mul(bytes) }
    }

    /// This, and what each of so many has beside what is shared.
    fn and_each(self, (count, bytes): (u64, u64)) -> Self {
        Self { connection_bytes: count.saturating_mul(bytes), ..self }
    }

    /// All of it.
    pub const fn bytes(&self) -> u64 {
        self.shared_bytes.saturating_add(self.connection_bytes)
    }
}

/// The largest of these rows, with the settings that lower them, such as `limits.broker_inbound_bytes_max: 256 MiB for
/// incoming commands`.
pub fn largest(rows: &[Row], count: usize, bytes: impl Fn(&Row) -> u64) -> String {
    let lowered = rows.iter().filter_map(|row| Some((bytes(row), row.setting?, row.what)));
    let mut sized: Vec<(u64, &str, &str)> = lowered.collect();
    sized.sort_by_key(|(bytes, ..)| Reverse(*bytes));
    let told = sized
        .into_iter()
        .take(count)
        .map(|(bytes, setting, what)| format!("{setting}: {} MiB for {what}", bytes >> 20));
    told.collect::<Vec<_>>().join("; ")
}

/// What rows come to.
pub fn sum(rows: &[Row], bytes: impl Fn(&Row) -> u64) -> u64 {
    rows.iter().map(bytes).fold(0, u64::saturating_add)
}

impl Config {
    /// What the process may hold in memory for what is under way at most, besides what its entities keep.
    pub fn budget(&self) -> Vec<Row> {
        let mut rows = self.budget_of_broker();
        rows.extend(self.budget_of_transports());
        rows.extend(self.budget_of_connections());
        rows
    }

    /// Open connections of HTTP, WebSocket and AMQP, as factors.
    fn connection_counts(&self) -> [u64; 3] {
        self.connections().map(|count| count as u64)
    }

    /// What is asked of the broker, what it makes of that, and what it tells.
    fn budget_of_broker(&self) -> Vec<Row> {
        let limits = &self.settings.limits;
        let inbound = "limits.broker_inbound_bytes_max";
        let inbound_bytes = limits.broker_inbound_bytes_max;
        let described = "limits.broker_description_bytes_max";
        let explained_bytes = limits.broker_description_bytes_max;
        let [_, websocket, amqp] = self.connection_counts();
        let on_disk = !self.server.ephemeral;
        let if_on_disk = |bytes: u64| if on_disk { bytes } else { 0 };
        let gauged = self.gauged_entities() as u64;
        let collector = !self.otlp.endpoint.is_empty();
        let traces = if collector && self.otlp.traces { TRACES_BYTES_MAX } else { 0 };
        let gauges = if collector && self.otlp.metrics { ENTITY_GAUGES_BYTES } else { 0 };
        vec![
            Row::shared("incoming commands", inbound, inbound_bytes),
            Row::shared("management requests", inbound, inbound_bytes / 2),
            Row::shared("open transactions", inbound, inbound_bytes / 2).and_each((
                websocket.saturating_add(amqp),
                (limits.transaction_open_count_max as u64).saturating_mul(TIMED_OUT_BYTES),
            )),
            Row::shared(
                "messages during rule evaluation",
                "limits.broker_judged_bytes_max",
                limits.broker_judged_bytes_max,
            ),
            // What is larger passes alone.
            Row::shared(
                "messages in transfer to an entity or a forwarder",
                "limits.broker_loaded_bytes_max",
                limits.broker_loaded_bytes_max.max(limits.message_bytes_max),
            ),
            Row::fixed(
                "lists and declaration plans",
                Access::LISTS_MAX
                    .saturating_mul(PLAN_BYTES)
                    .saturating_add(Access::CARRIED_OUT_BYTES_MAX),
            ),
            Row::shared(
                "explanations of rules",
                described,
                Access::EXPLANATIONS_MAX.saturating_mul(explained_bytes),
            ),
            Row::fixed("data waiting for the disk", if_on_disk(JournalConfig::UNSTORED_BYTES_MAX)),
            Row::shared(
                "content cache",
                "journal.cache_bytes",
                if_on_disk(self.journal.cache_bytes),
            ),
            Row::shared("spans waiting for a collector", "otlp.traces", traces),
            Row::shared(
                "entity gauges for a collector",
                "metrics.entities",
                gauged.saturating_mul(gauges),
            ),
            Row::shared(
                "metrics page",
                "metrics.entities",
                gauged.saturating_mul(PAGE_ENTITY_BYTES),
            ),
        ]
    }

    /// What comes in and goes out over each transport.
    fn budget_of_transports(&self) -> Vec<Row> {
        let limits = &self.settings.limits;
        let [http, websocket, amqp] = self.connection_counts();
        let untaken = websocket.saturating_add(amqp);
        let tls = self.tls.enabled;
        let handshakes = if tls { self.tls.handshake_count_max as u64 } else { 0 };
        let listeners = self.addresses().len() as u64;
        vec![
            Row::shared(
                "incoming HTTP requests",
                "http.inbound_bytes_max",
                self.http.inbound_bytes_max,
            )
            .and_each((http, HTTP_REQUEST_BYTES)),
            Row::shared(
                "unread HTTP answers",
                "http.outbound_bytes_max",
                self.http.outbound_bytes_max,
            )
            .and_each((http, HTTP_ANSWER_BYTES)),
            Row::shared(
                "incoming WebSocket frames",
                "websocket.inbound_bytes_max",
                self.websocket.inbound_bytes_max,
            )
            .and_each((websocket, FRAME_BYTES)),
            Row::shared(
                "incoming AMQP messages",
                "amqp.inbound_bytes_max",
                self.amqp.inbound_bytes_max,
            ),
            Row::fixed("one AMQP message over 16 MiB", LARGE_BYTES),
            Row::shared(
                "unread AMQP and WebSocket output",
                "limits.broker_outbound_bytes_max",
                limits.broker_outbound_bytes_max,
            )
            .and_each((untaken, UNTAKEN_BYTES)),
            Row::fixed("PROXY protocol headers", listeners.saturating_mul(PROXY_BYTES)),
            Row::fixed(
                "connections with an unknown protocol",
                self.shared_ports().saturating_mul(UNSPOKEN_BYTES),
            ),
            Row::shared(
                "TLS handshakes",
                "tls.handshake_count_max",
                handshakes.saturating_mul(HANDSHAKE_BYTES),
            ),
        ]
    }

    /// What connections have by being there.
    fn budget_of_connections(&self) -> Vec<Row> {
        let limits = &self.settings.limits;
        let [http, websocket, amqp] = self.connection_counts();
        let all = http.saturating_add(websocket).saturating_add(amqp);
        let single = http.saturating_add(websocket);
        let amqp_sockets = sockets(self.connections()[2]) as u64;
        let links = |count: usize| (count as u64).saturating_mul(LINK_BYTES);
        let own_links = self.amqp.link_count_max.min(AMQP_OWN_LINKS);
        let amqp_links = links(own_links).saturating_add(ATTACH_BYTES);
        let shared_links = match self.amqp.link_count_max > own_links {
            true => self.amqp.shared_link_count_max as u64,
            // Nobody may have more than its own.
            false => 0,
        };
        let issuer = if self.jwt.issuer.is_empty() { 0 } else { ISSUER_BYTES };
        let tokens = single
            .saturating_mul(TOKEN_BYTES)
            .saturating_add(amqp.saturating_mul(AMQP_TOKENS_BYTES));
        let tls = if self.tls.enabled { TLS_BYTES } else { 0 };
        let count_max = "limits.connection_count_max";
        vec![
            Row::each("HTTP connections", "http.connection_count_max", (http, HTTP_BYTES)),
            Row::each(
                "WebSocket connections",
                "websocket.connection_count_max",
                (websocket, WEBSOCKET_BYTES),
            ),
            // Those that have no place have as much.
            Row::each("AMQP connections", "amqp.connection_count_max", (amqp_sockets, AMQP_BYTES)),
            Row::each(
                "WebSocket links",
                "websocket.link_count_max",
                (websocket, links(self.websocket.link_count_max)),
            ),
            Row::each("AMQP links", "amqp.link_count_max", (amqp, amqp_links)),
            Row::shared(
                "AMQP links after the first 256 of a connection",
                "amqp.shared_link_count_max",
                shared_links.saturating_mul(SHARED_LINK_BYTES),
            ),
            Row::shared("tokens", count_max, issuer).and_each((1, tokens)),
            Row::each("cached rights", count_max, (all, RIGHTS_BYTES)),
            Row::each("TLS connections", count_max, (all, tls)),
            Row::each(
                "outgoing connections to brokers and webhooks",
                "limits.forwarder_thread_count_max",
                (limits.forwarder_thread_count_max as u64, FORWARD_BYTES),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
