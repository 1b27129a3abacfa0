//! The broker as a separate process with small budgets, and measurements of its memory and sockets.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peeklock::limits::{DELIVERY_BYTES, Limits};
use peeklock::tls::authority::Authority;
use peeklock::tls::{ClientTls, certificates};

use super::attacker::yield_to_others;
use super::tunnel::{PROXIES, Tunnel, Way};

const MIB: u64 = 1 << 20;

/// Memory that the process may use by its settings: `http` in and out, `websocket` and `amqp` in,
/// commands in, answers out, and loads of the broker itself; twice that, because the allocator
/// returns memory late; the cache of the store; and 64 KiB for each of a thousand connections.
pub const BUDGET_BYTES: u64 = 256 * MIB;

/// Rules and texts of descriptions.
const DESCRIPTION_BYTES: u64 = 32 * MIB;
/// Name of a limit in the environment, its value in these tests, and its field in `Limits`.
type Count = (&'static str, usize, fn(&mut Limits) -> &mut usize);
/// Bounds on everything that entities store in addition to messages.
const COUNTS: [Count; 6] = [
    ("ENTITY_COUNT_MAX", 200, |limits| &mut limits.entity_count_max),
    ("BROKER_SUBSCRIPTION_COUNT_MAX", 400, |limits| &mut limits.broker_subscription_count_max),
    ("BROKER_RULE_COUNT_MAX", 2_000, |limits| &mut limits.broker_rule_count_max),
    ("BROKER_SESSION_COUNT_MAX", 5_000, |limits| &mut limits.broker_session_count_max),
    ("BROKER_DUPLICATE_ID_COUNT_MAX", 50_000, |limits| &mut limits.broker_duplicate_id_count_max),
    ("BROKER_DELAYED_COUNT_MAX", 50_000, |limits| &mut limits.broker_delayed_count_max),
];

const SETTINGS: [(&str, &str); 21] = [
    ("HTTP__INBOUND_BYTES_MAX", "16777216"),
    ("HTTP__OUTBOUND_BYTES_MAX", "16777216"),
    ("HTTP__WORKERS", "2"),
    ("HTTP__HEAD_TIMEOUT", "2s"),
    ("HTTP__CONNECTION_COUNT_MAX", "256"),
    ("WEBSOCKET__INBOUND_BYTES_MAX", "16777216"),
    ("WEBSOCKET__OUTBOUND_BYTES_MAX", "2097152"),
    ("WEBSOCKET__WORKERS", "2"),
    ("WEBSOCKET__CONNECTION_COUNT_MAX", "256"),
    ("AMQP__INBOUND_BYTES_MAX", "16777216"),
    ("AMQP__OUTBOUND_BYTES_MAX", "2097152"),
    ("AMQP__WORKERS", "2"),
    ("AMQP__CONNECTION_COUNT_MAX", "256"),
    ("LIMITS__BROKER_INBOUND_BYTES_MAX", "33554432"),
    ("LIMITS__BROKER_OUTBOUND_BYTES_MAX", "33554432"),
    ("LIMITS__BROKER_LOADED_BYTES_MAX", "16777216"),
    ("SERVER__ARBITERS", "2"),
    ("JOURNAL__CACHE_BYTES", "8388608"),
    // A client behind a proxy has no loopback address, but must have all rights here.
    ("SECURITY__I_KNOW", "true"),
    // The judge sums the metrics of all entities.
    ("METRICS__ENTITIES", "all"),
    ("LOG__FILTER", "error"),
];

/// Permits forwarding to brokers of attackers.
const PEERS: &str = "[peers]\nallowed_hosts = [\"127.0.0.1\"]\n";

/// Value of each budget in an unbounded run, in bytes.
const UNBOUNDED: &str = "1073741824";

/// Upper bound on the bytes that the broker stores for clients, by its own accounting: `messages`
/// messages, and everything else up to the limits above.
pub fn kept_bytes(messages: u64) -> u64 {
    let mut limits = Limits::default();
    for (_, count, limit) in COUNTS {
        *limit(&mut limits) = count;
    }
    limits.broker_description_bytes_max = DESCRIPTION_BYTES;
    limits.broker_message_count_max = usize::try_from(messages).unwrap();
    // Few messages are delivered at the same time, and all their connections are closed at the end.
    limits.resident_bytes_max() - messages * DELIVERY_BYTES
}

pub struct Broker {
    process: Child,
    _banner: BufReader<ChildStdout>,
    directory: std::path::PathBuf,
    /// Addresses for clients that do not use TLS.
    pub http: SocketAddr,
    pub websocket: SocketAddr,
    pub amqp: SocketAddr,
    /// The port that serves all three.
    pub gateway: SocketAddr,
    /// Addresses that the broker listens on: the three transports and the gateway.
    listens: [SocketAddr; 4],
    /// TLS settings of clients, if the broker uses TLS.
    tls: Option<Arc<ClientTls>>,
    /// Tunnels that add TLS for the clients.
    _tunnels: Vec<Tunnel>,
}

/// Addresses of the three transports over one route.
#[derive(Clone, Copy)]
pub struct Ways {
    pub http: SocketAddr,
    pub websocket: SocketAddr,
    pub amqp: SocketAddr,
}

impl Broker {
    pub fn start() -> Self {
        Self::start_by("")
    }

    /// Starts a broker with TLS. Tunnels give every client TLS.
    pub fn start_secure() -> Self {
        let mut broker = Self::start_by("[tls]\nenabled = true\n");
        let authority = Authority::at(broker.directory.join("data").join("tls"));
        let trusted = certificates(&authority.authority_file()).unwrap();
        let tls = Arc::new(ClientTls::of_system().trusting(trusted));
        let Self { http, websocket, amqp, _tunnels: tunnels, .. } = &mut broker;
        for address in [http, websocket, amqp] {
            let tunnel = Tunnel::to(*address, Way::Secure(Arc::clone(&tls)), || {});
            *address = tunnel.address;
            tunnels.push(tunnel);
        }
        broker.tls = Some(tls);
        broker
    }

    /// All routes to the broker for attackers, and the tunnels that keep them open: the ports of
    /// the transports and the gateway's port, directly and through a proxy that announces a client
    /// address. If the broker has TLS, every route uses it.
    pub fn ways(&self) -> (Vec<Ways>, Vec<Tunnel>) {
        let (mut tunnels, clients) = (Vec::new(), Arc::default());
        let mut through = |address: SocketAddr, way: Way| {
            let tunnel = Tunnel::to(address, way, yield_to_others);
            let address = tunnel.address;
            tunnels.push(tunnel);
            address
        };
        let relayed =
            self.listens.map(|address| through(address, Way::Relayed(Arc::clone(&clients))));
        let mut all = [self.listens, relayed];
        if let Some(tls) = &self.tls {
            all = all.map(|addresses| {
                addresses.map(|address| through(address, Way::Secure(Arc::clone(tls))))
            });
        }
        let ways = all.into_iter().flat_map(|[http, websocket, amqp, gateway]| {
            let by_gateway = Ways { http: gateway, websocket: gateway, amqp: gateway };
            [Ways { http, websocket, amqp }, by_gateway]
        });
        (ways.collect(), tunnels)
    }

    /// Starts a broker with the default room for unread output.
    pub fn start_with_default_output() -> Self {
        Self::start_with("", &["LIMITS__BROKER_OUTBOUND_BYTES_MAX"])
    }

    fn start_by(settings: &str) -> Self {
        Self::start_with(settings, &[])
    }

    /// Starts a broker with additional settings and without the settings `left_out`.
    fn start_with(settings: &str, left_out: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("hostile-{}-{number}", std::process::id());
        let directory = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_dir_all(&directory).ok();
        std::fs::create_dir_all(&directory).unwrap();
        let sections = ["http", "websocket", "amqp", "gateway"]
            .map(|name| format!("[{name}]\nproxy_protocol = [\"{PROXIES}\"]\n"));
        std::fs::write(directory.join("peeklock.toml"), sections.concat() + PEERS + settings)
            .unwrap();
        let program = std::env::var_os("PEEKLOCK_HOSTILE_PROGRAM");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_peeklock").into());
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
                command.env_remove(name);
            }
        }
        let is_unbounded = std::env::var_os("PEEKLOCK_HOSTILE_UNBOUNDED").is_some();
        let settings = SETTINGS.into_iter().filter(|(key, _)| !left_out.contains(key));
        let settings = settings.map(|(key, value)| {
            let is_budget =
                ["BOUND_BYTES_MAX", "LOADED_BYTES_MAX"].iter().any(|end| key.ends_with(end));
            (format!("PEEKLOCK__{key}"), if is_unbounded && is_budget { UNBOUNDED } else { value })
        });
        let limit = |key: &str, value: String| (format!("PEEKLOCK__LIMITS__{key}"), value);
        let counts = COUNTS.map(|(key, count, _)| limit(key, count.to_string()));
        command.arg("serve");
        for listener in ["--http", "--ws", "--amqp", "--gateway"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        command
            .args(["--data-dir", "data"])
            .envs(settings)
            .envs(counts)
            .envs([limit("BROKER_DESCRIPTION_BYTES_MAX", DESCRIPTION_BYTES.to_string())])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap());
        let listens: [SocketAddr; 4] = ["http ", "websocket ", "amqp ", "gateway "].map(|name| {
            loop {
                let mut line = String::new();
                assert_ne!(banner.read_line(&mut line).unwrap(), 0, "the broker did not start");
                if let Some(url) = line.trim().strip_prefix(name) {
                    let url = url.trim().split_once("://").map_or(url.trim(), |(_, url)| url);
                    let end = url.find([',', '/']).unwrap_or(url.len());
                    break url[..end].parse().unwrap();
                }
            }
        });
        let [http, websocket, amqp, gateway] = listens;
        Self {
            process,
            _banner: banner,
            directory,
            http,
            websocket,
            amqp,
            gateway,
            listens,
            tls: None,
            _tunnels: Vec::new(),
        }
    }

    /// Resident memory in bytes, or `None` if the process has ended.
    pub fn resident_bytes(id: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    }

    /// Number of open sockets. Files are not counted: their number depends on the stored data.
    pub fn sockets(id: u32) -> usize {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
        let names = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGTERM and waits for a clean exit.
    pub fn stop(mut self) {
        let kill = Command::new("kill").arg("-TERM").arg(self.id().to_string()).status();
        assert!(kill.unwrap().success());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "the broker ended with {status}");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_dir_all(&self.directory).ok();
    }
}
