//! Which connection gives up its slot when all slots are taken and no connection is idle.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::client::{Client, Socket};
use super::server::{Plan, Server, run};

/// Sockets in addition to one or two slots, the smallest possible number.
const SPARE: u32 = 16;

/// Cause of refusals that no other test of this program uses.
const TOLD: &str = "told_where_there_is_no_place";

/// Lines with this cause in the log of this program.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Receives the log line by line.
struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if line.contains(TOLD) {
            LOG.lock().unwrap().push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Upgrades from a loopback address.
async fn upgrade_from(from: [u8; 4], to: SocketAddr) -> Socket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(to).await.unwrap();
    let mut request = format!("ws://{to}/").into_client_request().unwrap();
    let protocol = "peeklock.v1.json".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    client_async(request, stream).await.unwrap().0
}

/// Sends a hello; none if it is refused because there is no slot.
async fn hello(socket: Socket) -> Option<Client> {
    hello_saying(socket, json!({})).await
}

async fn hello_saying(mut socket: Socket, hello: Value) -> Option<Client> {
    say_hello(&mut socket, &hello).await;
    let mut client = Client::over(socket);
    client.frame().await?;
    client.seen = 0;
    Some(client)
}

async fn say_hello(socket: &mut Socket, hello: &Value) {
    use futures_util::SinkExt as _;
    let frame = json!({ "requests": [{ "id": 1, "hello": hello }] });
    let message = tokio_tungstenite::tungstenite::Message::text(frame.to_string());
    socket.send(message).await.unwrap();
}

/// QUO-01: an address that has all slots with active, linked connections gives one up to a client
/// from elsewhere: the connection whose last request is oldest. It gives none up to another client
/// from its own address.
#[test]
fn the_address_with_most_places_gives_one_up() {
    run(async {
        let mut plan = Plan::new();
        plan.config.connection_count_max = 3;
        let server = plan.start().await;
        let (greedy, modest) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let mut many = Vec::new();
        for _ in 0..3 {
            let mut client = hello(upgrade_from(greedy, server.address).await).await.unwrap();
            client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
            many.push(client);
        }
        assert!(hello(upgrade_from(greedy, server.address).await).await.is_none());
        // New connections are spared for a moment, since their requests may be under way.
        let mut other = loop {
            if let Some(client) = hello(upgrade_from(modest, server.address).await).await {
                break client;
            }
            many[0].ask("getQueue", json!({ "path": "q" })).await;
            many[2].ask("heartbeat", json!({})).await;
        };
        let (code, reason) = many[1].closed().await.unwrap();
        assert_eq!(
            (code, &*reason),
            (1_013, "the connection is closed to make room for another client")
        );
        other.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        assert!(other.ask("getQueue", json!({ "path": "q" })).await.get("error").is_none());
        assert!(many[0].ask("getQueue", json!({ "path": "q" })).await.get("error").is_none());
        // With two slots to one, another client would make the addresses equal, so it gets none.
        assert!(hello(upgrade_from(modest, server.address).await).await.is_none());
        server.stop().await;
    });
}

/// Grants everything to a valid token, and nothing to an invalid one. Without a token it grants
/// everything or nothing. A slow token is never judged.
struct OneToken {
    allows_anonymous: bool,
    /// One permit for each slow token that was shown.
    slow: Semaphore,
}

impl OneToken {
    /// Refuses clients without a token.
    fn needed() -> Arc<Self> {
        Arc::new(Self { allows_anonymous: false, slow: Semaphore::new(0) })
    }

    /// Admits clients without a token.
    fn or_none() -> Arc<Self> {
        Arc::new(Self { allows_anonymous: true, slow: Semaphore::new(0) })
    }
}

#[async_trait]
impl Authorizer for OneToken {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some("good") => Ok(Grant::everything()),
            Some("slow") => {
                self.slow.add_permits(1);
                std::future::pending().await
            }
            Some("told") => Err(Rejection::unauthorized("not known").with_cause(TOLD)),
            None if self.allows_anonymous => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("not known")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        self.allows_anonymous
    }
}

/// Starts a listener with `places` slots.
async fn listener(authorizer: Arc<OneToken>, places: usize) -> Server {
    let mut plan = Plan::new();
    plan.config.connection_count_max = places;
    plan.authorizer = authorizer;
    plan.start().await
}

/// Sends a hello from a loopback address; none if it is refused because there is no slot.
async fn enter(from: [u8; 4], hello: &Value, server: &Server) -> Option<Client> {
    hello_saying(upgrade_from(from, server.address).await, hello.clone()).await
}

/// Enters as soon as there is a slot, and attaches a link.
async fn consumer(from: [u8; 4], hello: &Value, server: &Server) -> Client {
    let mut client = entered(from, hello, server).await;
    attach(&mut client).await;
    client
}

/// Enters as soon as a connection makes room.
async fn entered(from: [u8; 4], hello: &Value, server: &Server) -> Client {
    loop {
        if let Some(client) = enter(from, hello, server).await {
            break client;
        }
    }
}

async fn attach(client: &mut Client) {
    let receiver = json!({ "link": 1, "path": "q", "role": "receiver" });
    let answer = client.ask("attach", receiver).await;
    assert!(answer.get("done").is_some(), "{answer}");
}

/// Asserts that a client still has its slot and its rights.
async fn assert_served(client: &mut Client) {
    let answer = client.ask("getQueue", json!({ "path": "q" })).await;
    assert!(answer.get("error").is_none(), "{answer}");
}

async fn assert_place_was_needed(client: &mut Client) {
    let closed = client.closed().await;
    assert_eq!(
        closed,
        Some((1_013, "the connection is closed to make room for another client".to_owned()))
    );
}

/// QUO-01, SEC-16: with all slots taken, a client with an invalid token gets no slot from a
/// connection that holds something, from any address: neither from a silent connection with a link
/// nor from one that may be resumed. It gets the slot of a connection without links.
#[test]
fn an_invalid_token_takes_no_slot_in_use() {
    run(async {
        let server = listener(OneToken::needed(), 5).await;
        let (many, known, strange) = ([127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 4]);
        let [good, bad] = ["good", "bad"].map(|token| json!({ "token": token }));
        let mut silent = Vec::new();
        for _ in 0..5 {
            silent.push(consumer(many, &good, &server).await);
        }
        // A client with a valid token cannot take the slot of another such client with a link
        // either, even if that client's address has more slots.
        for _ in 0..3 {
            assert!(enter(strange, &bad, &server).await.is_none());
            assert!(enter(known, &good, &server).await.is_none());
        }
        for client in &mut silent {
            assert_served(client).await;
        }
        // A connection with links that has lost its socket and may be resumed for a while.
        drop(silent.pop());
        let lasting = json!({ "token": "good", "graceSeconds": 60 });
        drop(consumer(known, &lasting, &server).await);
        for _ in 0..3 {
            assert!(enter(strange, &bad, &server).await.is_none());
        }
        silent[0].ask("detach", json!({ "link": 1 })).await;
        drop(entered(strange, &bad, &server).await);
        server.stop().await;
    });
}

/// SEC-22: with all slots taken, an invalid token is logged with its address, although the client
/// learns only that there is no slot. Otherwise keys could be guessed without a trace. A valid
/// token is not logged.
#[test]
fn an_invalid_token_is_logged_without_a_free_slot() {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    subscriber.with_ansi(false).with_writer(|| Writer).init();
    run(async {
        let server = listener(OneToken::needed(), 1).await;
        let (known, strange) = ([127, 0, 0, 3], [127, 0, 0, 4]);
        let [good, told] = ["good", "told"].map(|token| json!({ "token": token }));
        let mut there = consumer(known, &good, &server).await;
        for count in 1..4 {
            assert!(enter(strange, &told, &server).await.is_none());
            assert!(enter(known, &good, &server).await.is_none());
            let log = LOG.lock().unwrap();
            assert_eq!(log.len(), count, "{log:?}");
            assert!(log.iter().all(|line| line.contains("peer=127.0.0.4:")), "{log:?}");
        }
        assert_served(&mut there).await;
        server.stop().await;
    });
}

/// QUO-01, SEC-16, SEC-17: a client with a valid token gets the slot of a client without one, even
/// if that client holds resources or has the same address. It keeps the slot when others come, also
/// from addresses with fewer slots.
#[test]
fn a_valid_token_takes_and_keeps_a_slot() {
    run(async {
        let server = listener(OneToken::or_none(), 2).await;
        let here = [127, 0, 0, 2];
        let (good, nothing) = (json!({ "token": "good" }), json!({}));
        let mut without = Vec::new();
        for _ in 0..2 {
            without.push(consumer(here, &nothing, &server).await);
        }
        let mut known = Vec::new();
        for client in &mut without {
            assert_served(client).await;
        }
        for client in &mut without {
            let mut next = enter(here, &good, &server).await.unwrap();
            attach(&mut next).await;
            known.push(next);
            assert_place_was_needed(client).await;
        }
        for address in [3, 4, 5] {
            assert!(enter([127, 0, 0, address], &nothing, &server).await.is_none());
            assert!(enter([127, 0, 0, address], &good, &server).await.is_none());
        }
        for client in &mut known {
            assert_served(client).await;
        }
        server.stop().await;
    });
}

/// SEC-15, SEC-16: a token keeps a slot only while it is valid. A client that then sends an invalid
/// token loses the slot to a client with a valid one.
#[test]
fn a_place_is_kept_as_long_as_the_token_is_good() {
    run(async {
        let server = listener(OneToken::needed(), 1).await;
        let (one, other) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let good = json!({ "token": "good" });
        let mut first = consumer(one, &good, &server).await;
        assert!(enter(other, &good, &server).await.is_none());
        first.ask("authenticate", json!({ "token": "bad" })).await;
        let mut next = enter(other, &good, &server).await.unwrap();
        assert_place_was_needed(&mut first).await;
        attach(&mut next).await;
        assert!(enter(one, &good, &server).await.is_none());
        server.stop().await;
    });
}

/// QUO-01, SEC-16: a client that got its slot with a token has time to attach its first link.
/// Meanwhile, newcomers with an invalid token take slots only from each other.
#[test]
fn a_valid_token_gets_time_for_its_first_link() {
    run(async {
        let server = listener(OneToken::needed(), 2).await;
        let (here, strange) = ([127, 0, 0, 2], [127, 0, 0, 4]);
        let [good, bad] = ["good", "bad"].map(|token| json!({ "token": token }));
        let mut first = enter(strange, &bad, &server).await.unwrap();
        let mut second = enter(strange, &bad, &server).await.unwrap();
        let mut slow = enter(here, &good, &server).await.unwrap();
        assert_place_was_needed(&mut first).await;
        let mut third = entered(strange, &bad, &server).await;
        assert_place_was_needed(&mut second).await;
        // It came earlier than this one, and has sent no request either.
        let _fourth = entered(strange, &bad, &server).await;
        assert_place_was_needed(&mut third).await;
        attach(&mut slow).await;
        server.stop().await;
    });
}

/// QUO-01, SEC-26: a client whose token is judged slowly, for instance while it guesses keys, has
/// no slot and keeps no client out. When such clients hold all spare sockets, the oldest one is
/// closed.
#[test]
fn slow_authorization_takes_no_slot() {
    run(async {
        let authorizer = OneToken::needed();
        let server = listener(Arc::clone(&authorizer), 1).await;
        let (here, strange) = ([127, 0, 0, 2], [127, 0, 0, 4]);
        let [good, bad, slow] = ["good", "bad", "slow"].map(|token| json!({ "token": token }));
        let mut stranger = enter(strange, &bad, &server).await.unwrap();
        let mut judged = Vec::new();
        for _ in 0..SPARE {
            let mut socket = upgrade_from(strange, server.address).await;
            say_hello(&mut socket, &slow).await;
            judged.push(socket);
        }
        authorizer.slow.acquire_many(SPARE).await.unwrap().forget();
        let mut client = enter(here, &good, &server).await.unwrap();
        assert!(!matches!(judged[0].next().await, Some(Ok(_))), "the oldest has gone");
        assert_place_was_needed(&mut stranger).await;
        attach(&mut client).await;
        server.stop().await;
    });
}
