//! What was received for good and could be written to nobody: is it counted, where an operator looks?

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::alone::alone;
use super::broker::Broker;
use super::scenarios::fill;
use super::wire::{WebSocket, ask, connect, request};

const COUNTER: &str = "peeklock_messages_undelivered_total ";
/// Each is almost a megabyte: more than sockets take of their own.
const MESSAGES: usize = 60;
/// Nothing moves for so long when a reader that does not read has got all that it gets.
const STILL: Duration = Duration::from_millis(750);
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// RCV-02: what receive-and-delete has removed for a client that does not read, and is gone, is counted: over HTTP.
/// Over a WebSocket link everything is, that its client does not find whole in what the system has: also the frame of
/// large messages of which it was sent the first pieces, and no more.
#[test]
fn what_is_written_to_nobody_is_counted() {
    let _alone = alone();
    let broker = Broker::start();
    fill(&broker, MESSAGES);
    let (before, stored_before) = (counted(&broker), stored(&broker));
    let reader = over_http(&broker);
    let removed = stored_before - left_when_still(&broker, stored_before);
    drop(reader);
    until(|| counted(&broker) > before);
    let lost = counted(&broker) - before;
    assert!(lost <= removed, "{lost} counted, {removed} removed");

    let (before, stored_before) = (counted(&broker), stored(&broker));
    let mut socket = over_a_link(&broker);
    left_when_still(&broker, stored_before);
    // Says nothing more, by which its connection ends; what the system has for it stays there.
    socket.stream.shutdown(Shutdown::Write).unwrap();
    until(|| counted(&broker) > before);
    let lost = counted(&broker) - before;
    let removed = stored_before - stored(&broker);
    let whole = delivered_to_the_end(&mut socket);
    assert_eq!(whole + lost, removed, "{whole} came, {lost} counted, {removed} removed");
    broker.stop();
}

fn over_http(broker: &Broker) -> TcpStream {
    let mut stream = connect(broker.http).unwrap();
    let receive = request("DELETE", "/attacked/messages/head?timeout=0", "");
    stream.write_all(&receive.repeat(MESSAGES / 2)).unwrap();
    stream
}

fn over_a_link(broker: &Broker) -> WebSocket {
    let mut socket = WebSocket::open(broker.websocket).unwrap();
    let attach = json!({
        "link": 1, "path": "attacked", "role": "receiver", "mode": "receiveAndDelete",
        "credit": MESSAGES,
    });
    socket.send(&json!({ "requests": [{ "id": 2, "attach": attach }] })).unwrap();
    socket
}

/// How many messages come in whole frames before the end.
fn delivered_to_the_end(socket: &mut WebSocket) -> u64 {
    let mut delivered = 0;
    while let Ok(frame) = socket.frame() {
        let items = frame["items"].as_array().unwrap();
        let groups = items.iter().filter_map(|item| item["deliveries"]["messages"].as_array());
        delivered += groups.map(|messages| messages.len() as u64).sum::<u64>();
    }
    delivered
}

/// How many messages there are once some were taken, and no more are.
fn left_when_still(broker: &Broker, before: u64) -> u64 {
    let (mut left, mut since) = (before, Instant::now());
    until(|| {
        let now = stored(broker);
        if now != left {
            (left, since) = (now, Instant::now());
        }
        left < before && since.elapsed() > STILL
    });
    assert!(left > 0, "sockets took all of it");
    left
}

fn stored(broker: &Broker) -> u64 {
    let answer = ask(broker.http, "GET", "/$api/v1/queues/attacked", "").unwrap();
    let queue: Json = serde_json::from_slice(&answer.body).unwrap();
    queue["runtime"]["activeMessageCount"].as_u64().unwrap_or_else(|| panic!("no count in {queue}"))
}

/// As the page of metrics has it.
fn counted(broker: &Broker) -> u64 {
    let answer = ask(broker.http, "GET", "/metrics", "").unwrap();
    let page = String::from_utf8(answer.body).unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(COUNTER));
    value.map_or(0, |value| value.parse().unwrap())
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(LOOK);
    }
}
