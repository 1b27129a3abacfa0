//! Several brokers over one database: one owns the messages, the others stand by (CLU-16 to CLU-20,
//! CLU-53).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::database::Postgres;
use crate::postgres::{SERVE, again, config, folder, kill, receive, send, wait_for_readiness};
use crate::wait::wait_for;
use crate::{FREE_PORT, Server, peeklock};

/// Brokers over one database, by name.
struct Cluster {
    database: Postgres,
    url: String,
    test: &'static str,
}

impl Cluster {
    fn new(test: &'static str) -> Self {
        let database = Postgres::start(test);
        let url = database.database("peeklock");
        Self { database, url, test }
    }

    fn place(&self, name: &str) -> String {
        format!("{}-{name}", self.test)
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let config = config(&self.url, &format!("[cluster]\nname = \"{name}\"\n"));
        peeklock(&self.place(name), &config, arguments)
    }

    /// Starts a broker that serves clients.
    fn serve(&self, name: &str) -> Server {
        let mut broker = self.spawn(name, self.command(name, SERVE));
        broker.read_address("http");
        broker
    }

    /// Starts a broker that stands by.
    fn stand_by(&self, name: &str) -> Server {
        let mut standby = self.spawn(name, self.command(name, SERVE));
        standby.read_address("probes");
        standby
    }

    fn spawn(&self, name: &str, command: Command) -> Server {
        let log = File::create(folder(&self.place(name)).join("log")).unwrap();
        Server::spawn(command, log.into())
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(folder(&self.place(name)).join("log")).unwrap()
    }

    /// Waits until the log of a broker has this text.
    fn wait_for_log(&self, name: &str, text: &str) {
        wait_for(|| self.log(name).contains(text).then_some(()), || self.log(name));
    }
}

/// Ends a broker in order.
fn stop(server: Server) {
    let (code, out, _) = server.stop("-TERM");
    assert_eq!(code, 0, "{out}");
}

/// CLU-06, CLU-19, CLU-20, CLU-52, CLU-53: a second broker stands by. Its probes name the owner, and
/// it listens nowhere else. When the owner is killed, it has each acknowledged message once, in
/// order, and no lock. The killed broker then stands by itself.
#[test]
fn standby_takes_over_from_a_killed_owner() {
    let cluster = Cluster::new("standby-kill");
    let first = cluster.serve("left");
    assert_eq!(first.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    send(&first, 0..50);
    assert_eq!(first.ask("POST", "/orders/messages/head", "").0, 201, "a lock on the first one");

    // A service manager learns that the service has started.
    let socket = std::env::temp_dir().join(format!("peeklock-{}.standby", std::process::id()));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // An address of its own, so that no other program listens at its ports.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [websocket, amqp] = [5301, 5672].map(|port| format!("127.53.{high}.{low}:{port}"));
    let serve = ["serve", "--http", FREE_PORT, "--ws", &*websocket, "--amqp", &*amqp];
    let mut command = cluster.command("right", &serve);
    command.env("NOTIFY_SOCKET", &socket);
    let mut second = cluster.spawn("right", command);
    second.read_address("probes");
    let mut buffer = [0; 512];
    let mut reported = || {
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let ready = std::iter::repeat_with(&mut reported).find(|text| text.contains("READY=1"));
    assert!(ready.unwrap().contains("STATUS=standing by for left"));
    assert!(second.read.contains("  standby   of left, as right\n"), "{}", second.read);

    let (status, ready) = second.get("/readyz");
    assert_eq!(status, 503);
    assert!(ready.contains("`left` owns the messages, at most until 20"), "{ready}");
    assert_eq!(second.get("/livez").0, 200);
    assert!(second.get("/health").1.ends_with("{\"status\":\"standby\"}"));
    let metrics = second.get("/metrics").1;
    assert!(metrics.contains("peeklock_ready 0\n"), "{metrics}");
    assert!(metrics.contains("peeklock_standby 1\n"), "{metrics}");
    assert_eq!(second.ask("POST", "/orders/messages", "lost").0, 503);
    for address in [&websocket, &amqp] {
        assert!(TcpStream::connect(address).is_err(), "clients must go to the owner");
    }
    let metrics = first.get("/metrics").1;
    assert!(metrics.contains("peeklock_standby 0\n"), "{metrics}");
    assert!(metrics.contains("peeklock_lease_seconds "), "{metrics}");
    assert!(metrics.contains("peeklock_shards{state=\"serving\"} 4\n"), "{metrics}");
    assert!(metrics.contains("peeklock_takeover_seconds{reason=\"free\"} "), "{metrics}");

    kill(first);
    second.read_address("http");
    let owner = second.read_line("owner");
    assert!(owner.ends_with(", as right"), "{owner}");
    assert!(reported().contains("STATUS=serving"));
    let metrics = second.get("/metrics").1;
    assert!(metrics.contains("peeklock_takeover_seconds{reason=\"expired\"} "), "{metrics}");
    cluster.wait_for_log("right", "the shards are taken over and open");
    receive(&second, 0..50);
    wait_for_readiness(&second, 200);
    TcpStream::connect(&amqp).unwrap();
    let mut first = cluster.spawn("left", again(&cluster.place("left")));
    first.read_address("probes");
    // A standby stops in order too.
    stop(first);
    assert!(cluster.log("left").contains("stopped"), "{}", cluster.log("left"));
    stop(second);
    std::fs::remove_file(socket).unwrap();
}

/// CLU-17, CLU-18: an owner that is stopped for longer than its lease acknowledges, locks and shows
/// nothing more when it goes on, and becomes a standby in the same process. A stop in order hands
/// the messages over.
#[test]
fn paused_owner_becomes_a_standby() {
    let cluster = Cluster::new("standby-pause");
    let mut first = cluster.serve("left");
    assert_eq!(first.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    send(&first, 0..20);
    let process = first.child.id();
    let mut second = cluster.stand_by("right");
    // The system takes these requests for the stopped process.
    first.pause();
    let requests = [
        ("POST /orders/messages", "late"),
        ("DELETE /orders/messages/head", ""),
        ("POST /orders/messages/head", ""),
        ("GET /$api/v1/queues/orders/messages?count=1", ""),
    ];
    let requests = requests.map(|(request, body)| {
        let mut stream = TcpStream::connect(&first.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = &first.address;
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    });
    second.read_address("http");
    send(&second, 20..30);
    first.signal("-CONT");
    for mut stream in requests {
        let mut answer = Vec::new();
        // The end of the process may reset the connection.
        let _reset = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        // A receive that waits gets no message (204) when the broker stops.
        let is_refused = answer.starts_with("HTTP/1.1 5") || answer.starts_with("HTTP/1.1 204");
        assert!(answer.is_empty() || is_refused, "{answer}");
    }
    first.read_address("probes");
    assert_eq!(first.child.id(), process);
    assert!(first.child.try_wait().unwrap().is_none(), "it is the same process");
    let (status, ready) = first.get("/readyz");
    assert!(status == 503 && ready.contains("`right` owns the messages"), "{ready}");

    stop(second);
    first.read_address("http");
    receive(&first, 0..30);
    stop(first);
    let log = cluster.log("left");
    assert!(log.contains("starting again as a standby"), "{log}");
}

/// CLU-17, CLU-21: an outage of the database for two brokers changes no owner. The owner is suspended
/// and goes on.
#[test]
fn outage_of_the_database_keeps_the_owner() {
    let cluster = Cluster::new("standby-outage");
    let first = cluster.serve("left");
    assert_eq!(first.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    send(&first, 0..10);
    let second = cluster.stand_by("right");
    cluster.database.crash();
    cluster.wait_for_log("left", "nothing leaves this broker until it is");
    cluster.wait_for_log("right", "the lease cannot be renewed");
    cluster.database.run("-c listen_addresses=");
    wait_for_readiness(&first, 200);
    cluster.wait_for_log("left", "the lease is renewed; work goes on");
    send(&first, 10..20);
    // The standby looks at the lease of the owner when it renews its own.
    let look = || {
        let answer = wait_for_readiness(&second, 503);
        answer.contains("`left` owns the messages").then_some(())
    };
    wait_for(look, || cluster.log("right"));
    receive(&first, 0..20);
    stop(second);
    stop(first);
    assert!(!cluster.log("right").contains("taking the shards over"));
}

/// CLU-53: a broker that leaves is not ready first, and serves clients meanwhile. A second signal ends
/// it at once.
#[test]
fn leaving_broker_serves_and_is_not_ready() {
    let cluster = Cluster::new("standby-leaves");
    let mut command = cluster.command("left", SERVE);
    // Longer than the test takes.
    command.env("PEEKLOCK__CLUSTER__LEAVE_DELAY", "1m");
    let mut owner = cluster.spawn("left", command);
    owner.read_address("http");
    assert_eq!(owner.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    owner.signal("-TERM");
    let answer = wait_for_readiness(&owner, 503);
    assert!(answer.contains("the broker is stopping"), "{answer}");
    send(&owner, 0..3);
    receive(&owner, 0..3);
    owner.signal("-TERM");
    assert_eq!(owner.exit_code(), Some(1));
}

/// CLU-21, CLU-53: renewals notice a database that keeps its connections and answers nothing, while
/// no client asks. The broker goes on when the database does.
#[test]
fn frozen_database_is_noticed_without_a_request() {
    let cluster = Cluster::new("standby-frozen");
    let owner = cluster.serve("left");
    wait_for_readiness(&owner, 200);
    let frozen = cluster.database.freeze();
    let answer = wait_for_readiness(&owner, 503);
    assert!(answer.contains("the database of the broker does not answer"), "{answer}");
    let health = owner.get("/health").1;
    assert!(health.contains("\"status\":\"unavailable\""), "{health}");
    drop(frozen);
    wait_for_readiness(&owner, 200);
    stop(owner);
}

/// CLU-53: a signal ends a broker while its database is opened, and while it waits for its lease.
#[test]
fn signal_ends_a_broker_that_starts() {
    let cluster = Cluster::new("standby-signals");
    let _owner = cluster.serve("left");
    // Nobody answers there, so the opening waits.
    let silent = TcpListener::bind(FREE_PORT).unwrap();
    silent.set_nonblocking(true).unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("host=127.0.0.1 port={port} user=peeklock dbname=peeklock");
    let mut command = cluster.command("middle", SERVE);
    command.env("PEEKLOCK__STORE__POSTGRES__URL", url);
    let mut opening = cluster.spawn("middle", command);
    let _connected = wait_for(|| silent.accept().ok(), || cluster.log("middle"));
    opening.signal("-TERM");
    assert_eq!(opening.exit_code(), Some(0), "{}", cluster.log("middle"));
    assert!(cluster.log("middle").contains("stopping before the start"));
    for signal in ["-TERM", "-INT"] {
        let standby = cluster.stand_by("right");
        let (code, _, _) = standby.stop(signal);
        assert_eq!(code, 0, "{}", cluster.log("right"));
    }
}
