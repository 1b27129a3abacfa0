//! Unknown clients of a broker process: the log names refused hosts and origins (SEC-23), clients
//! behind a proxy count as remote (LIS-04), and the broker keeps the open files that it needs,
//! however many clients connect.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/amqp.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod amqp;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peeklock_amqp_testing::client::link;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of concurrent requests of one web page.
const REQUESTS: usize = 20;
const LISTENERS: [&str; 4] = ["http", "websocket", "amqp", "gateway"];
/// Path of AMQP over WebSocket.
const AMQP_PATH: &str = "/$servicebus/websocket";
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// A broker as a process, with all its listeners.
struct Broker {
    process: Child,
    /// Their addresses, in the order of `LISTENERS`.
    addresses: [String; 4],
}

impl Broker {
    /// Starts a broker, with a limit of open files if one is given.
    fn start(files_max: Option<u64>, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let program = env!("CARGO_BIN_EXE_peeklock");
        let mut command = match files_max {
            None => Command::new(program),
            Some(files_max) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {files_max} && exec \"$0\" \"$@\"");
                shell.args(["-c", &limited, program]);
                shell
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
                command.env_remove(name);
            }
        }
        command.arg("serve").args(arguments);
        for flag in ["--http", "--ws", "--amqp", "--gateway"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        let mut process = command
            .envs(settings.iter().map(|(key, value)| (format!("PEEKLOCK__{key}"), *value)))
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap());
        let mut broker = Self { process, addresses: Default::default() };
        for (name, address) in LISTENERS.into_iter().zip(&mut broker.addresses) {
            loop {
                let mut line = String::new();
                assert_ne!(banner.read_line(&mut line).unwrap(), 0, "the broker did not start");
                if let Some(url) = line.trim().strip_prefix(name).filter(|it| it.starts_with(' ')) {
                    let url = url.trim().split_once("://").map_or(url.trim(), |(_, rest)| rest);
                    let end = url.find([',', '/']).unwrap_or(url.len());
                    url[..end].clone_into(address);
                    break;
                }
            }
        }
        broker
    }

    /// Number of open files.
    fn files(&self) -> u64 {
        let open = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(open).unwrap().count() as u64
    }

    /// Stops the broker in order. Returns its log.
    fn stop(mut self) -> String {
        let kill = Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status();
        assert!(kill.unwrap().success());
        let mut log = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.process.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// SEC-23: over each transport the log names a refused Origin, with the peer and the setting that
/// lacks it, but not once for each request.
#[test]
fn a_refused_origin_is_in_the_log() {
    let broker = Broker::start(None, &["--ephemeral"], &[]);
    let addresses = broker.addresses.clone();
    let asked = [("/health", ""), ("/", UPGRADE), (AMQP_PATH, UPGRADE)];
    for (address, (path, more)) in addresses.iter().zip(asked) {
        for _ in 0..REQUESTS {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let origin = "Origin: http://page.example\r\n";
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{origin}{more}\r\n").unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 403", "{address}{path}");
        }
    }
    let log = broker.stop();
    for (transport, address) in LISTENERS.iter().zip(&addresses).take(asked.len()) {
        let setting = format!("{transport}.allowed_origins");
        // The refusal itself has a separate log line (SEC-22), which does not name the Origin.
        let told = |line: &&str| line.contains(&setting) && line.contains("http://page.example");
        let lines: Vec<&str> = log.lines().filter(told).collect();
        assert!(
            (1..REQUESTS).contains(&lines.len()),
            "{} lines for {transport}:\n{log}",
            lines.len()
        );
        for line in lines {
            assert!(
                line.contains("WARN")
                    && line.contains("127.0.0.1:")
                    && line.contains(address.as_str()),
                "{line}"
            );
        }
    }
}

/// SEC-22: the log names the address of each client that is refused because of its Origin, for HTTP
/// requests and upgrades, at the port of each listener and at the gateway.
#[test]
fn the_address_of_a_refused_origin_is_in_the_log() {
    let broker = Broker::start(None, &["--ephemeral"], &[]);
    let [http, websocket, amqp, gateway] = &broker.addresses;
    // Fewer requests than the rate limit of log lines with one cause.
    let asked = [(http, "/health", ""), (websocket, "/", UPGRADE), (amqp, AMQP_PATH, UPGRADE)];
    let by_gateway = asked.map(|(_, path, more)| (gateway, path, more));
    let mut told = Vec::new();
    for (address, path, more) in asked.into_iter().chain(by_gateway) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let origin = "Origin: http://page.example\r\n";
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{origin}{more}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{address}{path}: {answer}");
        let id = answer.split("TrackingId:").nth(1).and_then(|rest| rest.split(',').next());
        told.push((id.unwrap().to_owned(), format!("peer={} ", stream.local_addr().unwrap())));
    }
    let log = broker.stop();
    for (id, peer) in &told {
        let line = log.lines().find(|line| line.contains(id.as_str()));
        let line = line.unwrap_or_else(|| panic!("{id}: {log}"));
        assert!(line.contains("WARN") && line.contains("cause=\"origin\""), "{line}");
        assert!(line.contains(peer.as_str()), "{peer}: {line}");
    }
}

/// Settings with few files, nearly all of which are sockets.
const FEW: [(&str, &str); 11] = [
    ("HTTP__CONNECTION_COUNT_MAX", "100"),
    ("WEBSOCKET__CONNECTION_COUNT_MAX", "100"),
    ("AMQP__CONNECTION_COUNT_MAX", "100"),
    ("HTTP__WORKERS", "2"),
    ("WEBSOCKET__WORKERS", "2"),
    ("AMQP__WORKERS", "2"),
    ("GATEWAY__WORKERS", "2"),
    ("SERVER__ARBITERS", "2"),
    ("LIMITS__FORWARDER_THREAD_COUNT_MAX", "1"),
    ("JOURNAL__SEGMENT_BYTES", "1048576"),
    ("JOURNAL__CAPACITY_BYTES", "33554432"),
];
/// Sockets and other open files of this test.
const OWN_FILES: u64 = 4_096;
/// Sockets at the gateway: more than it accepts.
const BY_GATEWAY: usize = 700;
/// Sockets at each port of a transport: more than any accepts.
const STRAIGHT: usize = 300;
/// Duration for which they stay: not longer than any timeout.
const STAY: Duration = Duration::from_secs(3);

/// With the number of files that the broker requests, it has some left for its journal while
/// clients connect to all listeners and send nothing, half a request, or a request that must wait.
#[test]
fn unknown_clients_leave_enough_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.unwrap_or(OWN_FILES).min(OWN_FILES));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("strangers");
    std::fs::remove_dir_all(&directory).ok();
    let kept = ["--data-dir", directory.to_str().unwrap()];
    let log = Broker::start(Some(200), &kept, &FEW).stop();
    let needed = log.split("files_needed=").nth(1).and_then(|rest| rest.split(' ').next());
    let needed: u64 = needed.and_then(|text| text.parse().ok()).expect(&log);

    let broker = Broker::start(Some(needed), &kept, &FEW);
    let [http, websocket, amqp, gateway] = broker.addresses.clone();
    let get = format!("GET /livez HTTP/1.1\r\nHost: {http}\r\n\r\n");
    let upgrade = |path: &str, protocol: &str| {
        let protocol = format!("Sec-WebSocket-Protocol: {protocol}\r\n");
        format!("GET {path} HTTP/1.1\r\nHost: {http}\r\n{UPGRADE}{protocol}\r\n")
    };
    let web = upgrade("/", "peeklock.v1.json");
    let over_web = upgrade("/$servicebus/websocket", "amqp");
    let header = b"AMQP\0\x01\0\0";
    // Followed by an open, with which the connection counts as one of AMQP.
    let opened = [&header[..], b"\0\0\0\x11\x02\0\0\0\0\x53\x10\xc0\x04\x01\xa1\x01c"].concat();
    let begins: [&[u8]; 5] = [b"", header, get.as_bytes(), web.as_bytes(), over_web.as_bytes()];
    let mut strangers = Vec::new();
    let mut most = 0;
    let mut come = |address: &str, says: &[u8]| {
        // Connections that are not accepted wait in the system's backlog.
        let address = address.parse().unwrap();
        if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(20)) {
            stream.write_all(says).ok();
            strangers.push(stream);
        }
        most = broker.files().max(most);
    };
    for number in 0..STRAIGHT {
        let is_even = number % 2 == 0;
        come(&http, if is_even { get.as_bytes() } else { b"GET /" });
        come(&websocket, if is_even { web.as_bytes() } else { b"" });
        come(&amqp, if is_even { &opened } else { b"" });
    }
    for number in 0..BY_GATEWAY {
        come(&gateway, begins[number % begins.len()]);
    }
    // The log grows by several segments meanwhile.
    let come_at = Instant::now();
    let mut sent = ask(&http, "PUT", "/$api/v1/queues/q", "{}");
    while come_at.elapsed() < STAY || sent < 5 {
        sent += ask(&http, "POST", "/q/messages", &"x".repeat(900_000));
        most = broker.files().max(most);
        assert!(come_at.elapsed() < 20 * STAY, "{sent} of them in {:?}", come_at.elapsed());
    }
    drop(strangers);
    let log = broker.stop();
    std::fs::remove_dir_all(directory).ok();
    assert!(!log.contains("files_needed") && !log.contains("no file can be opened"), "{log}");
    assert!(most < needed, "{most} files were open of {needed}");
    // On a busy machine some are closed before the last have connected.
    assert!(most > needed / 3, "{most} files of {needed}: they were not many");
}

/// 1 if the request succeeded, otherwise 0.
fn ask(address: &str, method: &str, target: &str, body: &str) -> usize {
    let Ok(mut stream) = TcpStream::connect(address) else { return 0 };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut answer = [0; 12];
    let asked =
        stream.write_all((head + body).as_bytes()).and_then(|()| stream.read_exact(&mut answer));
    usize::from(asked.is_ok() && &answer == b"HTTP/1.1 201")
}

/// Answer to an anonymous client that asks for an absent queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Response {
    NotThere,
    Refused,
}

/// Sends that request on a connection to a host.
type Ask = fn(TcpStream, &str) -> Response;

/// LIS-04, SEC-17: at the AMQP port anonymous access is limited to this machine, and a client
/// behind a proxy never counts as on this machine. A proxy's connection without a header is closed.
#[test]
fn amqp_clients_behind_a_proxy_are_not_local() {
    clients_behind_a_proxy_are_not_local("amqp", &[over_amqp]);
}

/// LIS-04, SEC-17: the same at the WebSocket port.
#[test]
fn websocket_clients_behind_a_proxy_are_not_local() {
    clients_behind_a_proxy_are_not_local("websocket", &[over_websocket]);
}

/// LIS-04, SEC-17: the same at the gateway for every protocol.
#[test]
fn gateway_clients_behind_a_proxy_are_not_local() {
    clients_behind_a_proxy_are_not_local("gateway", &[over_amqp, over_websocket, over_http]);
}

fn clients_behind_a_proxy_are_not_local(listener: &str, asks: &[Ask]) {
    let place = LISTENERS.iter().position(|name| *name == listener).unwrap();
    let straight = Broker::start(None, &["--ephemeral"], &[]);
    let setting = format!("{}__PROXY_PROTOCOL", listener.to_uppercase());
    let proxied = Broker::start(None, &["--ephemeral"], &[(setting.as_str(), "127.0.0.1")]);
    for ask in asks {
        let address = &straight.addresses[place];
        assert_eq!(ask(connect(address), address), Response::NotThere, "it is let in here");
        let address = &proxied.addresses[place];
        for client in [[192, 0, 2, 7], [127, 0, 0, 1]] {
            let mut stream = connect(address);
            stream.write_all(&header_of(client)).unwrap();
            assert_eq!(ask(stream, address), Response::Refused, "{client:?}");
        }
    }
    for begin in [&b"AMQP\x03\x01\0\0AMQP\0\x01\0\0"[..], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut stream = connect(&proxied.addresses[place]);
        // The connection may be closed before all bytes are written.
        stream.write_all(begin).ok();
        let is_closed = match stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{}", String::from_utf8_lossy(begin));
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Header of a proxy for a client with this address.
fn header_of(client: [u8; 4]) -> Vec<u8> {
    let begin = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
    [&begin[..], &client, &[127, 0, 0, 1, 0x12, 0x34, 0, 80]].concat()
}

fn over_amqp(stream: TcpStream, _: &str) -> Response {
    let mut client = amqp::Amqp::open(stream, 100).unwrap();
    let refused = client.attach(&link::sender("s", 0, "q")).unwrap_err().to_string();
    response_of(&refused, ["amqp:not-found", "amqp:unauthorized-access"])
}

fn over_websocket(mut stream: TcpStream, host: &str) -> Response {
    let protocol = "Sec-WebSocket-Protocol: peeklock.v1.json\r\n";
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n{UPGRADE}{protocol}\r\n").unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    send_frame(&mut stream, r#"{"requests":[{"id":1,"hello":{}}]}"#);
    read_until(&mut stream, "\"welcome\"");
    send_frame(&mut stream, r#"{"requests":[{"id":2,"getQueue":{"path":"q"}}]}"#);
    let answer = read_until(&mut stream, "\"trackingId\"");
    response_of(&answer, ["\"EntityNotFound\"", "\"Unauthorized\""])
}

fn over_http(mut stream: TcpStream, host: &str) -> Response {
    write!(stream, "GET /$api/v1/queues/q HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    response_of(&read_until(&mut stream, "\r\n\r\n"), ["HTTP/1.1 404 ", "HTTP/1.1 401 "])
}

/// The answer, by the word that it contains.
fn response_of(answer: &str, [not_there, refused]: [&str; 2]) -> Response {
    match (answer.contains(not_there), answer.contains(refused)) {
        (true, false) => Response::NotThere,
        (false, true) => Response::Refused,
        _ => panic!("{answer}"),
    }
}

/// Reads until this word. Returns all bytes read.
fn read_until(stream: &mut TcpStream, word: &str) -> String {
    let mut bytes_read = Vec::new();
    loop {
        let mut more = [0; 1_024];
        let count = stream.read(&mut more).unwrap();
        assert_ne!(count, 0, "closed after {}", String::from_utf8_lossy(&bytes_read));
        bytes_read.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&bytes_read);
        if text.contains(word) {
            return text.into_owned();
        }
    }
}

/// Sends a text in one frame, masked with zeros.
fn send_frame(stream: &mut TcpStream, text: &str) {
    let bytes = u8::try_from(text.len()).unwrap();
    let frame = [&[0x81, 0x80 | bytes, 0, 0, 0, 0][..], text.as_bytes()].concat();
    stream.write_all(&frame).unwrap();
}
