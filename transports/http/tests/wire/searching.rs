//! Searches over the JSON API (CON-05 to CON-11).

use peeklock_core::command::Command;
use peeklock_core::message::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::Answer;
use super::server::Server;

const SEARCH: &str = "POST /$api/v1/search\nContent-Type: application/json";

/// Searches to the end; returns the data of the events by name.
async fn search(server: &Server, form: Value) -> Vec<(String, Value)> {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&server.request(SEARCH, form.to_string())).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "the stream ends in a chunk");
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, mut chunks) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n")
        && let Ok(size @ 1..) = usize::from_str_radix(size, 16)
    {
        body += &rest[..size];
        chunks = &rest[size + 2..];
    }
    let events = body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        (name.to_owned(), serde_json::from_str(data).unwrap())
    });
    events.collect()
}

async fn refused(server: &Server, form: Value) -> (u16, String) {
    let answer: Answer = server.ask(SEARCH, form.to_string()).await;
    answer.error()
}

/// CON-05, CON-06, CON-08, CON-41, CON-49: a search streams its conditions as line and clauses, then
/// pages with hits and progress, and ends with its bound and position.
#[tokio::test]
async fn search_streams_hits_and_goes_on() {
    let server = Server::start().await;
    for number in 0..120 {
        server.send_direct(&format!(r#"{{"order": {{"id": {number}}}}}"#)).await;
    }
    let line = "body.$.order.id>=10 body.$.order.id<100";
    let form = json!({ "entities": ["q"], "where": line, "hits": 60 });
    let events = search(&server, form).await;
    let (name, begin) = &events[0];
    assert_eq!((name.as_str(), &begin["where"]), ("begin", &json!(line)));
    let clauses = json!([
        { "field": "json", "path": "$.order.id", "is": "atLeast", "value": 10 },
        { "field": "json", "path": "$.order.id", "is": "less", "value": 100 },
    ]);
    assert_eq!(begin["clauses"], clauses);
    let hits = |events: &[(String, Value)]| -> Vec<u64> {
        let pages = events.iter().filter(|(name, _)| name == "page");
        let hits = pages.flat_map(|(_, page)| page["hits"].as_array().unwrap().clone());
        hits.map(|hit| hit["sequenceNumber"].as_u64().unwrap()).collect()
    };
    assert_eq!(hits(&events), (11..=70).collect::<Vec<_>>());
    let first = &events[1].1["hits"][0];
    assert_eq!((&first["path"], &first["match"]["from"]), (&json!("q"), &json!(17)));
    assert_eq!(first["match"]["excerpt"], r#"{"order": {"id": 10}}"#);
    assert_eq!(first["bodyStart"], r#"{"order": {"id": 10}}"#);
    let last = &events.last().unwrap().1;
    assert_eq!(
        (&last["end"]["bound"], &last["progress"]["messages"]),
        (&json!("hits"), &json!(70))
    );

    let form = json!({ "where": clauses, "after": last["end"]["next"] });
    let events = search(&server, form).await;
    assert_eq!(hits(&events), (71..=100).collect::<Vec<_>>());
    let last = &events.last().unwrap().1;
    assert_eq!((&last["end"], &last["progress"]["rest"]), (&json!({}), &json!(0)));
    server.stop().await;
}

/// CON-11: groups come with the last page, the largest first.
#[tokio::test]
async fn search_counts_groups() {
    let server = Server::start().await;
    for body in [r#"{"shop": "a"}"#, r#"{"shop": "b"}"#, r#"{"shop": "b"}"#, "text"] {
        server.send_direct(body).await;
    }
    let events = search(&server, json!({ "entities": ["q"], "groupBy": "json:$.shop" })).await;
    let end = &events.last().unwrap().1["end"];
    let groups = end["groups"].as_array().unwrap();
    let shown: Vec<_> = groups.iter().map(|group| (&group["value"], &group["count"])).collect();
    let expected = [(json!("b"), json!(2)), (Value::Null, json!(1)), (json!("a"), json!(1))];
    assert_eq!(shown, expected.iter().map(|(value, count)| (value, count)).collect::<Vec<_>>());
    let samples =
        json!([{ "path": "q", "sequenceNumber": 2 }, { "path": "q", "sequenceNumber": 3 }]);
    assert_eq!(groups[0]["samples"], samples);
    server.stop().await;
}

/// CON-07, CON-08, CON-09: mistakes are errors before the stream begins. Two searches are open at a
/// time, and a closed connection ends its search.
#[tokio::test]
async fn searches_are_checked_and_bounded() {
    let server = Server::start().await;
    // 30 MB of heads, more than sockets hold.
    let entity = server.broker.entity("q").unwrap();
    for _ in 0..1_000 {
        let message = Message::new("x").with_application_property("long", "x".repeat(30_000));
        let message = server.broker.inbound(message);
        entity.call(Command::Send { message }).await.unwrap();
    }
    for (form, status, code) in [
        (json!({ "where": "raeson:x" }), 400, "ArgumentError"),
        (json!({ "where": "x".repeat(4_097) }), 400, "ArgumentOutOfRange"),
        (
            json!({ "where": [{ "field": "size", "is": "contains", "value": "x" }] }),
            400,
            "ArgumentError",
        ),
        (json!({ "hits": 1_001 }), 400, "ArgumentOutOfRange"),
        (json!({ "groupBy": "colour" }), 400, "ArgumentError"),
        (json!({ "after": "AAAA" }), 400, "ArgumentError"),
        (json!({ "entities": ["absent"] }), 404, "EntityNotFound"),
    ] {
        assert_eq!(refused(&server, form.clone()).await, (status, code.to_owned()), "{form}");
    }
    // Each of these reads nothing of its answer, so its search waits for room in the socket.
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.write(&server.request(SEARCH, r#"{"where": "x"}"#)).await;
        assert_eq!(client.read_head().await.unwrap().status, 200);
        open.push(client);
    }
    assert_eq!(refused(&server, json!({})).await.1, "ServerBusy");
    for client in &mut open {
        client.stream.shutdown().await.unwrap();
    }
    drop(open);
    // Its place is free again when the broker sees the end of the connection.
    while server.ask(SEARCH, r#"{"hits": 1}"#).await.status != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    server.stop().await;
}
