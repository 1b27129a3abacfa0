//! Messages that receive-and-delete removed but that reached no client are counted in the metrics.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::alone::alone;
use super::broker::Broker;
use super::scenarios::fill;
use super::wire::{WebSocket, ask, connect, request};

const COUNTER: &str = "peeklock_messages_undelivered_total ";
/// Each message has almost a megabyte, more than sockets buffer.
const MESSAGES: usize = 60;
/// If nothing changes for this long, a reader that does not read has received all that it will get.
const STILL: Duration = Duration::from_millis(750);
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(30);

/// RCV-02: messages that receive-and-delete removed for a client that does not read and then
/// disconnects are counted, over HTTP. Over a WebSocket link exactly those messages are counted
/// that the system has not buffered whole for the client, including a frame of large messages of
/// which only the first pieces were sent.
#[test]
fn undelivered_removals_are_counted() {
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
    // The shutdown ends the connection on the broker's side. Bytes that the system has buffered for
    // the client stay readable.
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

/// Number of messages in whole frames before the end of the stream.
fn delivered_to_the_end(socket: &mut WebSocket) -> u64 {
    let mut delivered = 0;
    while let Ok(frame) = socket.frame() {
        let items = frame["items"].as_array().unwrap();
        let groups = items.iter().filter_map(|item| item["deliveries"]["messages"].as_array());
        delivered += groups.map(|messages| messages.len() as u64).sum::<u64>();
    }
    delivered
}

/// Number of stored messages once some were removed and the number no longer changes.
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

/// The count on the metrics page.
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
