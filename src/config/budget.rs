//! Sums the memory that clients can use for work in progress. Each row of such work in
//! docs/reference/security.md has a row here, and a test compares both lists. The server logs a
//! warning at start if the sum exceeds the memory of the machine.
//!
//! A few clients can fill the memory that clients share; provide it from the first day. The rest
//! belongs to connections: it reaches its sum only when all permitted connections are open and each
//! uses its maximum.

use std::cmp::Reverse;

use peeklock::audit::{AuditTrail, MemoryTrail};
use peeklock::core::admission::sockets;
use peeklock::declaration::PLAN_RULE_BYTES_MAX;
use peeklock::operations::Operations;
use peeklock::otlp::{ENTITY_GAUGES_BYTES, TRACES_BYTES_MAX};
use peeklock::postgres::PostgresConfig;
use peeklock::store::JournalConfig;
use peeklock::{Access, ChecksConfig, JourneysConfig, SamplesConfig, SeriesConfig};

use super::{Config, StoreKind};

/// The largest AMQP message, which may exceed the shared memory for messages, in each direction.
const LARGE_BYTES: u64 = 2 * (84 << 20);
/// A plan and its encoded answer; each contains the existing rules.
const PLAN_BYTES: u64 = 2 * PLAN_RULE_BYTES_MAX as u64;
/// Entries that wait for the audit trail, and a page that is read.
const AUDIT_BYTES: u64 = AuditTrail::WAITING_BYTES_MAX as u64 + (8 << 20);
/// One entity on the metrics page.
const PAGE_ENTITY_BYTES: u64 = 1_000;
/// The record of a transaction that timed out and that its client has not discharged.
const TIMED_OUT_BYTES: u64 = 8;
/// The keys of an issuer.
const ISSUER_BYTES: u64 = 256 << 10;
/// Partly read PROXY protocol headers of one listener.
const PROXY_BYTES: u64 = 256 * (4 << 10);
/// Connections of one port whose protocol is not detected yet.
const UNSPOKEN_BYTES: u64 = 256 * (16 << 10);
/// A TLS handshake.
const HANDSHAKE_BYTES: u64 = 64 << 10;

/// An HTTP connection: its read and write buffers.
const HTTP_BYTES: u64 = 64 << 10;
/// The part of an HTTP request that is not reserved in shared memory, with body bytes that are not
/// examined yet.
const HTTP_REQUEST_BYTES: u64 = (16 + 80) << 10;
/// The part of an HTTP answer that is not reserved in shared memory.
const HTTP_ANSWER_BYTES: u64 = 16 << 10;
/// A WebSocket connection: retained buffers of partly read and partly written frames.
const WEBSOCKET_BYTES: u64 = 128 << 10;
/// The part of a WebSocket frame that is not reserved in shared memory, and its read buffer.
const FRAME_BYTES: u64 = (16 + 8) << 10;
/// An AMQP connection: its read buffer and the part of messages that is not reserved in shared
/// memory; within WebSocket also retained buffers of partly read and partly written messages, and
/// pongs.
const AMQP_BYTES: u64 = (48 + 144) << 10;
/// A connection to another broker or a webhook: read and write buffers, the largest answer and its
/// decoded form, the unconfirmed list or request, and TLS.
const FORWARD_BYTES: u64 = 3 << 20;
/// Unread output of an AMQP or WebSocket connection that is not reserved in shared memory.
const UNTAKEN_BYTES: u64 = 64 << 10;
/// An AMQP or WebSocket link: its state, its names, and its entries in its entity and in the rights
/// of its client.
const LINK_BYTES: u64 = 2 << 10;
/// AMQP links that each connection has without sharing, and the size of each further link, with its
/// session and token.
const AMQP_OWN_LINKS: usize = 256;
const SHARED_LINK_BYTES: u64 = 4 << 10;
/// Attach requests of AMQP links that are not attached yet.
const ATTACH_BYTES: u64 = 64 << 10;
/// The token of a connection, and the tokens of an AMQP connection.
const TOKEN_BYTES: u64 = 16 << 10;
const AMQP_TOKENS_BYTES: u64 = 128 << 10;
/// Messages that wait for the reader of a tap.
const TAP_BYTES: u64 = 256 << 10;
/// A page of hits, a part of a body, and the groups of a search.
const SEARCH_BYTES: u64 = 4 << 20;
/// Names that are remembered of clients whose links have ended.
const ENDED_CLIENTS_BYTES: u64 = 6 << 20;
/// Memory of a client and of a link in the list of clients.
const CLIENT_BYTES: u64 = 600;
const CLIENT_LINK_BYTES: u64 = 400;
/// Maximum number of links in that list.
const CLIENT_LINKS_MAX: u64 = 1_000_000;
/// Cached rights of a client.
const RIGHTS_BYTES: u64 = 16 << 10;
/// Additional memory of a TLS connection, by the limits of the library: partly read and partly
/// written records.
const TLS_BYTES: u64 = 100 << 10;

/// The maximum memory for one kind of work in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name of the row in docs/reference/security.md.
    pub name: &'static str,
    /// The setting that lowers it; none if it is fixed.
    pub setting: Option<&'static str>,
    /// Memory that all clients share.
    pub shared_bytes: u64,
    /// Additional memory of all connections, if each uses its maximum.
    pub connection_bytes: u64,
}

impl Row {
    /// Shared memory without a setting.
    const fn fixed(name: &'static str, bytes: u64) -> Self {
        Self { name, setting: None, shared_bytes: bytes, connection_bytes: 0 }
    }

    /// Shared memory with a setting.
    const fn shared(name: &'static str, setting: &'static str, bytes: u64) -> Self {
        Self { name, setting: Some(setting), shared_bytes: bytes, connection_bytes: 0 }
    }

    /// Memory of `count` connections, each with `bytes`.
    fn each(name: &'static str, setting: &'static str, (count, bytes): (u64, u64)) -> Self {
        let setting = Some(setting);
        Self { name, setting, shared_bytes: 0, connection_bytes: count.saturating_mul(bytes) }
    }

    /// Adds the memory of `count` connections, each with `bytes`.
    fn and_each(self, (count, bytes): (u64, u64)) -> Self {
        Self { connection_bytes: count.saturating_mul(bytes), ..self }
    }

    /// Shared memory and the memory of connections.
    pub const fn bytes(&self) -> u64 {
        self.shared_bytes.saturating_add(self.connection_bytes)
    }
}

/// Describes the largest `count` rows that have a setting, such as
/// `limits.broker_inbound_bytes_max: 256 MiB for incoming commands`.
pub fn largest(rows: &[Row], count: usize, bytes: impl Fn(&Row) -> u64) -> String {
    let lowered = rows.iter().filter_map(|row| Some((bytes(row), row.setting?, row.name)));
    let mut sized: Vec<(u64, &str, &str)> = lowered.collect();
    sized.sort_by_key(|(bytes, ..)| Reverse(*bytes));
    let described = sized
        .into_iter()
        .take(count)
        .map(|(bytes, setting, name)| format!("{setting}: {} MiB for {name}", bytes >> 20));
    described.collect::<Vec<_>>().join("; ")
}

/// Total of the rows.
pub fn sum(rows: &[Row], bytes: impl Fn(&Row) -> u64) -> u64 {
    rows.iter().map(bytes).fold(0, u64::saturating_add)
}

impl Config {
    /// Maximum memory for work in progress, by row. It excludes the content of entities.
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

    /// Requests to the broker, their results, and telemetry.
    fn budget_of_broker(&self) -> Vec<Row> {
        let limits = &self.settings.limits;
        let inbound = "limits.broker_inbound_bytes_max";
        let inbound_bytes = limits.broker_inbound_bytes_max;
        let described = "limits.broker_description_bytes_max";
        let explained_bytes = limits.broker_description_bytes_max;
        let [_, websocket, amqp] = self.connection_counts();
        let on_disk = !self.server.ephemeral;
        let (unstored_bytes, cache, cache_bytes) = match (on_disk, self.store.kind) {
            (false, _) => (0, "journal.cache_bytes", 0),
            (true, StoreKind::Journal) => {
                (JournalConfig::UNSTORED_BYTES_MAX, "journal.cache_bytes", self.journal.cache_bytes)
            }
            // In the batches, and again in their rows.
            (true, StoreKind::Postgres) => (
                PostgresConfig::UNSTORED_BYTES_MAX.saturating_mul(2),
                "store.postgres.cache_bytes",
                self.postgres.cache_bytes,
            ),
        };
        let undo = if on_disk { 0 } else { Operations::UNDO_MEMORY_MAX };
        let exports = if on_disk { 0 } else { Operations::EXPORT_MEMORY_MAX };
        let trail = if on_disk { 0 } else { MemoryTrail::BYTES_MAX as u64 };
        let series = if self.console.series { SeriesConfig::default().bytes_max } else { 0 };
        let journeys = JourneysConfig::default().bytes_max();
        let journeys = if self.console.journeys { journeys } else { 0 };
        let samples = if self.console.samples { SamplesConfig::default().bytes_max } else { 0 };
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
            // A message larger than the limit passes when no other message is in transfer.
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
            Row::shared(
                "open taps",
                "limits.tap_count_max",
                (limits.tap_count_max as u64).saturating_mul(TAP_BYTES),
            ),
            Row::shared(
                "open searches",
                "limits.search_count_max",
                (limits.search_count_max as u64).saturating_mul(SEARCH_BYTES),
            ),
            Row::shared("series of entities", "console.series", series),
            Row::shared("journeys of messages", "console.journeys", journeys),
            Row::shared("samples of topics", "console.samples", samples),
            Row::fixed("checks of entities", ChecksConfig::BYTES_MAX),
            Row::fixed("entries that wait for the audit trail", AUDIT_BYTES),
            Row::fixed("audit trail of an ephemeral broker", trail),
            Row::fixed("jobs of operators", Operations::BYTES_MAX),
            Row::fixed("messages of jobs that can be undone, of an ephemeral broker", undo),
            Row::fixed("files of exports, of an ephemeral broker", exports),
            Row::fixed("names of clients whose links have ended", ENDED_CLIENTS_BYTES),
            Row::fixed("data waiting for the disk", unstored_bytes),
            Row::shared("content cache", cache, cache_bytes),
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

    /// Input and output of each transport.
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

    /// Memory of open connections without requests.
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
            // No connection has more links than its own.
            false => 0,
        };
        let issuer = if self.jwt.issuer.is_empty() { 0 } else { ISSUER_BYTES };
        let tokens = single
            .saturating_mul(TOKEN_BYTES)
            .saturating_add(amqp.saturating_mul(AMQP_TOKENS_BYTES));
        let tls = if self.tls.enabled { TLS_BYTES } else { 0 };
        let listed_links = websocket
            .saturating_mul(self.websocket.link_count_max as u64)
            .saturating_add(amqp.saturating_mul(own_links as u64))
            .saturating_add(shared_links)
            .min(CLIENT_LINKS_MAX);
        let listed = all
            .saturating_mul(CLIENT_BYTES)
            .saturating_add(listed_links.saturating_mul(CLIENT_LINK_BYTES));
        let count_max = "limits.connection_count_max";
        vec![
            Row::each("HTTP connections", "http.connection_count_max", (http, HTTP_BYTES)),
            Row::each(
                "WebSocket connections",
                "websocket.connection_count_max",
                (websocket, WEBSOCKET_BYTES),
            ),
            // Connections without a slot use the same amount.
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
            Row::each("list of clients for operators", count_max, (1, listed)),
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
