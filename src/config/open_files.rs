//! How many files may have to be open: what may open any is counted, each by its own limit, and gets less where there are
//! not as many.
//!
//! | What | Bounded by |
//! |---|---|
//! | connections, and sockets beside them | `connection_count_max` of each transport, [`sockets`] |
//! | sockets on their way through the ports that serve everything: that of AMQP, and the gateway | [`GatewayConfig::pending_socket_count_max`], `tls.handshake_count_max` |
//! | threads of forwarders | `limits.forwarder_thread_count_max` |
//! | segments and what else the journal has | `journal.capacity_bytes`, [`JournalConfig::FILES_BESIDE_SEGMENTS`] |
//! | runtimes | `workers` of each listener, `server.arbiters` |

use peeklock::core::admission::sockets;
use peeklock::listen::GatewayConfig;
use peeklock::store::JournalConfig;

use super::Config;
use crate::registry::workers;

/// Of a runtime: what it polls with, the same once more for what registers there, what wakes it, what tells it of signals.
const RUNTIME_FILES: u64 = 4;
/// Of who connects somewhere: a runtime, a connection and the one that is made in its place, two to ask for an address.
const CLIENT_FILES: u64 = RUNTIME_FILES + 4;
/// Standard streams, the pair by which signals come, and what is open for a moment: the configuration, certificates, tokens,
/// what the system tells of memory, the socket of the service manager.
const PROCESS_FILES: u64 = 3 + 2 + 8;
/// Who sends traces and who sends metrics.
const SENDERS: u64 = 2;
/// A listener, and the socket that it has accepted and has no place for.
const LISTENER_FILES: u64 = 2;
/// A journal that may be as large as the disk is counted as one of a hundred gigabytes.
const JOURNAL_BYTES: u64 = 100 << 30;

/// How many there may be of what may open files.
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

    /// A part of each, and one at least.
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
    /// How many files may have to be open.
    pub fn open_files(&self) -> u64 {
        self.files_of(self.openers())
            .saturating_add(self.store_files())
            .saturating_add(self.fixed_files())
    }

    /// Lowers the connections of all transports and the threads of forwarders, in proportion, where not as many files may be
    /// open as they and the store need; returns how many connections are left. The store comes first, with half of all at
    /// most: without a file it ends, a client without one comes again.
    pub fn fit_connections(&mut self, files_max: u64) -> Option<u64> {
        if self.open_files() <= files_max {
            return None;
        }
        let kept = self.store_files().min(files_max / 2).saturating_add(self.fixed_files());
        let left = files_max.saturating_sub(kept);
        let wanted = self.openers();
        let whole = wanted.connections();
        // The largest part that there are files for, between one that there are and one that there are not.
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

    /// The files of so many.
    fn files_of(&self, openers: Openers) -> u64 {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let Openers { http, websocket, amqp, forwarders } = openers;
        let [http, websocket, amqp] = [http, websocket, amqp].map(|it| sockets(count(it)) as u64);
        let behind = http.saturating_add(websocket).saturating_add(amqp);
        let on_their_way =
            GatewayConfig::pending_socket_count_max(count(behind), self.handshakes());
        // HTTP has its sockets at these ports beside those of its own port; the others share theirs.
        let shared_ports =
            (on_their_way as u64).saturating_mul(self.shared_ports()).saturating_add(http);
        [http, websocket, amqp, shared_ports, forwarders.saturating_mul(CLIENT_FILES)]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Ports that serve everything: that of AMQP, and the gateway.
    pub(super) fn shared_ports(&self) -> u64 {
        1 + u64::from(self.gateway.address.is_some())
    }

    /// TLS handshakes at the same time: at the port of a transport they have a place there.
    const fn handshakes(&self) -> usize {
        if self.tls.enabled { self.tls.handshake_count_max } else { 0 }
    }

    /// What is open however many clients there are.
    fn fixed_files(&self) -> u64 {
        let gateway = self.gateway.address.map(|_| self.gateway.workers);
        let listeners = [self.http.workers, self.websocket.workers, self.amqp.workers];
        let listeners: Vec<usize> = listeners.into_iter().chain(gateway).collect();
        let listening = (listeners.len() as u64).saturating_mul(LISTENER_FILES);
        // HTTP shares its sockets out among its threads, and rounds up.
        let rounded = workers(self.http.workers) as u64;
        let threads = listeners.into_iter().chain([self.server.arbiters]).map(workers);
        // Those of the process, of the broker and of HTTP, and what HTTP accepts with.
        let runtimes = threads.fold(4, |sum: u64, count| sum.saturating_add(count as u64));
        let journal = match self.server.ephemeral {
            true => 0,
            false => JournalConfig::FILES_BESIDE_SEGMENTS as u64,
        };
        let senders = if self.otlp.endpoint.is_empty() { 0 } else { SENDERS };
        let readers = u64::from(self.jwt.is_used());
        [
            PROCESS_FILES,
            listening,
            rounded,
            runtimes.saturating_mul(RUNTIME_FILES),
            journal,
            (senders + readers) * CLIENT_FILES,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// The segments of a journal as large as it may be.
    fn store_files(&self) -> u64 {
        let bytes = match (self.server.ephemeral, self.journal.capacity_bytes) {
            (true, _) => 0,
            (false, 0) => JOURNAL_BYTES,
            // The log may be twice as large as what is needed of it.
            (false, bytes) => bytes.saturating_mul(2),
        };
        bytes / self.journal.segment_bytes.max(1)
    }
}
