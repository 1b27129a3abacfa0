//! Who gives up a place when all are taken and nobody is idle.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::client::{Client, Socket};
use super::server::{Plan, run};

/// Upgrades from an address of this machine.
async fn upgrade_from(from: [u8; 4], to: SocketAddr) -> Socket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(to).await.unwrap();
    let mut request = format!("ws://{to}/").into_client_request().unwrap();
    let protocol = "peeklock.v1.json".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    client_async(request, stream).await.unwrap().0
}

/// Says hello; none if it is refused for want of a place.
async fn hello(socket: Socket) -> Option<Client> {
    hello_saying(socket, json!({})).await
}

async fn hello_saying(mut socket: Socket, hello: Value) -> Option<Client> {
    use futures_util::SinkExt as _;
    let frame = json!({ "requests": [{ "id": 1, "hello": hello }] });
    let message = tokio_tungstenite::tungstenite::Message::text(frame.to_string());
    socket.send(message).await.unwrap();
    let mut client = Client::over(socket);
    client.frame().await?;
    client.seen = 0;
    Some(client)
}

/// QUO-01: whoever has all places by connections with links, and says that they are there, gives some up to who comes
/// from elsewhere, the one that has asked for nothing for longest first; and none to more of his own.
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
        // For a moment they are spared: what they ask may be on its way.
        let mut other = loop {
            if let Some(client) = hello(upgrade_from(modest, server.address).await).await {
                break client;
            }
            many[0].ask("getQueue", json!({ "path": "q" })).await;
            many[2].ask("heartbeat", json!({})).await;
        };
        let (code, reason) = many[1].closed().await.unwrap();
        assert_eq!((code, &*reason), (1_013, "the place is needed"));
        other.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        assert!(other.ask("getQueue", json!({ "path": "q" })).await.get("error").is_none());
        assert!(many[0].ask("getQueue", json!({ "path": "q" })).await.get("error").is_none());
        // Two to one: with one more they would be as many.
        assert!(hello(upgrade_from(modest, server.address).await).await.is_none());
        server.stop().await;
    });
}

/// Whose token is good may do everything; nobody else is known.
struct OneToken;

#[async_trait]
impl Authorizer for OneToken {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some("good") => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("not known")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// QUO-01, SEC-16: where all places are taken, a stranger, who says hello with a token that is not good, gets that of nobody who holds
/// something, from wherever he comes: not of one who waits in silence, and not of one who is to come back. He gets that of
/// one who has no link.
#[test]
fn a_stranger_gets_the_place_of_nobody_who_holds_something() {
    run(async {
        let mut plan = Plan::new();
        plan.config.connection_count_max = 5;
        plan.authorizer = Arc::new(OneToken);
        let server = plan.start().await;
        let (many, known, strange) = ([127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 4]);
        let enter = async |from, hello: &Value| {
            hello_saying(upgrade_from(from, server.address).await, hello.clone()).await
        };
        let [good, bad] = ["good", "bad"].map(|token| json!({ "token": token }));
        let mut silent = Vec::new();
        for _ in 0..5 {
            let mut client = enter(many, &good).await.unwrap();
            client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
            silent.push(client);
        }
        // Somebody who is known gets the place of the one that has been silent for longest, and nobody else before or after.
        let mut other = loop {
            assert!(enter(strange, &bad).await.is_none());
            if let Some(client) = enter(known, &good).await {
                break client;
            }
        };
        assert_eq!(silent.remove(0).closed().await.unwrap().0, 1_013);
        other.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        for _ in 0..3 {
            assert!(enter(strange, &bad).await.is_none());
        }
        for client in &mut silent {
            assert!(client.ask("getQueue", json!({ "path": "q" })).await.get("error").is_none());
        }
        // One that has lost its socket, with its links, for a while.
        drop(silent.pop());
        let lasting = json!({ "token": "good", "graceSeconds": 60 });
        let mut lost = loop {
            match enter(known, &lasting).await {
                Some(client) => break client,
                None => tokio::task::yield_now().await,
            }
        };
        lost.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        drop(lost);
        for _ in 0..3 {
            assert!(enter(strange, &bad).await.is_none());
        }
        silent[0].ask("detach", json!({ "link": 1 })).await;
        let stranger = loop {
            if let Some(client) = enter(strange, &bad).await {
                break client;
            }
        };
        drop(stranger);
        server.stop().await;
    });
}
