//! Every setting, section by section. The first sentence of its documentation is its cell on the
//! reference page; the whole text is its comment in `peeklock config default`. Limits have their
//! own table.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use peeklock::contract::Ceiling;
use peeklock::listen::Proxies;
use peeklock::metrics_prometheus::EntityGauges;
use peeklock::time::TimeSpan;

use super::forwarders::{SecretDeclaration, TokenDeclaration};
use super::jwt::RoleDeclaration;
use super::table::Allowed::{NotEmpty, Numbers, Spans, Text, ZeroOr};
use super::table::{Setting, field, own_section, section};
use super::text::Ratio;
use super::{LogFormat, StoreKind};

/// Every row, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    [
        NAMESPACE, LOCKS, SESSIONS, FORWARDING, SERVER, STORE, POSTGRES, CLUSTER, JOURNAL, HTTP,
        WEBSOCKET, AMQP, GATEWAY, WEBHOOK, PEERS, TLS, SECURITY, JWT, CONSOLE, LOG, METRICS, OTLP,
    ]
    .into_iter()
    .flatten()
}

/// Threads of one kind: more than the cores of any machine, fewer than a machine can start.
const THREADS: RangeInclusive<u64> = 0..=1_024;
/// Connections, where zero stands for the limit of the namespace.
const CONNECTIONS: RangeInclusive<u64> = 0..=1_000_000;
/// Memory for work in progress: less serves no client, more is a slip of the pen.
const MEMORY: RangeInclusive<u64> = 64 << 10..=1 << 40;
/// Space for messages.
const SPACE: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Links of a connection.
const LINKS: RangeInclusive<u64> = 1..=65_536;
/// Unsettled deliveries of a receiver.
const DELIVERIES: RangeInclusive<u64> = 1..=1 << 20;
/// Time for something that a peer has to do.
const PATIENCE: RangeInclusive<TimeSpan> = spans(10, 3_600_000);

const fn spans(least_ms: i64, most_ms: i64) -> RangeInclusive<TimeSpan> {
    TimeSpan::from_ms(least_ms)..=TimeSpan::from_ms(most_ms)
}

const fn seconds(seconds: i64) -> TimeSpan {
    TimeSpan::from_seconds(seconds)
}

section! {
    NAMESPACE = "namespace" in settings {
        /// Name that clients get in the namespace information
        name, NotEmpty("name");
        /// Default limits; Basic also removes features
        tier as limits.tier, Text("`Basic`, `Standard`, `Premium`");
        /// AutoDeleteOnIdle of entities that are created without one
        auto_delete_on_idle as auto_delete_on_idle_default, Text("at least 5m");
    }
}

section! {
    LOCKS = "locks" in settings {
        /// Releases locks at once when a receiver closes normally; otherwise they expire
        release_on_detach as locks_release_on_detach, Text("");
        /// Releases locks at once when an AMQP connection is lost; otherwise they expire
        ///
        /// Until they expire, the client can settle its messages on the next connection
        release_on_connection_loss as locks_release_on_connection_loss, Text("");
    }
}

section! {
    SESSIONS = "sessions" in settings {
        /// An expired message expires all messages of its session that are not in flight; otherwise only itself
        expire_whole_session as sessions_expire_whole, Text("");
    }
}

section! {
    FORWARDING = "forwarding" in settings {
        /// Queue for messages that cannot be forwarded: transfer dead-letter queue or dead-letter queue
        ///
        /// It belongs to the entity that holds them. Newer documentation of the cloud service describes the dead-letter queue
        failure_target as forwarding_failure_target, Text("`transfer_dead_letter`, `dead_letter`");
        /// Messages to a full destination go to that queue, or wait with all later messages
        ///
        /// "hold": they wait until the destination has space
        on_destination_full as forwarding_on_destination_full, Text("`transfer_dead_letter`, `hold`");
    }
}

own_section! {
    /// The process.
    ServerSection, SERVER = "server" in server {
        /// Directory of messages and other files; created if missing. Only one process can use it
        data_dir: String = "./data".to_owned(), NotEmpty("directory");
        /// Keeps messages only in memory; they are lost at the end of the process
        ephemeral: bool = false, Text("");
        /// Memory for ephemeral messages; over it, sends get `ServerBusy`. 0: half of the free memory
        ephemeral_bytes_max: u64 = 0, ZeroOr(SPACE, "bytes");
        /// Threads that serve entities; 0: one for each core
        arbiters: usize = 0, Numbers(THREADS, "threads");
    }
}

own_section! {
    /// The place of messages.
    StoreSection, STORE = "store" in store {
        /// Place of messages: the journal in `server.data_dir`, or a PostgreSQL database
        ///
        /// server.ephemeral takes precedence. The audit trail, jobs, series and the first key are in server.data_dir in
        /// either case
        kind: StoreKind = StoreKind::Journal, Text("`journal`, `postgres`");
    }
}

own_section! {
    /// The store in PostgreSQL.
    PostgresSection, POSTGRES = "store.postgres" in postgres {
        /// Address of the database, without a password
        ///
        /// For example "postgres://peeklock@db.example.com:5432/peeklock", or "host=/run/postgresql user=peeklock
        /// dbname=peeklock" for a socket on this machine. Connections to other machines use TLS
        url: String = String::new(), Text("`postgres://USER@HOST/DATABASE`");
        /// File with the password of the user; only its first line counts
        password_file: String = String::new(), Text("a path");
        /// Certificates (PEM) of additional trusted authorities
        ca_file: String = String::new(), Text("a path");
        /// Space for messages in the database; over it, sends are refused. 0: no limit
        capacity_bytes: u64 = 0, ZeroOr(SPACE, "bytes");
        /// Memory for message contents; other contents are read from the database
        cache_bytes: u64 = 64 << 20, Numbers(0..=1 << 40, "bytes");
        /// Parts of a new store, fixed when it is created
        ///
        /// An existing store keeps its number
        shards: u32 = 32, Numbers(1..=256, "shards");
        /// Confirms a database that can lose acknowledged messages, and connections without TLS
        ///
        /// The log has a warning for each accepted risk
        i_know: bool = false, Text("");
    }
}

own_section! {
    /// Several brokers over one database.
    ClusterSection, CLUSTER = "cluster" in cluster {
        /// Name of this broker, different for each one. Empty: host name and a random part
        name: String = String::new(), Text("letters, digits, `-`, `_`, `.`; up to 64");
        /// Interval at which the broker renews its lease
        renew: TimeSpan = TimeSpan::from_ms(500), Spans(spans(50, 10_000));
        /// Time without a renewal after which another broker takes over
        ///
        /// Use the same value for all brokers. A broker without a renewal stops answering 500 ms earlier, and until then at
        /// least 3 renewals must fit
        lease: TimeSpan = seconds(3), Spans(spans(1_000, 60_000));
        /// Time in which a broker that stops reports that it is not ready, before it closes anything
        ///
        /// Longer than a load balancer needs to notice
        leave_delay: TimeSpan = seconds(2), Spans(spans(0, 60_000));
    }
}

section! {
    JOURNAL = "journal" in journal {
        /// Memory for message contents; other contents are read from disk
        ///
        /// The description of each message always stays in memory and takes about 80 bytes more
        cache_bytes, Numbers(0..=1 << 40, "bytes");
        /// Space for messages on disk; over it, sends are refused. 0: the whole disk
        capacity_bytes, ZeroOr(SPACE, "bytes");
        /// Free disk space below which sends are refused. Everything else continues
        ///
        /// The smallest possible disk has this plus three times segment_bytes: 448 MiB
        free_bytes_min, Text("at least 4 × `journal.segment_bytes`");
        /// Size of a log file
        ///
        /// Set free_bytes_min to at least four times this size
        segment_bytes, Numbers(1 << 20..=1 << 30, "bytes");
    }
}

section! {
    HTTP = "http" in http {
        /// Listening address; port 0 takes a free port, which the banner shows
        address, Text("`IP:PORT`");
        /// Proxies that must send PROXY protocol version 2; their statement of the client address is trusted
        ///
        /// For example "10.0.0.7", "10.0.0.0/8", or "*" for all. A proxy must begin each connection
        /// with that header. Other clients must not send it. List only proxies that you trust
        proxy_protocol as proxies, Text("addresses, networks, `*`");
        /// Accepted `Host` names, apart from localhost and addresses, while anonymous access is on; others get 421
        allowed_hosts, Text("host names");
        /// Web origins that may send requests; others get 403
        ///
        /// For example "https://console.example.com"
        allowed_origins, Text("origins");
        /// Public URL of the broker, used in the location of a locked message. Empty: from the request
        ///
        /// For example "https://bus.example.com" behind a proxy
        public_url, Text("a URL");
        /// Threads that serve connections; 0: one for each core
        workers, Numbers(THREADS, "threads");
        /// Open connections; a new one closes the longest idle. 0: `limits.connection_count_max`
        connection_count_max, Numbers(CONNECTIONS, "connections");
        /// Memory for requests of all connections; over it, the slowest yields
        ///
        /// It is for requests that have not arrived completely. The broker closes the slowest connection for the waiting
        /// ones
        inbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Memory for unsent answers of all connections; over it, the slowest yields
        outbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Open streams of the JSON API; a further one gets `ServerBusy`. 0: none
        stream_count_max, Numbers(0..=10_000, "streams");
        /// Time for the head of a request
        head_timeout, Spans(PATIENCE);
        /// Time for a body, after which it must arrive with 16 KiB/s
        body_timeout, Spans(PATIENCE);
        /// Time for an answer, after which the client must read 4 KiB/s
        write_timeout, Spans(PATIENCE);
        /// Time for an operation, in addition to the wait of a receive; then `ServiceTimeout`
        operation_timeout, Spans(PATIENCE);
        /// Time that an idle connection stays open
        keep_alive, Spans(PATIENCE);
        /// Serves `/metrics`, which contains entity names, without a token
        metrics_public, Text("");
    }
}

section! {
    WEBSOCKET = "websocket" in websocket {
        /// Listening address; port 0 takes a free port
        address, Text("`IP:PORT`");
        /// Proxies that must send PROXY protocol version 2
        proxy_protocol as proxies, Text("as `http.proxy_protocol`");
        /// Accepted `Host` names of an upgrade while anonymous access is on; others get 421
        ///
        /// Localhost and IP addresses are always accepted
        allowed_hosts, Text("host names");
        /// Web origins that may connect; others get 403
        allowed_origins, Text("origins");
        /// Threads that serve connections; 0: one for each core
        workers, Numbers(THREADS, "threads");
        /// Connections; further ones are closed with 1013. 0: `limits.connection_count_max`
        connection_count_max, Numbers(CONNECTIONS, "connections");
        /// Links of a connection
        link_count_max, Numbers(LINKS, "links");
        /// Unsettled deliveries of a receiver, after which it gets no more
        unsettled_count_max, Numbers(DELIVERIES, "deliveries");
        /// Size of a client frame, which contains a whole message; at most `inbound_bytes_max`
        ///
        /// Raise this together with max_message_size_in_kilobytes
        frame_bytes_max, Numbers(4 << 10..=1 << 30, "bytes");
        /// Memory for incomplete frames of all connections; over it, the slowest yields
        inbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Unsent deliveries of a connection; twice as much stays for unconfirmed ones
        ///
        /// If unread responses take as much, the broker stops reading the socket
        outbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Time for the upgrade, and for the first frame after it
        handshake_timeout, Spans(PATIENCE);
        /// Time without progress of a frame, after which a pace is required
        frame_timeout, Spans(PATIENCE);
        /// Longest silence; each side may close after twice this time
        heartbeat, Spans(PATIENCE);
        /// Time in which a lost connection can be resumed with its locks
        ///
        /// The client must request it
        grace, Spans(spans(0, 3_600_000));
    }
}

section! {
    AMQP = "amqp" in amqp {
        /// Listening address. With TLS the default is `127.0.0.1:5671`
        ///
        /// It serves all protocols: AMQP, AMQP over WebSocket at the path /$servicebus/websocket, HTTP, and Peeklock's own
        /// WebSocket. The first bytes of a client select its protocol, so one connection string works for messages and
        /// administration. Without TLS the Azure SDKs connect to port 5672 if their connection string has no port.
        /// Port 0 takes a free port, which the banner shows
        address, Text("`IP:PORT`");
        /// Proxies that must send PROXY protocol version 2
        proxy_protocol as proxies, Text("as `http.proxy_protocol`");
        /// As `websocket.allowed_hosts`, for AMQP over WebSocket
        allowed_hosts, Text("host names");
        /// As `websocket.allowed_origins`, for AMQP over WebSocket
        allowed_origins, Text("origins");
        /// Threads that serve connections at this address; 0: one for each core
        workers, Numbers(THREADS, "threads");
        /// Connections; a further one waits for up to `opening_timeout`. 0: `limits.connection_count_max`
        connection_count_max, Numbers(CONNECTIONS, "connections");
        /// Links, and tokens, of a connection
        ///
        /// An SDK opens three links for a sender or receiver
        link_count_max, Numbers(LINKS, "links");
        /// Links of all connections over the first 256 of each, 4 KiB each
        shared_link_count_max, Numbers(0..=1_000_000, "links");
        /// Unsettled deliveries of a receiver and of an AMQP session, after which it gets no more
        unsettled_count_max, Numbers(DELIVERIES, "deliveries");
        /// Memory for incomplete messages of all connections; over it, the slowest yields
        inbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Unsent deliveries and answers of a connection; at twice as much its socket is not read
        outbound_bytes_max, Numbers(MEMORY, "bytes");
        /// Time until a client has authenticated and opened its connection
        opening_timeout, Spans(PATIENCE);
        // .NET closes a connection whose other end announces less than five seconds (AMQP-05).
        /// Longest silence; AMQP libraries send empty frames to prevent it
        idle_timeout, Spans(spans(10_000, 3_600_000));
        /// Longest time in which a client takes no written data
        write_timeout, Spans(PATIENCE);
    }
}

own_section! {
    /// A second port for every protocol.
    GatewaySection, GATEWAY = "gateway" in gateway {
        /// Listening address, for example `0.0.0.0:443` with TLS; connection strings name it. Empty: none
        address: Option<SocketAddr> = None, Text("empty, or `IP:PORT`");
        /// Threads that serve connections at this address; 0: one for each core
        workers: usize = 0, Numbers(THREADS, "threads");
        /// Time until the first bytes select the protocol, here and at `amqp.address`
        opening_timeout: TimeSpan = seconds(5), Spans(PATIENCE);
        /// Proxies that must send PROXY protocol version 2
        proxy_protocol: Proxies = Proxies::default(), Text("as `http.proxy_protocol`");
    }
}

own_section! {
    /// Forwarding to webhooks.
    WebhookSection, WEBHOOK = "webhook" in webhook {
        /// Allowed receivers, also without TLS and in the local network. Empty: any internet host with TLS
        ///
        /// For example "hooks.example.com", "*.example.com", "10.0.0.7" or "[fd00::7]", each with a port to allow only that
        /// port, or "*" for all
        allowed_hosts: Vec<String> = Vec::new(), Text("`host`, `*.domain`, `host:port`, `*`");
        /// Time to resolve, connect and agree on TLS
        ///
        /// A destination can set both timeouts: ?connect_timeout=2s&timeout=10s
        connect_timeout: TimeSpan = seconds(5), Spans(spans(10, 20_000));
        /// Time for a whole request
        timeout: TimeSpan = seconds(15), Spans(spans(10, 20_000));
        /// Certificates (PEM) of additional trusted authorities
        ca_file: String = String::new(), Text("a path");
        [[secrets]]: SecretDeclaration;
    }
}

own_section! {
    /// Forwarding to other brokers.
    PeersSection, PEERS = "peers" in peers {
        /// Allowed brokers
        allowed_hosts: Vec<String> = Vec::new(), Text("as `webhook.allowed_hosts`");
        /// Time to resolve, connect, agree on TLS and be welcomed
        connect_timeout: TimeSpan = seconds(5), Spans(spans(10, 15_000));
        /// Certificates (PEM) of additional trusted authorities
        ca_file: String = String::new(), Text("a path");
        [[tokens]]: TokenDeclaration;
    }
}

own_section! {
    /// TLS of all listeners.
    TlsSection, TLS = "tls" in tls {
        /// Switches TLS on; connections without TLS are then refused
        enabled: bool = false, Text("");
        /// Certificate chain (PEM), read again after a change. Empty: a development certificate
        ///
        /// If a changed pair of certificate and key cannot be used, the previous pair stays in use. The development
        /// authority is in the directory tls of server.data_dir, which is created if it does not exist (`peeklock tls
        /// init` adds names other than localhost)
        certificate_file: String = String::new(), Text("a path");
        /// Private key (PEM); set together with `certificate_file`
        key_file: String = String::new(), Text("a path");
        /// Authorities (PEM) of client certificates. Empty: no certificate is requested
        ///
        /// An authorizer decides the rights of a certificate; policies require a token as well
        client_ca_file: String = String::new(), Text("a path");
        /// Refuses clients without a certificate
        client_certificate_required: bool = false, Text("");
        /// Time for a handshake
        handshake_timeout: TimeSpan = seconds(5), Spans(PATIENCE);
        // As many as a listener has sockets for in addition to its connections.
        /// Simultaneous handshakes of all listeners; a further one ends the oldest
        handshake_count_max: usize = 256, Numbers(1..=256, "handshakes");
    }
}

own_section! {
    /// Access of clients.
    SecuritySection, SECURITY = "security" in security {
        /// Allows local clients without a token, until a policy or key is created, regenerated or requested
        ///
        /// From then on every client needs a token, regardless of this value. The first key is in server.data_dir,
        /// root.connection-string; reading that file does not end anonymous access. Set this to false behind a proxy on this
        /// machine that adds no header such as X-Forwarded-For: the broker would treat the clients of the proxy as local
        allow_anonymous: bool = true, Text("");
        /// Confirms anonymous access on an address that is not loopback
        i_know: bool = false, Text("");
        /// Requires that the host in a token is the host of `http.public_url` or in `allowed_hosts`
        ///
        /// Otherwise the host is not checked
        strict_audience: bool = false, Text("");
    }
}

own_section! {
    /// Bearer tokens of an identity provider (SEC-27).
    JwtSection, JWT = "security.jwt" in jwt {
        /// Exact value of the claim `iss`. Empty: these tokens are refused
        issuer: String = String::new(), Text("");
        /// Accepted values of the claim `aud`
        ///
        /// These are the names of this broker at the provider
        audiences: Vec<String> = Vec::new(), Text("");
        /// Published keys (JWK set), read on demand and every hour
        ///
        /// They are also read when a token names an unknown key, at most every 10 s. If they cannot be read, known keys stay
        /// valid for one day
        jwks_url: String = String::new(), Text("an `https` URL");
        /// File with the keys; use either this or `jwks_url`
        jwks_file: String = String::new(), Text("a path");
        /// Additional authorities (PEM) for `jwks_url`
        ca_file: String = String::new(), Text("a path");
        /// Time to read the keys
        timeout: TimeSpan = seconds(5), Spans(spans(10, 20_000));
        /// Accepted signature algorithms
        algorithms: Vec<String> = ["RS256", "ES256"].map(str::to_owned).into(),
            Text("RS, PS 256 to 512; ES256, ES384; EdDSA");
        /// Tolerated clock difference; tokens count longer by this time
        clock_skew: TimeSpan = seconds(60), Spans(spans(0, 600_000));
        /// Claims that contain roles, for example `scp` or `realm_access.roles`
        role_claims: Vec<String> = vec!["roles".to_owned()], Text("claim names");
        [[roles]]: RoleDeclaration;
    }
}

own_section! {
    /// The log.
    LogSection, LOG = "log" in log {
        /// Format of the log on standard error
        format: LogFormat = LogFormat::Text, Text("`text`, `json`");
        /// Level (`error`, `warn`, `info`, `debug`, `trace`), also for each module
        ///
        /// For example "info,peeklock_core=debug". (actix_http logs an error if a client sends bytes that are not HTTP)
        filter: String = "info,actix_server=warn,actix_http=off".to_owned(), Text("`tracing` filter");
    }
}

own_section! {
    /// The console for operators.
    ConsoleSection, CONSOLE = "console" in console {
        /// Serves the console under `/$console` of the HTTP listener
        enabled: bool = true, Text("");
        /// Name of the environment, such as `production`, in header and title of the console
        label: String = String::new(), Text("a text");
        /// Highest role of clients of the JSON API without credentials. Empty: `admin` on loopback, `viewer` elsewhere
        ///
        /// A viewer reads. An operator also sends, receives and settles
        anonymous_role: Option<Ceiling> = None, Text("`viewer`, `operator`, `admin`");
        /// Makes every client of the JSON API a viewer
        ///
        /// Clients over AMQP, WebSocket and the REST data plane keep their rights
        read_only: bool = false, Text("");
        /// Makes an admin of the console a viewer until it unlocks its token, which lasts 15 minutes
        ///
        /// A client without credentials that would be admin is a viewer. Programs with signed tokens keep their rights
        unlock: bool = false, Text("");
        /// Entities that the JSON API neither deletes nor purges
        ///
        /// A subscription also protects its topic. For example ["orders", "news/Subscriptions/audit"]
        protect: Vec<String> = Vec::new(), Text("paths");
        /// Records in the audit trail also opened bodies and session states
        ///
        /// It always records the other actions of operators
        audit_reads: bool = false, Text("");
        /// Collects counts, gauges and times of each entity over time, in up to 128 MiB of memory
        series: bool = true, Text("");
        /// Keeps the journeys of messages, in up to 70 MiB of memory
        ///
        /// A journey shows where a message was accepted, copied, delivered, settled or dead-lettered, and why
        journeys: bool = true, Text("");
        /// Keeps the properties of the last 256 published messages of each topic, in up to 16 MiB of memory
        ///
        /// The console and `peeklock what-if` try changed rules on them
        samples: bool = true, Text("");
        /// Entities whose series have a value for each second before busier ones; the first 100 count
        series_pinned: Vec<String> = Vec::new(), Text("paths");
    }
}

own_section! {
    /// The metrics page.
    MetricsSection, METRICS = "metrics" in metrics {
        /// Entities with their own gauges on `/metrics`
        ///
        /// "top:100" selects the 100 with most messages
        entities: EntityGauges = EntityGauges::default(), Text("`top:N`, `all`, `none`");
    }
}

own_section! {
    /// Traces and metrics for OpenTelemetry.
    OtlpSection, OTLP = "otlp" in otlp {
        /// Collector, for example `http://127.0.0.1:4318`. Empty: none
        ///
        /// The broker appends /v1/traces and /v1/metrics
        endpoint: String = String::new(), Text("a URL");
        /// File with request headers, one on each line
        ///
        /// For example "Authorization: Bearer ..."
        headers_file: String = String::new(), Text("a path");
        /// Additional authorities (PEM) for `endpoint`
        ca_file: String = String::new(), Text("a path");
        /// Sends traces
        traces: bool = true, Text("");
        /// Sends metrics
        metrics: bool = true, Text("");
        /// Recorded share of the traces that begin here
        ///
        /// For a message that already belongs to a trace, the message itself carries the decision
        sample_ratio: Ratio = Ratio(1.0), Text("0 to 1");
        /// Interval between metric exports
        ///
        /// Exports include those of metrics.entities
        interval: TimeSpan = seconds(60), Spans(spans(1_000, 3_600_000));
        /// Name of this broker at the collector
        service_name: String = "peeklock".to_owned(), NotEmpty("name");
    }
}
