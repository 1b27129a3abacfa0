//! Counts the files that the process may open, and lowers connection limits where the system
//! permits fewer. Each kind of file has its own limit:
//!
//! | Files | Limit |
//! |---|---|
//! | connections, and additional sockets | `connection_count_max` of each transport, [`sockets`] |
//! | pending sockets at ports for all protocols (AMQP and the gateway) | [`GatewayConfig::pending_socket_count_max`], `tls.handshake_count_max` |
//! | threads of forwarders | `limits.forwarder_thread_count_max` |
//! | segments and other files of the journal | `journal.capacity_bytes`, [`JournalConfig::FILES_BESIDE_SEGMENTS`] |
//! | connections to a database, and the lock of the data directory | [`POSTGRES_FILES`] |
//! | files of the audit trail | [`AuditTrail::FILES`] |
//! | files of jobs | [`Operations::FILES`] |
//! | runtimes | `workers` of each listener, `server.arbiters` |

use peeklock::audit::AuditTrail;
use peeklock::core::admission::sockets;
use peeklock::listen::GatewayConfig;
use peeklock::operations::Operations;
use peeklock::store::JournalConfig;

use super::{Config, StoreKind};
use crate::registry::workers;

/// A runtime: its poll descriptor, the duplicate for registration, its waker, and the pipe for
/// signals.
const RUNTIME_FILES: u64 = 4;
/// An outgoing client: a runtime, a connection and its replacement, and two sockets for name
/// resolution.
const CLIENT_FILES: u64 = RUNTIME_FILES + 4;
/// Standard streams, the pair for signals, and files that are open for a moment: the configuration,
/// certificates, tokens, memory reports of the system, the socket of the service manager.
const PROCESS_FILES: u64 = 3 + 2 + 8;
/// The senders of traces and of metrics.
const SENDERS: u64 = 2;
/// A listener, and one accepted socket that has no slot.
const LISTENER_FILES: u64 = 2;
/// Assumed size of a journal whose only limit is the disk: 100 GiB.
const JOURNAL_BYTES: u64 = 100 << 30;

/// The store in PostgreSQL: its runtime, eight connections and two sockets for name resolution
/// (CLU-60), and the data directory with its lock and eight reserved descriptors.
const POSTGRES_FILES: u64 = RUNTIME_FILES + 8 + 2 + 2 + 8;

/// The number of each kind of file owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Openers {
    http: u64,
    websocket: u64,
    amqp: u64,
    forwarders: u64,
}

impl Openers {
    const fn connections(self) -> u64 {
        self.http.saturating_add(self.websocket).saturating_add(self.amqp)
    }

    /// Scales each number by `part / whole`, to at least 1.
    fn part(self, part: u64, whole: u64) -> Self {
        let part_of = |count: u64| {
            let count = u128::from(count) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(count).unwrap_or(u64::MAX).max(1)
        };
        let Self { http, websocket, amqp, forwarders } = self;
        Self {
            http: part_of(http),
            websocket: part_of(websocket),
            amqp: part_of(amqp),
            forwarders: part_of(forwarders),
        }
    }
}

impl Config {
    /// Maximum number of open files.
    pub fn open_files(&self) -> u64 {
        self.files_of(self.openers())
            .saturating_add(self.store_files())
            .saturating_add(self.fixed_files())
    }

    /// Lowers the connections of all transports and the threads of forwarders, in proportion, if
    /// the process may open only `files_max` files; returns the remaining number of connections.
    /// The store is served first, with at most half of all files: without a file it stops the
    /// broker, while a client can connect again.
    pub fn fit_connections(&mut self, files_max: u64) -> Option<u64> {
        if self.open_files() <= files_max {
            return None;
        }
        let kept = self.store_files().min(files_max / 2).saturating_add(self.fixed_files());
        let left = files_max.saturating_sub(kept);
        let wanted = self.openers();
        let whole = wanted.connections();
        // Binary search for the largest part whose files fit, between one that fits and one that
        // does not.
        let (mut fitting, mut too_large) = (0, whole.saturating_add(1));
        while too_large - fitting > 1 {
            let part = fitting + (too_large - fitting) / 2;
            if self.files_of(wanted.part(part, whole)) <= left {
                fitting = part;
            } else {
                too_large = part;
            }
        }
        let fitted = wanted.part(fitting, whole);
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        self.http.connection_count_max = count(fitted.http);
        self.websocket.connection_count_max = count(fitted.websocket);
        self.amqp.connection_count_max = count(fitted.amqp);
        self.settings.limits.forwarder_thread_count_max = count(fitted.forwarders);
        Some(fitted.connections())
    }

    fn openers(&self) -> Openers {
        let [http, websocket, amqp] = self.connections().map(|count| count as u64);
        let forwarders = self.settings.limits.forwarder_thread_count_max as u64;
        Openers { http, websocket, amqp, forwarders }
    }

    /// Files of these connections and forwarders.
    fn files_of(&self, openers: Openers) -> u64 {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let Openers { http, websocket, amqp, forwarders } = openers;
        let [http, websocket, amqp] = [http, websocket, amqp].map(|it| sockets(count(it)) as u64);
        let behind = http.saturating_add(websocket).saturating_add(amqp);
        let on_their_way =
            GatewayConfig::pending_socket_count_max(count(behind), self.handshakes());
        // HTTP needs its sockets again at these ports; the other transports share theirs.
        let shared_ports =
            (on_their_way as u64).saturating_mul(self.shared_ports()).saturating_add(http);
        [http, websocket, amqp, shared_ports, forwarders.saturating_mul(CLIENT_FILES)]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Ports that serve all protocols: the AMQP port and the gateway.
    pub(super) fn shared_ports(&self) -> u64 {
        1 + u64::from(self.gateway.address.is_some())
    }

    /// Concurrent TLS handshakes. At the port of one transport they use slots of connections.
    const fn handshakes(&self) -> usize {
        if self.tls.enabled { self.tls.handshake_count_max } else { 0 }
    }

    /// Files that are open without any client.
    fn fixed_files(&self) -> u64 {
        let gateway = self.gateway.address.map(|_| self.gateway.workers);
        let listeners = [self.http.workers, self.websocket.workers, self.amqp.workers];
        let listeners: Vec<usize> = listeners.into_iter().chain(gateway).collect();
        let listening = (listeners.len() as u64).saturating_mul(LISTENER_FILES);
        // HTTP divides its sockets among its threads and rounds up.
        let rounded = workers(self.http.workers) as u64;
        let threads = listeners.into_iter().chain([self.server.arbiters]).map(workers);
        // Runtimes of the process, of the broker and of HTTP, and the HTTP acceptor.
        let runtimes = threads.fold(4, |sum: u64, count| sum.saturating_add(count as u64));
        let store = match (self.server.ephemeral, self.store.kind) {
            (true, _) => 0,
            (false, StoreKind::Journal) => JournalConfig::FILES_BESIDE_SEGMENTS as u64,
            (false, StoreKind::Postgres) => POSTGRES_FILES,
        };
        let audit = if self.server.ephemeral { 0 } else { AuditTrail::FILES as u64 };
        let jobs = if self.server.ephemeral { 0 } else { Operations::FILES as u64 };
        let senders = if self.otlp.endpoint.is_empty() { 0 } else { SENDERS };
        let readers = u64::from(self.jwt.is_used());
        [
            PROCESS_FILES,
            listening,
            rounded,
            runtimes.saturating_mul(RUNTIME_FILES),
            store,
            audit,
            jobs,
            (senders + readers) * CLIENT_FILES,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// Segments of a journal of the largest size.
    fn store_files(&self) -> u64 {
        let is_journal = !self.server.ephemeral && self.store.kind == StoreKind::Journal;
        let bytes = match (is_journal, self.journal.capacity_bytes) {
            (false, _) => 0,
            (true, 0) => JOURNAL_BYTES,
            // The log may be twice as large as its live data.
            (true, bytes) => bytes.saturating_mul(2),
        };
        bytes / self.journal.segment_bytes.max(1)
    }
}
