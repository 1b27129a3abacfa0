//! A client written from the protocol: JSON, with no state except counts.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value as Json, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub type Socket = WebSocketStream<TcpStream>;

pub struct Client {
    pub socket: Socket,
    pub welcome: Json,
    /// Number of frames of the server that were taken.
    pub seen: u64,
    pub items: VecDeque<Json>,
    /// Must not be the id of an unanswered request, even after a resumption.
    pub next_id: u64,
}

/// Upgrades with these headers.
pub async fn upgrade(
    address: SocketAddr,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<Socket, Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    client_async(request, stream).await.map(|(socket, _)| socket)
}

pub async fn upgrade_json(address: SocketAddr) -> Socket {
    let name = header::SEC_WEBSOCKET_PROTOCOL.as_str();
    assert_eq!(name, "sec-websocket-protocol");
    upgrade(address, "/", &[("sec-websocket-protocol", "peeklock.v1.json")]).await.unwrap()
}

impl Client {
    pub async fn open(address: SocketAddr) -> Self {
        Self::hello(address, json!({})).await
    }

    pub async fn hello(address: SocketAddr, hello: Json) -> Self {
        Self::hello_over(upgrade_json(address).await, hello).await
    }

    /// Sends a hello over a socket that was upgraded for JSON.
    pub async fn hello_over(mut socket: Socket, hello: Json) -> Self {
        let frame = json!({ "requests": [{ "id": 1, "hello": hello }] });
        socket.send(Message::text(frame.to_string())).await.unwrap();
        let mut client = Self::over(socket);
        let frame = client.frame().await.expect("a welcome");
        client.welcome = frame["items"][0]["welcome"].clone();
        assert!(client.welcome.is_object(), "{frame}");
        // The welcome does not count.
        client.seen = 0;
        client
    }

    /// Makes a client for a socket that has received its welcome.
    pub fn over(socket: Socket) -> Self {
        Self { socket, welcome: Json::Null, seen: 0, items: VecDeque::new(), next_id: 2 }
    }

    /// Returns the next frame of the server; none when the connection has ended.
    pub async fn frame(&mut self) -> Option<Json> {
        loop {
            match self.socket.next().await? {
                Ok(Message::Text(text)) => {
                    self.seen += 1;
                    return Some(serde_json::from_str(&text).unwrap());
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Returns the code and reason with which the server closes.
    pub async fn closed(&mut self) -> Option<(u16, String)> {
        closed(&mut self.socket).await
    }

    pub async fn frame_of(&mut self, requests: Json) {
        let frame = json!({ "seen": self.seen, "requests": requests });
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Sends one request and waits for its answer.
    pub async fn ask(&mut self, operation: &str, body: Json) -> Json {
        let id = self.begin(operation, body).await;
        self.answer(id).await
    }

    /// Sends one request.
    pub async fn begin(&mut self, operation: &str, body: Json) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.frame_of(json!([{ "id": id, operation: body }])).await;
        id
    }

    /// Returns the answer to a request; earlier items are kept.
    pub async fn answer(&mut self, id: u64) -> Json {
        self.item(|item| item["id"] == id).await
    }

    /// Returns the next push of this kind.
    pub async fn pushed(&mut self, kind: &str) -> Json {
        self.item(|item| item.get(kind).is_some() && item.get("id").is_none()).await[kind].clone()
    }

    async fn item(&mut self, is_wanted: impl Fn(&Json) -> bool) -> Json {
        loop {
            if let Some(place) = self.items.iter().position(&is_wanted) {
                return self.items.remove(place).unwrap();
            }
            let frame = self.frame().await.expect("the connection ended");
            self.items.extend(frame["items"].as_array().unwrap().iter().cloned());
        }
    }

    /// Returns the next `count` deliveries, as number and body.
    pub async fn deliveries(&mut self, count: usize) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        while all.len() < count {
            let group = self.pushed("deliveries").await;
            let first = group["first"].as_u64().unwrap();
            for (number, message) in (first..).zip(group["messages"].as_array().unwrap()) {
                all.push((number, message["body"].as_str().unwrap().to_owned()));
            }
        }
        assert_eq!(all.len(), count, "{all:?}");
        all
    }

    /// Attaches a receiver to `q` as link 1.
    pub async fn receive_with(&mut self, credit: Option<u32>) {
        let mut attach = json!({ "link": 1, "path": "q", "role": "receiver" });
        if let Some(credit) = credit {
            attach["credit"] = credit.into();
        }
        let answer = self.ask("attach", attach).await;
        assert_eq!(answer["done"], json!({}), "{answer}");
    }

    /// Closes with or without a code.
    pub async fn say_close(&mut self, code: Option<u16>) {
        let frame = code.map(|code| CloseFrame { code: CloseCode::from(code), reason: "".into() });
        self.socket.close(frame).await.unwrap();
    }

    pub async fn close(mut self, code: Option<u16>) {
        self.say_close(code).await;
        while self.socket.next().await.is_some_and(|it| it.is_ok()) {}
    }
}

/// Returns the code and reason with which the server closes.
pub async fn closed(socket: &mut Socket) -> Option<(u16, String)> {
    loop {
        match socket.next().await? {
            Ok(Message::Close(frame)) => {
                return frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
            }
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}
