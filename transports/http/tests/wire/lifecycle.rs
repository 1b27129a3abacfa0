//! Ends of connections, stops of listeners, and the passage of time.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use peeklock_core::command::Command;
use peeklock_core::request::{Outlet, Released, Reply, Request};
use peeklock_core::time::TimeSpan;
use peeklock_http::Readiness;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::server::{Plan, Server};

/// Tries until a receive is refused, because the single allowed one waits.
pub async fn until_refused(server: &Server) {
    while server.receive().await.status != 403 {
        tokio::task::yield_now().await;
    }
}

/// Starts a listener that allows one receive at a time, so that a test can see whether one waits.
async fn with_one_receiver() -> Server {
    let mut plan = Plan::new();
    plan.settings.limits.receiver_count_max = 1;
    plan.start().await
}

/// HTP-11, RCV-14: a receive whose client has disconnected takes nothing, and no count increases.
#[tokio::test]
async fn a_client_that_leaves_takes_no_message() {
    let server = with_one_receiver().await;
    for head in ["POST /q/messages/head", "POST /$api/v1/queues/q/messages/receive"] {
        let body = if head.contains("$api") { "{\"waitSeconds\":60}" } else { "" };
        let mut waiting = server.connect().await;
        waiting.write(&server.request(head, body)).await;
        until_refused(&server).await;
        drop(waiting);
        server.in_progress(1).await;
        assert_eq!(server.receive().await.status, 204);
    }
    server.send("kept").await;
    let answer = server.receive().await;
    assert_eq!((answer.status, answer.text()), (201, "kept"));
    assert_eq!(answer.properties()["DeliveryCount"], 1);
    server.stop().await;
}

/// HTP-11, RCV-14: the same with a reset instead of an orderly close.
#[tokio::test]
async fn a_client_whose_connection_is_reset_takes_no_message() {
    let server = with_one_receiver().await;
    let mut waiting = server.connect().await;
    waiting.write(&server.request("POST /q/messages/head", "")).await;
    until_refused(&server).await;
    waiting.stream.set_zero_linger().unwrap();
    drop(waiting);
    server.in_progress(1).await;
    server.send("kept").await;
    assert_eq!(server.receive().await.properties()["DeliveryCount"], 1);
    server.stop().await;
}

/// HTP-11, RCV-14: the same for a client with more pipelined bytes than are read while its request
/// waits.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[tokio::test]
async fn a_client_that_leaves_behind_much_takes_no_message() {
    let server = with_one_receiver().await;
    let ahead = server.request("GET /livez", "").repeat(500);
    assert!(ahead.len() > 20_000, "it would be read with its end");
    for head in ["POST /q/messages/head", "POST /$api/v1/queues/q/messages/receive"] {
        let body = if head.contains("$api") { "{\"waitSeconds\":60}" } else { "" };
        let mut waiting = server.connect().await;
        waiting.write(&[server.request(head, body), ahead.clone()].concat()).await;
        until_refused(&server).await;
        drop(waiting);
        server.in_progress(1).await;
        assert_eq!(server.receive().await.status, 204);
    }
    server.send("kept").await;
    let answer = server.receive().await;
    assert_eq!((answer.status, answer.text()), (201, "kept"));
    assert_eq!(answer.properties()["DeliveryCount"], 1);
    server.stop().await;
}

/// HTP-11: a client that shuts its side down after requests that do not wait gets answers, except
/// perhaps for the last 8 KiB: the end is read together with them.
#[tokio::test]
async fn requests_without_a_wait_are_answered_before_a_shutdown() {
    const REQUEST_COUNT: usize = 1_000;
    let server = Server::start().await;
    let mut client = server.connect().await;
    let request = server.request("GET /livez", "");
    client.write(&request.repeat(REQUEST_COUNT)).await;
    client.stream.shutdown().await.unwrap();
    let mut answered_count = 0;
    while let Some(answer) = client.read().await {
        assert_eq!(answer.status, 200);
        answered_count += 1;
    }
    let last_count = (8 << 10) / request.len() + 1;
    assert!(answered_count >= REQUEST_COUNT - last_count, "{answered_count}");
    server.stop().await;
}

/// A client that offers HTTP/2, as Java clients do, is answered, with the announcement that the
/// connection will be closed.
#[tokio::test]
async fn an_offered_upgrade_gets_connection_close() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let offer =
        "GET /livez\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAEAAEAA";
    client.write(&server.request(offer, "")).await;
    let answer = client.read().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(client.read_to_end().await.is_empty());
    server.stop().await;
}

/// HTP-11, SET-23: a lock outlives the connection that has taken it.
#[tokio::test]
async fn a_lock_outlives_its_connection() {
    let server = Server::start().await;
    server.send("x").await;
    let mut client = server.connect().await;
    client.write(&server.request("POST /q/messages/head?timeout=0", "")).await;
    let answer = client.read().await.unwrap();
    let token = answer.properties()["LockToken"].as_str().unwrap().to_owned();
    drop(client);
    assert_eq!(server.receive().await.status, 204);
    assert_eq!(server.ask(&format!("POST /q/messages/1/{token}"), "").await.status, 200);
    // Its expiry counts as a failed delivery.
    server.clock.advance(TimeSpan::from_minutes(1));
    assert_eq!(server.receive().await.properties()["DeliveryCount"], 2);
    let late = server.ask(&format!("DELETE /q/messages/1/{token}"), "").await;
    assert_eq!(late.error(), (404, "MessageLockLost".to_owned()));
    server.stop().await;
}

/// HTP-08, RCV-11: without a timeout, or with a longer one, the wait ends after 60 s.
#[tokio::test]
async fn a_wait_is_cut_at_sixty_seconds() {
    let server = with_one_receiver().await;
    for query in ["", "?timeout=60", "?timeout=3600", "?timeout=1e300"] {
        let mut waiting = server.connect().await;
        waiting.write(&server.request(&format!("POST /q/messages/head{query}"), "")).await;
        until_refused(&server).await;
        server.clock.advance(TimeSpan::from_ms(59_999));
        assert_eq!(server.receive().await.status, 403, "it waits no more");
        server.clock.advance(TimeSpan::from_ms(1));
        let answer = waiting.read().await.unwrap();
        assert_eq!((answer.status, answer.body.len()), (204, 0));
    }
    server.stop().await;
}

/// A stop ends waiting receives, lets requests complete, and closes idle connections.
#[tokio::test]
async fn a_stop_is_graceful() {
    let server = with_one_receiver().await;
    let mut idle = server.connect().await;
    idle.write(&server.request("GET /livez", "")).await;
    assert_eq!(idle.read().await.unwrap().status, 200);
    let mut sending = server.connect().await;
    sending.write(&server.request("POST /q/messages\nContent-Length: 4", "")).await;
    server.in_progress(2).await;
    let mut waiting = server.connect().await;
    waiting.write(&server.request("POST /q/messages/head", "")).await;
    until_refused(&server).await;
    let address = server.address;
    let stop = tokio::spawn(server.stop_listener(Duration::from_secs(60)));
    let answer = waiting.read().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (204, Some("close")));
    sending.write(b"last").await;
    let answer = sending.read().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (201, Some("close")));
    let broker = stop.await.unwrap();
    assert_eq!(idle.read_to_end().await, b"");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(broker.describe_queue("q").await.unwrap().counts.active, 1);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// A request that does not end is cut off after the grace period of a stop.
#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let server = Server::start().await;
    let mut slow = server.connect().await;
    slow.write(&server.request("POST /q/messages\nContent-Length: 4", "")).await;
    server.in_progress(2).await;
    let broker = server.stop_listener(Duration::from_millis(10)).await;
    slow.read_to_end().await;
    assert_eq!(broker.describe_queue("q").await.unwrap().counts.active, 0);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Two listeners of a broker, started from different runtimes.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_starts_from_any_runtime() {
    let server = Server::start().await;
    server.send("x").await;
    assert_eq!(server.receive().await.status, 201);
    let health = server.ask("GET /health", "").await.json();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["store"], "memory");
    assert_eq!(health["durable"], false);
    assert_eq!(health["entities"], 1);
    server.stop().await;
}

/// An outlet that blocks its arbiter, which outlets must not do, until its sender is dropped.
struct Standstill {
    reached: UnboundedSender<()>,
    end: Mutex<mpsc::Receiver<()>>,
}

impl Outlet for Standstill {
    fn release(&self, _: Vec<Released>) {
        self.reached.send(()).unwrap();
        self.end.lock().unwrap().recv().unwrap_err();
    }
}

/// A broker with an arbiter that has been busy with one entity for a second is not ready and names
/// the entity. It is ready again when the arbiter continues.
#[tokio::test]
async fn a_broker_with_a_stuck_arbiter_is_not_ready() {
    let server = Server::start().await;
    server.broker.create_queue("slow", Default::default()).await.unwrap();
    let slow = server.broker.entity("slow").unwrap();
    let (reached, mut is_reached) = unbounded_channel();
    let (go_on, end) = mpsc::channel();
    let outlet: Arc<dyn Outlet> = Arc::new(Standstill { reached, end: Mutex::new(end) });
    let command = Command::Describe;
    let (ticket, sub_queue) = (server.broker.ticket(), slow.sub_queue());
    let reply = Reply::new(outlet, 0, None);
    slow.submit(vec![Request { ticket, sub_queue, command, reply }]);
    is_reached.recv().await.unwrap();
    server.clock.advance(TimeSpan::from_ms(999));
    assert_eq!(server.ask("GET /readyz", "").await.status, 200);
    server.clock.advance(TimeSpan::from_ms(1));
    let answer = server.ask("GET /readyz", "").await;
    assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains("`slow` for 1.0 s"), "{detail}");
    assert_eq!(server.ask("GET /livez", "").await.status, 200);
    drop(go_on);
    // The only arbiter has continued.
    server.send("a").await;
    assert_eq!(server.ask("GET /readyz", "").await.status, 200);
    server.stop().await;
}

/// SEC-25, CLU-53: a broker is not ready before its host reports it, which is after the first key was
/// written for the operator, nor after its host reports that it stops.
#[tokio::test]
async fn a_broker_is_not_ready_before_its_host_reports_it() {
    let readiness = Readiness::default();
    let mut plan = Plan::new();
    plan.config.readiness = Some(readiness.clone());
    let server = plan.start().await;
    let answer = server.ask("GET /readyz", "").await;
    assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
    assert_eq!(server.ask("GET /livez", "").await.status, 200);
    readiness.set();
    assert_eq!(server.ask("GET /readyz", "").await.status, 200);
    readiness.end();
    let answer = server.ask("GET /readyz", "").await;
    assert_eq!(answer.error(), (503, "InternalError".to_owned()));
    assert_eq!(server.ask("GET /livez", "").await.status, 200);
    server.stop().await;
}
