//! The broker as a process of its own, with small budgets, and its memory.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use peeklock::tls::authority::Authority;
use peeklock::tls::{ClientTls, certificates};

use super::tunnel::{PROXIES, Tunnel, Way};

const MIB: u64 = 1 << 20;

/// What the process may hold by its settings below: `http` in and out, `websocket` and `amqp` in, commands in,
/// answers out, and twice that for what the allocator does not give back at once; the cache of the store and
/// 64 KiB for each of a thousand connections.
pub const BUDGET_BYTES: u64 = 256 * MIB;

/// What the broker keeps of what it is sent, by docs/security.md: a message, and all that has a bound of its own in the
/// settings below: entities, subscriptions, rules, sessions, message ids, what waits for its time.
pub const MESSAGE_BYTES: u64 = 80;
pub const KEPT_BYTES: u64 =
    200 * 8_000 + 400 * 8_000 + 2_000 * RULE_BYTES + 5_000 * 1_000 + 50_000 * 160 + 50_000 * 128;
/// A rule as large as attackers make them: what it is made from, and what it is made into.
const RULE_BYTES: u64 = 2 * (17 << 10);

const SETTINGS: [(&str, &str); 22] = [
    ("LIMITS__ENTITY_COUNT_MAX", "200"),
    ("LIMITS__BROKER_SUBSCRIPTION_COUNT_MAX", "400"),
    ("LIMITS__BROKER_RULE_COUNT_MAX", "2000"),
    ("LIMITS__BROKER_SESSION_COUNT_MAX", "5000"),
    ("LIMITS__BROKER_DUPLICATE_ID_COUNT_MAX", "50000"),
    ("LIMITS__BROKER_DELAYED_COUNT_MAX", "50000"),
    ("HTTP__INBOUND_BYTES_MAX", "16777216"),
    ("HTTP__OUTBOUND_BYTES_MAX", "16777216"),
    ("HTTP__WORKERS", "2"),
    ("HTTP__HEAD_TIMEOUT", "2s"),
    ("HTTP__CONNECTION_COUNT_MAX", "256"),
    ("WEBSOCKET__INBOUND_BYTES_MAX", "16777216"),
    ("WEBSOCKET__WORKERS", "2"),
    ("WEBSOCKET__CONNECTION_COUNT_MAX", "256"),
    ("AMQP__INBOUND_BYTES_MAX", "16777216"),
    ("AMQP__WORKERS", "2"),
    ("AMQP__CONNECTION_COUNT_MAX", "256"),
    ("LIMITS__BROKER_INBOUND_BYTES_MAX", "33554432"),
    ("LIMITS__BROKER_OUTBOUND_BYTES_MAX", "33554432"),
    ("SERVER__ARBITERS", "2"),
    ("JOURNAL__CACHE_BYTES", "8388608"),
    ("LOG__FILTER", "error"),
];

pub struct Broker {
    process: Child,
    _banner: BufReader<ChildStdout>,
    directory: std::path::PathBuf,
    pub http: SocketAddr,
    pub websocket: SocketAddr,
    pub amqp: SocketAddr,
    /// Where all of them are spoken.
    pub gateway: SocketAddr,
    /// The ways to it that are not straight.
    tunnels: Mutex<Vec<Tunnel>>,
}

/// A way to all transports.
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

    /// The same with TLS, and every client speaks it.
    pub fn start_secure() -> Self {
        let mut broker = Self::start_by("[tls]\nenabled = true\n");
        let authority = Authority::at(broker.directory.join("data").join("tls"));
        let trusted = certificates(&authority.authority_file()).unwrap();
        let tls = Arc::new(ClientTls::of_system().trusting(trusted));
        for address in
            [&mut broker.http, &mut broker.websocket, &mut broker.amqp, &mut broker.gateway]
        {
            let tunnel = Tunnel::to(*address, Way::Secure(Arc::clone(&tls)));
            *address = tunnel.address;
            broker.tunnels.get_mut().unwrap().push(tunnel);
        }
        broker
    }

    /// Each way to it: the ports of the transports, the one of the gateway, and by a proxy that says for whom it speaks,
    /// unless that would have to speak TLS.
    pub fn ways(&self) -> Vec<Ways> {
        let Self { http, websocket, amqp, gateway, .. } = *self;
        let mut tunnels = self.tunnels.lock().unwrap();
        let direct = Ways { http, websocket, amqp };
        let by_gateway = Ways { http: gateway, websocket: gateway, amqp: gateway };
        if !tunnels.is_empty() {
            return vec![direct, by_gateway];
        }
        let next = Arc::default();
        let mut relayed = |address: SocketAddr| {
            let tunnel = Tunnel::to(address, Way::Relayed(Arc::clone(&next)));
            let address = tunnel.address;
            tunnels.push(tunnel);
            address
        };
        let relayed =
            Ways { http: relayed(http), websocket: relayed(websocket), amqp: relayed(amqp) };
        vec![direct, by_gateway, relayed]
    }

    fn start_by(settings: &str) -> Self {
        let name = format!("hostile-{}", std::process::id());
        let directory = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_dir_all(&directory).ok();
        std::fs::create_dir_all(&directory).unwrap();
        let proxies = format!("proxy_protocol = [\"{PROXIES}\"]\n");
        let sections = ["http", "websocket", "amqp"].map(|name| format!("[{name}]\n{proxies}"));
        std::fs::write(directory.join("peeklock.toml"), sections.concat() + settings).unwrap();
        let program = std::env::var_os("PEEKLOCK_HOSTILE_PROGRAM");
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_peeklock").into());
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
                command.env_remove(name);
            }
        }
        command
            .args([
                "serve",
                "--http",
                "127.0.0.1:0",
                "--ws",
                "127.0.0.1:0",
                "--amqp",
                "127.0.0.1:0",
                "--gateway",
                "127.0.0.1:0",
                "--data-dir",
                "data",
            ])
            .envs(SETTINGS.map(|(key, value)| (format!("PEEKLOCK__{key}"), value)))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap());
        let mut address = |name: &str| loop {
            let mut line = String::new();
            assert_ne!(banner.read_line(&mut line).unwrap(), 0, "the broker did not start");
            if let Some(url) = line.trim().strip_prefix(name) {
                let url = url.trim().split_once("://").map_or(url.trim(), |(_, url)| url);
                let end = url.find([',', '/']).unwrap_or(url.len());
                return url[..end].parse().unwrap();
            }
        };
        let http = address("http ");
        let websocket = address("websocket ");
        let amqp = address("amqp ");
        let gateway = address("gateway ");
        let tunnels = Mutex::default();
        Self { process, _banner: banner, directory, http, websocket, amqp, gateway, tunnels }
    }

    /// Its resident memory; none if it has ended.
    pub fn resident_bytes(id: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    }

    /// How many file descriptors it has: sockets, and files of its store.
    pub fn descriptors(id: u32) -> usize {
        std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// SIGTERM, and waits for an end in order.
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
