//! One port, that of AMQP or a gateway, serves everything that the separate ports serve. All ports
//! report the client to the authorizer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/amqp.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod links;

use std::net::{SocketAddr, TcpStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use peeklock::Broker;
use peeklock::amqp::{AmqpConfig, AmqpTransport};
use peeklock::contract::{AllowAll, Authorizer, Grant, Principal, RunningTransport, Transport};
use peeklock::description::QueueProperties;
use peeklock::error::Rejection;
use peeklock::http::{HttpConfig, HttpTransport};
use peeklock::listen::{Admission, Entrances, Gateway, GatewayConfig, SharedPort};
use peeklock::tls::authority::Authority;
use peeklock::tls::{Acceptor, ClientCertificates, ClientTls, Protocol, Tls, certificates};
use peeklock::websocket::{WebSocketConfig, WebSocketTransport};
use peeklock_amqp::performative::Performative;
use peeklock_amqp::sasl::{Init, mechanism};
use peeklock_amqp_testing::client::{Frames, Session, link};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use links::Amqp;

/// A test that takes longer than this hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(30);
const HEADER: &[u8; 8] = b"AMQP\0\x01\0\0";
const SASL: &[u8; 8] = b"AMQP\x03\x01\0\0";
/// Held by tests that need more sockets than a process may have twice.
static MANY_SOCKETS: Mutex<()> = Mutex::new(());

/// A broker with all its listeners.
struct World {
    broker: Broker,
    gateway: SocketAddr,
    http: SocketAddr,
    websocket: SocketAddr,
    amqp: SocketAddr,
    running: Vec<Box<dyn RunningTransport>>,
}

/// Settings that a test can change.
struct Settings {
    authorizer: Arc<dyn Authorizer>,
    http: HttpConfig,
    websocket: WebSocketConfig,
    amqp: AmqpConfig,
    tls: Option<Acceptor>,
    opening_timeout: Duration,
}

impl World {
    async fn start(adjust: impl FnOnce(&mut Settings)) -> Self {
        let entrances = Entrances::default();
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut settings = Settings {
            authorizer: Arc::new(AllowAll),
            http: HttpConfig::at(at),
            websocket: WebSocketConfig::at(at),
            amqp: AmqpConfig::at(at),
            tls: None,
            opening_timeout: Duration::from_secs(20),
        };
        adjust(&mut settings);
        let Settings { authorizer, mut http, mut websocket, mut amqp, tls, opening_timeout } =
            settings;
        let broker = Broker::builder().arbiters(1).authorizer(authorizer).start().await.unwrap();
        http.entrance = entrances.http.clone();
        http.amqp = entrances.amqp.clone();
        websocket.entrance = entrances.websocket.clone();
        amqp.entrance = entrances.amqp.clone();
        amqp.shared_port = Some(SharedPort { opening_timeout, entrances: entrances.clone() });
        let gateway = GatewayConfig {
            address: at,
            workers: 2,
            opening_timeout,
            admission: Admission { tls, ..Admission::default() },
            i_know: false,
            entrances,
        };
        let transports: [Box<dyn Transport>; 4] = [
            Box::new(HttpTransport::new(http)),
            Box::new(WebSocketTransport::new(websocket)),
            Box::new(AmqpTransport::new(amqp)),
            Box::new(Gateway::new(gateway)),
        ];
        let mut running = Vec::new();
        for transport in transports {
            running.push(transport.start(broker.clone()).await.unwrap());
        }
        let [http, websocket, amqp, gateway] =
            [0, 1, 2, 3].map(|place: usize| running[place].local_address());
        Self { broker, gateway, http, websocket, amqp, running }
    }

    async fn connect(&self) -> TcpStream {
        connect(self.gateway).await
    }

    /// The ports that serve everything.
    const fn shared_ports(&self) -> [SocketAddr; 2] {
        [self.gateway, self.amqp]
    }

    async fn stop(self) {
        let mut stopping = tokio::task::JoinSet::new();
        for transport in self.running {
            stopping.spawn(transport.stop(Duration::ZERO));
        }
        while let Some(stopped) = stopping.join_next().await {
            stopped.unwrap();
        }
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIME_MAX, body).await }).unwrap();
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Status of an answer, and its body by the length in the head.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    (status, head)
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn upgrade(path: &str, host: &str, subprotocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
}

/// A binary frame of a client, masked with zeros.
fn frame(payload: &[u8]) -> Vec<u8> {
    let bytes = u8::try_from(payload.len()).unwrap();
    [&[0x82, 0x80 | bytes, 0, 0, 0, 0], payload].concat()
}

/// A text frame of a client, masked with zeros.
fn text(content: &str) -> Vec<u8> {
    let mut frame = frame(content.as_bytes());
    frame[0] = 0x81;
    frame
}

async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    stream.read_u8().await.is_err()
}

/// Uses every protocol, each on a new connection.
async fn speak<S: AsyncRead + AsyncWrite + Unpin>(connect: impl AsyncFn() -> S) {
    for header in [HEADER, SASL] {
        let mut stream = connect().await;
        for byte in header {
            send(&mut stream, [*byte]).await;
        }
        let mut bytes_read = [0; 8];
        stream.read_exact(&mut bytes_read).await.unwrap();
        assert_eq!(&bytes_read, header);
    }
    // An ingress reuses connections, so any request on one may be an upgrade, also a pipelined one.
    let mut stream = connect().await;
    send(&mut stream, get("/livez", "localhost")).await;
    assert_eq!(answer(&mut stream).await.0, 200);
    let ahead = get("/livez", "localhost") + &upgrade("/", "localhost", "peeklock.v1.json");
    send(&mut stream, ahead).await;
    assert_eq!(answer(&mut stream).await.0, 200);
    let (status, head) = answer(&mut stream).await;
    assert_eq!(status, 101, "{head}");
    assert!(head.contains("peeklock.v1.json"), "{head}");
    for path in ["/$servicebus/websocket", "/$servicebus/websocket/", "//%24SERVICEBUS/websocket"] {
        let mut stream = connect().await;
        send(&mut stream, upgrade(path, "localhost", "AMQPWSB10")).await;
        let (status, head) = answer(&mut stream).await;
        assert_eq!(status, 101, "{path}: {head}");
        send(&mut stream, frame(HEADER)).await;
        let mut bytes_read = [0; 10];
        stream.read_exact(&mut bytes_read).await.unwrap();
        assert_eq!(bytes_read[..2], [0x82, 8]);
        assert_eq!(&bytes_read[2..], HEADER);
    }
    let mut stream = connect().await;
    send(&mut stream, upgrade("/elsewhere", "localhost", "peeklock.v1.json")).await;
    assert_eq!(answer(&mut stream).await.0, 404);
    let mut stream = connect().await;
    send(&mut stream, "AMQX is none of it\r\n\r\n").await;
    assert_eq!(answer(&mut stream).await.0, 400);
}

/// LIS-01: AMQP, HTTP, WebSocket and AMQP over WebSocket are distinguished, however their bytes are
/// split.
#[test]
fn one_port_serves_every_protocol() {
    run(async {
        let world = World::start(|_| {}).await;
        for address in world.shared_ports() {
            speak(async || connect(address).await).await;
            let mut secret = connect(address).await;
            send(&mut secret, [22, 3, 1, 0, 5]).await;
            assert!(is_closed(&mut secret).await, "no TLS is spoken here");
        }
        world.stop().await;
    });
}

/// LIS-01, TLS-01: the same over TLS, and no connection without it.
#[test]
fn one_port_serves_every_protocol_over_tls() {
    run(async {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-tls");
        let authority = Authority::at(directory);
        authority.prepare(&[]).unwrap();
        let tls = Tls::open(authority.config()).unwrap();
        let world = World::start(|settings| {
            settings.tls = Some(tls.acceptor(Protocol::HttpOrAmqp));
            settings.amqp.tls = Some(tls.acceptor(Protocol::HttpOrAmqp));
        })
        .await;
        let trusted = certificates(&authority.authority_file()).unwrap();
        let client = ClientTls::of_system().trusting(trusted);
        for address in world.shared_ports() {
            let secure =
                async || client.connect("localhost", connect(address).await).await.unwrap();
            speak(secure).await;
            let mut plain = connect(address).await;
            send(&mut plain, get("/livez", "localhost")).await;
            assert_eq!(answer(&mut plain).await.0, 400);
            let mut plain = connect(address).await;
            send(&mut plain, HEADER).await;
            assert!(is_closed(&mut plain).await);
        }
        world.stop().await;
    });
}

/// Grants everything, and reports each principal and resource.
struct ReportingAuthorizer(mpsc::UnboundedSender<(Principal, String)>);

#[async_trait]
impl Authorizer for ReportingAuthorizer {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        self.0.send((principal.clone(), resource.to_owned())).unwrap();
        Ok(Grant::everything())
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Writes the certificate of a client `shop`, its key, and the certificate of its authority.
fn write_client([certificate, key, authority]: &[PathBuf; 3]) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "shop");
    let of_client = KeyPair::generate().unwrap();
    std::fs::write(certificate, params.signed_by(&of_client, &issuer).unwrap().pem()).unwrap();
    std::fs::write(key, of_client.serialize_pem()).unwrap();
    std::fs::write(authority, issuer.pem()).unwrap();
}

/// Logs in over AMQP with a certificate, and attaches a sender to `q`, without waiting for answers.
fn attach_by_certificate() -> Vec<u8> {
    let mut frames = Frames::default();
    frames.output.extend_from_slice(SASL);
    frames.say_sasl(&Init { mechanism: mechanism::EXTERNAL.into(), ..Init::default() });
    frames.output.extend_from_slice(HEADER);
    frames.say(0, &Session::open("shop"), &[]);
    frames.say(0, &Session::begin(), &[]);
    frames.say(0, &link::sender("a", 0, "q"), &[]);
    frames.output.to_vec()
}

/// TLS-04, AMQ-02, LIS-02: the authorizer gets the identity in a client's certificate from every
/// transport, at its own port and at the gateway, and over AMQP also at the login. A client without
/// a certificate is anonymous.
#[test]
fn the_authorizer_gets_a_certificate_from_every_transport() {
    run(async {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-certificates");
        let authority = Authority::at(&directory);
        authority.prepare(&[]).unwrap();
        let files = ["client.pem", "client.key", "clients.pem"].map(|file| directory.join(file));
        write_client(&files);
        let [certificate, key, clients] = files;
        let mut config = authority.config();
        config.client_certificates = ClientCertificates::Optional(clients);
        let tls = Tls::open(config).unwrap();
        let (sender, mut reports) = mpsc::unbounded_channel();
        let world = World::start(|settings| {
            settings.authorizer = Arc::new(ReportingAuthorizer(sender));
            settings.http.tls = Some(tls.acceptor(Protocol::Http));
            settings.websocket.tls = Some(tls.acceptor(Protocol::Http));
            settings.amqp.tls = Some(tls.acceptor(Protocol::HttpOrAmqp));
            settings.tls = Some(tls.acceptor(Protocol::HttpOrAmqp));
        })
        .await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        let trusted = certificates(&authority.authority_file()).unwrap();
        let nobody = ClientTls::of_system().trusting(trusted);
        let shop = nobody.clone().with_identity(&certificate, &key).unwrap();

        let sent = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na";
        let hello = text(r#"{"requests":[{"id":1,"hello":{"token":"a"}}]}"#);
        let attach = r#"{"requests":[{"id":2,"attach":{"link":1,"path":"q","role":"sender"}}]}"#;
        let by_amqp = attach_by_certificate();
        let wrapped: Vec<u8> = by_amqp.chunks(125).flat_map(frame).collect();
        let websocket = upgrade("/", "localhost", "peeklock.v1.json");
        let tunnel = upgrade("/$servicebus/websocket", "localhost", "AMQPWSB10");
        let shared = world.shared_ports();
        let and_own = |own| [own, shared[0], shared[1]];
        let ways = [
            (and_own(world.http), None, false, sent.to_vec()),
            (and_own(world.websocket), Some(websocket), false, [hello, text(attach)].concat()),
            (and_own(world.http), None, true, by_amqp),
            (and_own(world.amqp), Some(tunnel), true, wrapped),
        ];
        for (client, expected) in [(&shop, Some("CN=shop")), (&nobody, None)] {
            for (addresses, upgraded, logs_in, data) in &ways {
                for &address in addresses {
                    let socket = connect(address).await;
                    let peer = socket.local_addr().ok();
                    let mut stream = client.connect("localhost", socket).await.unwrap();
                    if let Some(request) = upgraded {
                        send(&mut stream, request).await;
                        assert_eq!(answer(&mut stream).await.0, 101);
                    }
                    send(&mut stream, data).await;
                    let mut asked: Vec<String> = Vec::new();
                    while asked.last().is_none_or(|resource| resource != "q") {
                        let (who, resource) = reports.recv().await.unwrap();
                        // A request for an earlier connection may still arrive.
                        if who.peer == peer {
                            let subject = who.tls.map(|identity| identity.subject);
                            assert_eq!(subject.as_deref(), expected, "{address}");
                            asked.push(resource);
                        }
                    }
                    let logs_in = *logs_in && expected.is_some();
                    assert_eq!(asked.iter().any(String::is_empty), logs_in, "{asked:?}");
                }
            }
        }
        world.stop().await;
    });
}

/// LIS-02: the protocol determines host names and limits, and a connection counts toward the limit
/// of its transport.
#[test]
fn each_protocol_has_the_limits_of_its_listener() {
    run(async {
        let world = World::start(|settings| {
            settings.http.allowed_hosts = vec!["http.test".to_owned()];
            settings.websocket.allowed_hosts = vec!["ws.test".to_owned()];
            settings.amqp.allowed_hosts = vec!["amqp.test".to_owned()];
            settings.amqp.connection_count_max = 1;
        })
        .await;
        for address in world.shared_ports() {
            for host in ["http.test", "ws.test", "amqp.test"] {
                for (of, request, good) in [
                    ("http.test", get("/livez", host), 200),
                    ("ws.test", upgrade("/", host, "peeklock.v1.json"), 101),
                    ("amqp.test", upgrade("/$servicebus/websocket", host, "amqp"), 101),
                ] {
                    let mut stream = connect(address).await;
                    send(&mut stream, request).await;
                    let expected = if of == host { good } else { 421 };
                    assert_eq!(answer(&mut stream).await.0, expected, "{of} asked for {host}");
                }
            }
        }
        // The single AMQP connection is taken by a client with a link. A client at another port
        // waits for it.
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        let open = |address| Amqp::open(StdStream::connect(address).unwrap(), 100).unwrap();
        for (first, second) in [(world.amqp, world.gateway), (world.gateway, world.http)] {
            let mut own = open(first);
            own.attach(&link::receiver("own", 0, "q")).unwrap();
            let mut other = open(second);
            other.say(&link::receiver("other", 0, "q")).unwrap();
            other.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            assert!(other.hear().is_err(), "there is one place");
            drop(own);
            other.stream.set_read_timeout(None).unwrap();
            assert!(matches!(other.hear().unwrap().0, Performative::Attach(_)));
        }
        world.stop().await;
        // An idle HTTP connection is closed for the next one, at whichever port each arrived.
        for (first, second) in [(0, 1), (1, 2), (2, 0)] {
            let world = World::start(|settings| settings.http.connection_count_max = 1).await;
            let ports = [world.gateway, world.amqp, world.http];
            let mut idle = connect(ports[first]).await;
            send(&mut idle, get("/livez", "localhost")).await;
            assert_eq!(answer(&mut idle).await.0, 200);
            let mut next = connect(ports[second]).await;
            send(&mut next, get("/livez", "localhost")).await;
            assert_eq!(answer(&mut next).await.0, 200);
            assert!(is_closed(&mut idle).await);
            world.stop().await;
        }
    });
}

/// LIS-03: a client that does not identify its protocol is closed in time, and the oldest such
/// client earlier if there are many.
#[test]
fn silent_connections_are_closed() {
    let _alone = MANY_SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let world = World::start(|settings| {
            settings.opening_timeout = Duration::from_millis(50);
            settings.http.head_timeout = Duration::from_millis(50);
        })
        .await;
        for address in world.shared_ports() {
            for begun in ["", "A", "AMQ"] {
                let mut stream = connect(address).await;
                send(&mut stream, begun).await;
                assert!(is_closed(&mut stream).await, "{begun}");
            }
            let mut half = connect(address).await;
            send(&mut half, "GET / HT").await;
            assert_eq!(answer(&mut half).await.0, 408, "from here on it is the time of HTTP");
        }
        world.stop().await;
        let world = World::start(|_| {}).await;
        for address in world.shared_ports() {
            let mut silent = Vec::new();
            for _ in 0..300 {
                silent.push(connect(address).await);
            }
            assert!(is_closed(&mut silent[0]).await, "it is not among the last 256");
            let mut stream = connect(address).await;
            send(&mut stream, get("/livez", "localhost")).await;
            assert_eq!(answer(&mut stream).await.0, 200);
        }
        world.stop().await;
    });
}

/// LIS-02: although many connections came through the gateway, another one is accepted there and
/// gets the rules of its protocol. Here all AMQP sockets are taken, and the client that has been
/// unidentified for the longest time is closed. Silent clients may have 256 connections more than
/// the limit.
#[test]
fn a_transport_selects_the_closed_connection_behind_the_gateway() {
    let _alone = MANY_SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let world = World::start(|settings| {
            settings.http.connection_count_max = 1;
            settings.websocket.connection_count_max = 1;
            settings.amqp.connection_count_max = 1;
            // Silent clients stay for the whole test.
            settings.opening_timeout = 2 * TEST_TIME_MAX;
            settings.amqp.opening_timeout = 2 * TEST_TIME_MAX;
        })
        .await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        let mut holder = Amqp::open(StdStream::connect(world.gateway).unwrap(), 100).unwrap();
        holder.attach(&link::receiver("holder", 0, "q")).unwrap();
        let open = async || {
            let mut stream = world.connect().await;
            send(&mut stream, HEADER).await;
            let mut bytes_read = [0; 8];
            stream.read_exact(&mut bytes_read).await.unwrap();
            assert_eq!(&bytes_read, HEADER);
            stream
        };
        // One connection, and 16 more sockets.
        let mut strangers = Vec::new();
        for _ in 0..16 {
            strangers.push(open().await);
        }
        let mut silent = Vec::new();
        for _ in 0..242 {
            silent.push(world.connect().await);
        }
        let _next = open().await;
        assert!(is_closed(&mut strangers[0]).await);
        let mut stream = world.connect().await;
        for stream in [&mut stream, &mut silent[0]] {
            send(stream, get("/livez", "localhost")).await;
            assert_eq!(answer(stream).await.0, 200);
        }
        drop(holder);
        world.stop().await;
    });
}

/// LIS-02: a client at a shared port gets the time of its protocol to end when the broker stops:
/// the broker announces the stop, and the client can still complete a message under lock.
#[test]
fn a_stop_gives_clients_at_a_shared_port_time_to_end() {
    run(async {
        for port in 0..2 {
            let world = World::start(|_| {}).await;
            world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
            let sent =
                b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na";
            let mut sender = connect(world.http).await;
            send(&mut sender, sent).await;
            assert_eq!(answer(&mut sender).await.0, 201);
            drop(sender);
            let mut stream = connect(world.shared_ports()[port]).await;
            send(&mut stream, upgrade("/", "localhost", "peeklock.v1.json")).await;
            let mut bytes_read = Vec::new();
            read_until(&mut stream, &mut bytes_read, "\r\n\r\n").await;
            send(&mut stream, text(r#"{"requests":[{"id":1,"hello":{}}]}"#)).await;
            read_until(&mut stream, &mut bytes_read, r#""welcome""#).await;
            let attach = r#"{"link":1,"path":"q","role":"receiver","mode":"peekLock","credit":1}"#;
            send(&mut stream, text(&format!(r#"{{"requests":[{{"id":2,"attach":{attach}}}]}}"#)))
                .await;
            read_until(&mut stream, &mut bytes_read, r#""lockToken""#).await;
            let broker = world.broker.clone();
            let stopping = tokio::spawn(async move {
                let mut stopping = tokio::task::JoinSet::new();
                for transport in world.running {
                    stopping.spawn(transport.stop(TEST_TIME_MAX));
                }
                while let Some(stopped) = stopping.join_next().await {
                    stopped.unwrap();
                }
            });
            read_until(&mut stream, &mut bytes_read, r#""closing""#).await;
            assert!(!stopping.is_finished(), "the client was not waited for");
            let settle = r#"{"link":1,"decision":"complete","ranges":[[1,1]]}"#;
            send(&mut stream, text(&format!(r#"{{"requests":[{{"id":3,"settle":{settle}}}]}}"#)))
                .await;
            read_until(&mut stream, &mut bytes_read, r#""settled""#).await;
            drop(stream);
            stopping.await.unwrap();
            assert_eq!(broker.describe_queue("q").await.unwrap().counts.total(), 0);
            broker.stop(Duration::ZERO).await.unwrap();
        }
    });
}

/// Reads until a text appears after everything read before.
async fn read_until(stream: &mut TcpStream, bytes_read: &mut Vec<u8>, wanted: &str) {
    bytes_read.clear();
    while !String::from_utf8_lossy(bytes_read).contains(wanted) {
        let byte = stream.read_u8().await;
        bytes_read.push(
            byte.unwrap_or_else(|end| panic!("{end}: {}", String::from_utf8_lossy(bytes_read))),
        );
    }
}

/// LIS-06: the HTTP port serves a client that begins with AMQP, however its bytes are split, and
/// its connection ends in order when the broker stops. Without AMQP the client gets an HTTP error.
#[test]
fn the_port_of_http_serves_amqp() {
    run(async {
        let world = World::start(|_| {}).await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        for header in [HEADER, SASL] {
            let mut stream = connect(world.http).await;
            for byte in header {
                send(&mut stream, [*byte]).await;
            }
            let mut bytes_read = [0; 8];
            stream.read_exact(&mut bytes_read).await.unwrap();
            assert_eq!(&bytes_read, header);
        }
        let mut second = connect(world.http).await;
        send(&mut second, get("/livez", "localhost")).await;
        assert_eq!(answer(&mut second).await.0, 200);
        send(&mut second, [HEADER, &b"\r\n\r\n"[..]].concat()).await;
        assert_eq!(answer(&mut second).await.0, 400, "a connection is for one protocol");
        let mut client = Amqp::open(StdStream::connect(world.http).unwrap(), 100).unwrap();
        client.attach(&link::receiver("a", 0, "q")).unwrap();
        world.stop().await;
        let ended = loop {
            if let Performative::Close(close) = client.hear().unwrap().0 {
                break close;
            }
        };
        assert_eq!(ended.error.unwrap().condition(), "amqp:connection:forced");

        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        let config = HttpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let http = Box::new(HttpTransport::new(config)).start(broker.clone()).await.unwrap();
        let mut stream = connect(http.local_address()).await;
        send(&mut stream, [HEADER, &b"\r\n\r\n"[..]].concat()).await;
        assert_eq!(answer(&mut stream).await.0, 400);
        http.stop(Duration::ZERO).await;
        broker.stop(Duration::ZERO).await.unwrap();
    });
}

/// LIS-01: a gateway, or a shared AMQP port, requires at least one transport.
#[test]
fn a_gateway_without_transports_does_not_start() {
    run(async {
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        let gateway = GatewayConfig {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            workers: 1,
            opening_timeout: Duration::from_secs(1),
            admission: Admission::default(),
            i_know: false,
            entrances: Entrances::default(),
        };
        let Err(error) = Box::new(Gateway::new(gateway)).start(broker.clone()).await else {
            panic!("it has started")
        };
        assert!(error.to_string().contains("has not started"), "{error}");
        let mut amqp = AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (opening_timeout, entrances) = (Duration::from_secs(1), Entrances::default());
        amqp.entrance = entrances.amqp.clone();
        amqp.shared_port = Some(SharedPort { opening_timeout, entrances });
        let Err(error) = Box::new(AmqpTransport::new(amqp)).start(broker.clone()).await else {
            panic!("it has started")
        };
        assert!(error.to_string().contains("has not started"), "{error}");
        broker.stop(Duration::ZERO).await.unwrap();
    });
}

/// A sequence of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// LIS-01, LIS-02: a connection that begins with random bytes, or with AMQP, TLS, HTTP, an upgrade
/// or a PROXY header that contains something else, gets an answer or is closed once its client has
/// sent everything, and other clients are served meanwhile.
#[test]
fn any_first_bytes_get_an_answer_or_a_close() {
    run(async {
        let world = World::start(|settings| {
            settings.opening_timeout = Duration::from_secs(2);
        })
        .await;
        let host = world.gateway.to_string();
        let request = upgrade("/$servicebus/websocket", &host, "AMQPWSB10");
        let proxy = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\x7f\0\0\x01\x7f\0\0\x01\0\x01\0\x02";
        let hello = b"\x16\x03\x01\x00\x31\x01\x00\x00\x2d\x03\x03";
        let begins: [&[u8]; 6] = [
            HEADER,
            SASL,
            get("/livez", &host).leak().as_bytes(),
            request.as_bytes(),
            proxy,
            hello,
        ];
        let ports = [world.gateway, world.amqp, world.http];
        let mut random = Random(0x6761_7465_7761_7921);
        let mut open = tokio::task::JoinSet::new();
        for number in 0..800_usize {
            let mut bytes = match number % 7 {
                6 => (0..random.below(64))
                    .map(|_| u8::try_from(random.below(256)).unwrap())
                    .collect(),
                which => begins[which].to_vec(),
            };
            for _ in 0..random.below(3) {
                if bytes.is_empty() {
                    break;
                }
                let place = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes.truncate(place),
                    1 => bytes[place] ^= 1 << random.below(8),
                    _ => bytes.insert(place, u8::try_from(random.below(256)).unwrap()),
                }
            }
            let mut stream = connect(ports[number % ports.len()]).await;
            open.spawn(async move {
                // The connection may be closed before all bytes are written.
                stream.write_all(&bytes).await.ok();
                stream.shutdown().await.ok();
                let mut answer = Vec::new();
                tokio::io::copy(&mut (&mut stream).take(64 << 10), &mut answer).await.ok();
                answer.len()
            });
            if open.len() >= 100 {
                open.join_next().await.unwrap().unwrap();
            }
            if number % 100 == 0 {
                let mut stream = world.connect().await;
                send(&mut stream, get("/livez", &host)).await;
                assert_eq!(answer(&mut stream).await.0, 200);
            }
        }
        let mut longest = 0;
        while let Some(length) = open.join_next().await {
            longest = longest.max(length.unwrap());
        }
        assert!(longest < 8 << 10, "{longest} bytes in answer to nothing");
        let mut stream = world.connect().await;
        send(&mut stream, HEADER).await;
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header[..4], b"AMQP");
        world.stop().await;
    });
}
