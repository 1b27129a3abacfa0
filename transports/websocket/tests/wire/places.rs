//! Who gives up a place when all are taken and nobody is idle.

use std::net::SocketAddr;

use serde_json::json;
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
async fn hello(mut socket: Socket) -> Option<Client> {
    use futures_util::SinkExt as _;
    let frame = json!({ "requests": [{ "id": 1, "hello": {} }] });
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
