//! A lost connection is resumed (SET-21).

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value as Json, json};
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, upgrade_json};
use super::server::{Server, run};

/// The client of a scripted exchange: counts frames, keeps unconfirmed ones, cuts the socket.
struct Script {
    address: std::net::SocketAddr,
    socket: super::client::Socket,
    token: Json,
    /// Number of frames of the server taken; sent frames.
    seen: u64,
    sent: Vec<String>,
    items: Vec<Json>,
    cuts: u32,
    /// Numbers of frames, in either direction, after which the socket is cut.
    cut_after: Vec<u64>,
    passed: u64,
}

impl Script {
    async fn open(server: &Server, cut_after: Vec<u64>) -> Self {
        let client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        Self {
            address: server.address,
            token: client.welcome["resumeToken"].clone(),
            socket: client.socket,
            seen: 0,
            sent: Vec::new(),
            items: Vec::new(),
            cuts: 0,
            cut_after,
            passed: 0,
        }
    }

    /// Counts a frame that has passed; cuts the socket if the script says so.
    async fn pass(&mut self) {
        self.passed += 1;
        if self.cut_after.contains(&self.passed) {
            self.cut().await;
        }
    }

    /// Drops the socket and resumes on another.
    async fn cut(&mut self) {
        self.cuts += 1;
        let mut socket = upgrade_json(self.address).await;
        std::mem::swap(&mut self.socket, &mut socket);
        if self.cuts.is_multiple_of(2) {
            // Half open: the server learns of the loss only from the resumption.
            std::mem::forget(socket);
        } else {
            drop(socket);
        }
        let resume = json!({ "resumeToken": self.token, "received": self.seen });
        let hello = json!({ "requests": [
            { "id": 1, "hello": { "graceSeconds": 30, "resume": resume } }] });
        self.socket.send(Message::text(hello.to_string())).await.unwrap();
        let frame = self.read().await;
        let welcome = &frame["items"][0]["welcome"];
        assert_eq!(welcome["resumed"], true, "{frame}");
        let received = usize::try_from(welcome["received"].as_u64().unwrap()).unwrap();
        for frame in self.sent.clone().into_iter().skip(received) {
            self.socket.send(Message::text(frame)).await.unwrap();
        }
    }

    async fn read(&mut self) -> Json {
        loop {
            match self.socket.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    async fn send(&mut self, requests: Json) {
        let frame = json!({ "seen": self.seen, "requests": requests }).to_string();
        self.sent.push(frame.clone());
        self.socket.send(Message::text(frame)).await.unwrap();
        self.pass().await;
    }

    /// Takes frames until the items meet a condition; all items are kept.
    async fn until(&mut self, is_wanted: impl Fn(&[Json]) -> bool) {
        while !is_wanted(&self.items) {
            let frame = self.read().await;
            self.seen += 1;
            self.items.extend(frame["items"].as_array().unwrap().iter().cloned());
            self.pass().await;
        }
    }

    fn answers(&self, id: u64) -> Vec<&Json> {
        self.items.iter().filter(|item| item["id"] == id).collect()
    }

    fn deliveries(&self) -> Vec<(u64, String, u64)> {
        let mut all = Vec::new();
        for group in self.items.iter().filter_map(|item| item.get("deliveries")) {
            let first = group["first"].as_u64().unwrap();
            for (number, message) in (first..).zip(group["messages"].as_array().unwrap()) {
                let count = message["deliveryCount"].as_u64().unwrap();
                all.push((number, message["body"].as_str().unwrap().to_owned(), count));
            }
        }
        all
    }
}

/// Sends, receives, abandons and completes, all in small frames; returns the number of frames that
/// have passed.
async fn exchange(cut_after: Vec<u64>) -> u64 {
    let server = Server::start().await;
    let mut script = Script::open(&server, cut_after).await;
    let answered = |id: u64| move |items: &[Json]| items.iter().any(|item| item["id"] == id);
    script.send(json!([{ "id": 2, "attach": { "link": 1, "path": "q", "role": "sender" } }])).await;
    script
        .send(json!([{ "id": 3, "attach":
            { "link": 2, "path": "q", "role": "receiver", "credit": 3 } }]))
        .await;
    script.until(answered(3)).await;
    for id in 10..16_u64 {
        let messages = json!([{ "body": id.to_string(), "messageId": id.to_string() }]);
        script.send(json!([{ "id": id, "send": { "link": 1, "messages": messages } }])).await;
    }
    for id in 10..16 {
        script.until(answered(id)).await;
    }
    let count = |items: &[Json]| -> usize {
        items
            .iter()
            .filter_map(|item| item["deliveries"]["messages"].as_array())
            .map(Vec::len)
            .sum()
    };
    script.until(|items| count(items) == 3).await;
    let settle = |id: u64, from: u32, to: u32, decision: &str| {
        json!([{ "id": id, "settle":
            { "link": 2, "decision": decision, "ranges": [[from, to]] } }])
    };
    script.send(settle(20, 1, 2, "complete")).await;
    script.send(settle(21, 3, 3, "abandon")).await;
    script.until(answered(20)).await;
    script.until(answered(21)).await;
    script.send(json!([{ "id": 22, "credit": { "link": 2, "upTo": 7 } }])).await;
    script.until(answered(22)).await;
    script.until(|items| count(items) == 7).await;
    script.send(json!([{ "id": 23, "renew": { "link": 2, "ranges": [[4, 7]] } }])).await;
    script.until(answered(23)).await;
    script.send(settle(24, 4, 7, "complete")).await;
    script.until(answered(24)).await;

    // No answer is lost or doubled, and none reports a failure.
    for id in (2..4).chain(10..16).chain(20..25) {
        assert_eq!(script.answers(id).len(), 1, "{id}: {:?}", script.items);
    }
    let failed = |item: &&Json| item.to_string().contains("failed") || item.get("error").is_some();
    assert_eq!(script.items.iter().find(failed), None);
    // No delivery is lost or doubled. The abandoned message is delivered again, and only its count
    // has increased.
    let texts: Vec<(u64, String, u64)> = script.deliveries();
    let expected = [(1, "10", 1), (2, "11", 1), (3, "12", 1), (4, "12", 2), (5, "13", 1)];
    let expected = expected.into_iter().chain([(6, "14", 1), (7, "15", 1)]);
    let expected: Vec<(u64, String, u64)> =
        expected.map(|(number, text, count)| (number, text.to_owned(), count)).collect();
    assert_eq!(texts, expected);
    assert_eq!(server.counts().await.total(), 0);
    let passed = script.passed;
    drop(script);
    server.stop().await;
    passed
}

/// SET-21: the connection is cut at each frame boundary, in both directions; nothing is lost,
/// doubled or counted.
#[test]
fn a_cut_at_any_frame_boundary_loses_and_doubles_nothing() {
    run(async {
        let frames = exchange(Vec::new()).await;
        // With cuts, frames may be grouped differently; places beyond the end cut nothing.
        for place in 1..=frames {
            exchange(vec![place]).await;
        }
        exchange((1..=2 * frames).collect()).await;
        exchange((1..=frames).step_by(3).collect()).await;
    });
}

/// SET-21, SET-31: if the client does not come back in time, its locks are released and counted.
#[test]
fn after_the_grace_period_locks_are_released_and_counted() {
    run(async {
        let mut plan = super::server::Plan::new();
        plan.config.grace = std::time::Duration::from_millis(200);
        let server = plan.start().await;
        server.put(&["a", "b"]).await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        let token = client.welcome["resumeToken"].clone();
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        drop(client);
        while server.delivery_counts().await != [(1, 1), (2, 0)] {
            tokio::task::yield_now().await;
        }
        let resume = json!({ "resumeToken": token, "received": 2 });
        let anew = json!({ "graceSeconds": 1, "resume": resume });
        let client = Client::hello(server.address, anew).await;
        assert_eq!(client.welcome["resumed"], false);
        assert_ne!(client.welcome["resumeToken"], token);
        server.stop().await;
    });
}

/// A receiver whose client is away gets no deliveries, so that others get the messages.
#[test]
fn a_lost_receiver_is_delivered_nothing_meanwhile() {
    run(async {
        let server = Server::start().await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        let token = client.welcome["resumeToken"].clone();
        client.receive_with(Some(100)).await;
        let seen = client.seen;
        drop(client);
        let mut other = server.client().await;
        other.receive_with(None).await;
        // After the loss is noticed, the other receiver gets the messages.
        let mut texts = Vec::new();
        for number in 0_u64.. {
            server.put(&[&number.to_string()]).await;
            let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 0 });
            let got = other.ask("receive", receive).await;
            if let Some(message) = got["received"]["messages"].get(0) {
                texts.push(message["body"].clone());
                break;
            }
        }
        let resume = json!({ "resumeToken": token, "received": seen });
        let back = json!({ "graceSeconds": 30, "resume": resume });
        let mut client = Client::hello(server.address, back).await;
        assert_eq!(client.welcome["resumed"], true);
        server.put(&["later"]).await;
        loop {
            let group = client.pushed("deliveries").await;
            let messages = group["messages"].as_array().unwrap().clone();
            assert!(messages.iter().all(|message| !texts.contains(&message["body"])));
            assert!(messages.iter().all(|message| message["deliveryCount"] == 1));
            if messages.iter().any(|message| message["body"] == "later") {
                break;
            }
        }
        server.stop().await;
    });
}

/// Section 7 of the protocol: a second socket replaces the first one, even while the first does not
/// read the repeated frames.
#[test]
fn a_second_resumption_replaces_a_stuck_socket() {
    run(async {
        let mut plan = super::server::Plan::new();
        // Longer than a test takes.
        plan.config.frame_timeout = std::time::Duration::from_secs(600);
        let server = plan.start().await;
        server.put(&["x".repeat(800_000).as_str()]).await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        let token = client.welcome["resumeToken"].clone();
        let attach = json!({ "id": 2, "attach": { "link": 1, "path": "q", "role": "receiver" } });
        let peek = |id: u64| json!({ "id": id, "peek": { "link": 1, "from": 1, "maxCount": 1 } });
        // More bytes than the sockets hold, all unconfirmed.
        for request in std::iter::once(attach).chain((3..8).map(peek)) {
            let frame = json!({ "seen": 0, "requests": [request] });
            client.socket.send(Message::text(frame.to_string())).await.unwrap();
            client.frame().await.expect("an answer");
        }
        let resume = json!({ "resumeToken": token, "received": 0 });
        let back = json!({ "graceSeconds": 30, "resume": resume });
        let first = Client::hello(server.address, back.clone()).await;
        assert_eq!(first.welcome["resumed"], true);
        let mut second = Client::hello(server.address, back).await;
        assert_eq!(second.welcome["resumed"], true);
        // All answers are repeated: the attachment and five peeks.
        let mut answers = Vec::new();
        while answers.len() < 6 {
            let frame = second.frame().await.expect("what was not confirmed");
            let items = frame["items"].as_array().unwrap();
            answers.extend(items.iter().filter_map(|item| item["id"].as_u64()));
        }
        assert_eq!(answers, [2, 3, 4, 5, 6, 7]);
        drop(first);
        server.stop().await;
    });
}

/// An unknown token, one of another encoding, or one with an impossible count resumes nothing.
#[test]
fn a_wrong_resumption_gets_a_new_connection_or_none() {
    run(async {
        let server = Server::start().await;
        let resume = |token: Json, received: u64| json!({ "graceSeconds": 30, "resume": { "resumeToken": token, "received": received } });
        let unknown = json!("00000000-0000-0000-0000-000000000001");
        let client = Client::hello(server.address, resume(unknown, 0)).await;
        assert_eq!(client.welcome["resumed"], false);
        let token = client.welcome["resumeToken"].clone();
        let mut socket = upgrade_json(server.address).await;
        let hello = json!({ "requests": [{ "id": 1, "hello": resume(token, 99) }] });
        socket.send(Message::text(hello.to_string())).await.unwrap();
        assert_eq!(super::client::closed(&mut socket).await.unwrap().0, 1_002);
        server.stop().await;
    });
}
