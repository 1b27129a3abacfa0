//! Streams of the JSON API (CON-33, CON-34).

use std::time::Duration;

use peeklock_core::description::QueueUpdate;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::server::{Plan, Server};

const WAIT: Duration = Duration::from_secs(10);

/// An open stream, and its bytes that were read.
pub(super) struct Stream {
    socket: TcpStream,
    text: String,
}

impl Stream {
    /// Opens a stream, and returns the status of the answer with it.
    async fn open(server: &Server, subjects: Value) -> (u16, Self) {
        let socket = TcpStream::connect(server.address).await.unwrap();
        Self::open_over(socket, server, subjects, "").await
    }

    /// Opens a stream with an `Authorization` header.
    pub(super) async fn open_with(server: &Server, subjects: Value, token: &str) -> (u16, Self) {
        let socket = TcpStream::connect(server.address).await.unwrap();
        Self::open_over(socket, server, subjects, token).await
    }

    async fn open_over(
        mut socket: TcpStream,
        server: &Server,
        subjects: Value,
        token: &str,
    ) -> (u16, Self) {
        let body = json!({ "subjects": subjects }).to_string();
        let mut head = "POST /$api/v1/watch\nContent-Type: application/json".to_owned();
        if !token.is_empty() {
            head += &format!("\nAuthorization: {token}");
        }
        socket.write_all(&server.request(&head, body)).await.unwrap();
        let mut stream = Self { socket, text: String::new() };
        while !stream.text.contains("\r\n\r\n") {
            assert!(stream.more().await);
        }
        let status = stream.text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, stream)
    }

    /// Reads more bytes; false at the end of the connection.
    async fn more(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        let count = timeout(WAIT, self.socket.read(&mut bytes)).await.unwrap().unwrap_or(0);
        self.text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        count > 0
    }

    /// Returns the data of the next event with this name, and drops everything before it.
    pub(super) async fn event(&mut self, name: &str) -> Value {
        loop {
            let begin = format!("event: {name}\ndata: ");
            if let Some(at) = self.text.find(&begin)
                && let Some((data, rest)) = self.text[at + begin.len()..].split_once("\n\n")
            {
                let data = serde_json::from_str(data).unwrap();
                self.text = rest.to_owned();
                return data;
            }
            assert!(self.more().await, "no {name}: {}", self.text);
        }
    }

    /// Whether the server ends the connection, after any further bytes.
    async fn ends(&mut self) -> bool {
        while self.more().await {}
        true
    }
}

/// Applies a change to a list as the documentation describes it.
fn apply(state: &mut Value, kind: &str, key: &str, change: &Value) {
    for (name, value) in change["set"].as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(state.as_object_mut().unwrap().remove(name)),
            value => state[name] = value.clone(),
        }
    }
    let text = |row: &Value| match &row[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut rows: Vec<Value> = state[kind].as_array().unwrap().clone();
    let gone = change["gone"].as_array().into_iter().flatten();
    let gone: Vec<&str> = gone.map(|key| key.as_str().unwrap()).collect();
    rows.retain(|row| !gone.contains(&text(row).as_str()));
    for (key, row) in change["rows"].as_object().into_iter().flatten() {
        match rows.iter_mut().find(|old| text(old) == *key) {
            Some(old) => *old = row.clone(),
            None => rows.push(row.clone()),
        }
    }
    if let Some(order) = change["order"].as_array() {
        rows.sort_by_key(|row| order.iter().position(|key| key.as_str() == Some(&text(row))));
    }
    state[kind] = rows.into();
}

/// CON-33: a stream begins with whole states; the differences that follow lead to the state of the
/// list.
#[tokio::test]
async fn differences_lead_to_the_state_of_the_list() {
    let server = Server::start().await;
    let query = json!({ "sort": "activeMessageCount", "descending": true });
    let subjects =
        json!([{ "name": "entities", "query": query }, { "name": "entity", "path": "q" }]);
    let (status, mut stream) = Stream::open(&server, subjects).await;
    assert_eq!(status, 200);
    assert!(stream.text.contains("content-type: text/event-stream"), "{}", stream.text);
    assert!(stream.event("begin").await["version"].is_string());
    let first = stream.event("state").await;
    assert_eq!(first["subject"], 0);
    let mut state = first["state"].clone();
    assert_eq!(state["entities"].as_array().unwrap().len(), 1);
    let second = stream.event("state").await;
    assert_eq!((&second["subject"], &second["state"]["path"]), (&json!(1), &json!("q")));

    server.broker.create_queue("aaa", QueueUpdate::default()).await.unwrap();
    server.send_direct("x").await;
    server.active(1).await;
    loop {
        // A survey is at most a second old by the clock of the broker.
        server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(1));
        let change = stream.event("change").await;
        if change["subject"] == 0 {
            apply(&mut state, "entities", "path", &change);
        }
        if state["entities"].as_array().unwrap().len() == 2
            && state["entities"][0]["activeMessageCount"] == 1
        {
            break;
        }
    }
    let list = "GET /$api/v1/entities?sort=activeMessageCount&descending=true";
    let list = server.ask(list, "").await.json();
    for (name, value) in list.as_object().unwrap() {
        if !["nowUtc", "countedAtUtc", "entities"].contains(&name.as_str()) {
            assert_eq!(&state[name], value, "{name}");
        }
    }
    let paths = |state: &Value| -> Vec<String> {
        let rows = state["entities"].as_array().unwrap();
        rows.iter().map(|row| row["path"].to_string()).collect()
    };
    assert_eq!(paths(&state), paths(&list));

    server.broker.delete_entity("aaa").await.unwrap();
    server.broker.delete_entity("q").await.unwrap();
    assert_eq!(stream.event("error").await["code"], "EntityNotFound");
    drop(stream);
    server.stop().await;
}

/// CON-33, CON-34: a tap shows accepted messages, and a clock comes while nothing else does.
#[tokio::test]
async fn tap_shows_accepted_messages() {
    let server = Server::start().await;
    server.send_direct("before").await;
    let (_, mut stream) = Stream::open(&server, json!([{ "name": "tap", "path": "q" }])).await;
    stream.event("begin").await;
    stream.event("clock").await;
    server.send_direct("one").await;
    let heads = stream.event("heads").await;
    assert_eq!((&heads["subject"], &heads["heads"][0]["bodyStart"]), (&json!(0), &json!("one")));
    assert_eq!((heads["heads"].as_array().unwrap().len(), &heads["omitted"]), (1, &json!(0)));
    server.stop().await;
}

/// CON-33: subjects and streams are bounded, a place is free again after a stream, and a stop ends
/// all streams.
#[tokio::test]
async fn streams_and_subjects_are_bounded() {
    let mut plan = Plan::new();
    plan.config.stream_count_max = 2;
    let server = plan.start().await;
    let entities = json!({ "name": "entities" });
    let many = |count: usize| Value::from(vec![entities.clone(); count]);
    for (subjects, status) in [
        (many(0), 400),
        (many(17), 400),
        (json!([{ "name": "none" }]), 400),
        (json!([{ "name": "locks", "path": "absent" }]), 404),
        (json!([{ "name": "locks", "path": "q", "query": { "top": 501 } }]), 400),
        (json!([{ "name": "locks", "path": "q", "query": { "more": 1 } }]), 400),
    ] {
        let (found, _) = Stream::open(&server, subjects.clone()).await;
        assert_eq!(found, status, "{subjects}");
    }
    let (status, first) = Stream::open(&server, many(16)).await;
    assert_eq!(status, 200);
    let (status, mut second) = Stream::open(&server, many(1)).await;
    assert_eq!(status, 200);
    let (status, third) = Stream::open(&server, many(1)).await;
    assert_eq!(status, 503);
    drop((first, third));
    let mut fourth = loop {
        let (status, stream) = Stream::open(&server, many(1)).await;
        if status == 200 {
            break stream;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    fourth.event("state").await;
    second.event("state").await;
    let stop = server.stop();
    let (ended, (), also) = tokio::join!(second.ends(), stop, fourth.ends());
    assert!(ended && also);
}

/// CON-33: 64 streams are open at a time; then a page asks for the state instead.
#[tokio::test]
async fn sixty_four_streams_are_open_at_a_time() {
    let server = Server::start().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let (status, mut stream) = Stream::open(&server, json!([{ "name": "totals" }])).await;
        assert_eq!(status, 200);
        stream.event("state").await;
        open.push(stream);
    }
    let (status, refused) = Stream::open(&server, json!([{ "name": "totals" }])).await;
    assert_eq!(status, 503);
    assert!(refused.text.contains("ServerBusy") && refused.text.contains("http.stream_count_max"));
    let page = server.ask("GET /$api/v1/entities", "").await.json();
    assert_eq!(page["totals"]["totalMessageCount"], 0);
    drop(open);
    server.stop().await;
}

/// CON-33: the stream of a client that reads nothing ends after the write timeout, and its place is
/// free again.
#[tokio::test]
async fn stream_of_a_client_that_reads_nothing_ends() {
    let mut plan = Plan::new();
    plan.config.stream_count_max = 1;
    plan.config.write_timeout = Duration::from_millis(300);
    let server = plan.start().await;
    for number in 0..60 {
        let path = format!("{number}");
        server.broker.create_queue(&path, QueueUpdate::default()).await.unwrap();
    }
    let entities = json!({ "name": "entities", "query": { "top": 60 } });
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let socket = socket.connect(server.address).await.unwrap();
    let subjects = Value::from(vec![entities; 16]);
    let (status, _stuck) = Stream::open_over(socket, &server, subjects, "").await;
    assert_eq!(status, 200);
    let patience = tokio::time::Instant::now() + WAIT;
    let mut is_known = false;
    loop {
        // All rates become known, or are forgotten, so that each row changes.
        let seconds = if is_known { 11 } else { 1 };
        server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(seconds));
        is_known = !is_known;
        let (status, _) = Stream::open(&server, json!([{ "name": "totals" }])).await;
        if status == 200 {
            break;
        }
        assert!(tokio::time::Instant::now() < patience, "the stream has not ended");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.stop().await;
}
