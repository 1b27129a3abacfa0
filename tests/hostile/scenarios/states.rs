//! Large session states, each requested again and again over one connection, and many large
//! deferred messages in one request, answers unread.

use serde_json::{Value as Json, json};

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::{WebSocket, ask, masked};
use super::{attached, fill};

/// Together these messages are larger than the memory that an attack may use.
const DEFERRED: u64 = 300;
/// Number of messages that one request may ask for.
const FEW: u64 = 4;
const STATE_BYTES: usize = 900_000;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    defer_all(broker);
    // The sessions are set up before requests take the room.
    let holders = holders(broker, 20 * weight.min(5));
    let receivers = (0..25).map(|_| attached(broker, "receiver")).collect::<Vec<_>>();
    let mut attack = Attack::default();
    let frame = frame_of((10..266).map(|id| json!({ "id": id, "getSessionState": { "link": 1 } })));
    for mut socket in holders {
        flood(&mut socket.stream, &frame, 1);
        attack.hold(socket);
    }
    // A request for all messages is refused. Each client then requests a few different ones.
    let all = frame_of((10..20).map(|id| by_numbers(id, 1, DEFERRED)));
    for (first, mut socket) in (1..).step_by(12).zip(receivers) {
        flood(&mut socket.stream, &all, 1);
        let few = (0..3).map(|part| by_numbers(20 + part, first + FEW * part, FEW));
        flood(&mut socket.stream, &frame_of(few), 1);
        attack.hold(socket);
    }
    attack
}

/// Clients that each hold a different session with a large state.
fn holders(broker: &Broker, count: usize) -> Vec<WebSocket> {
    let sessions = r#"{"requiresSession":true}"#;
    let created = ask(broker.http, "PUT", "/$api/v1/queues/stateful", sessions).unwrap();
    assert_eq!(created.status, 201);
    let state = json!({ "link": 1, "state": "x".repeat(STATE_BYTES) });
    let hold = |number| {
        let mut socket = WebSocket::open(broker.websocket).unwrap();
        let session = format!("s{number}");
        let accept = json!({ "link": 1, "path": "stateful", "sessionId": session });
        done(&mut socket, "acceptSession", &accept);
        done(&mut socket, "setSessionState", &state);
        socket
    };
    (0..count).map(hold).collect()
}

/// Fills the queue of the attacker with large messages and defers them.
fn defer_all(broker: &Broker) {
    fill(broker, usize::try_from(DEFERRED).unwrap());
    let mut socket = attached(broker, "receiver");
    let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 0.0 });
    for _ in 0..DEFERRED {
        let received = done(&mut socket, "receive", &receive);
        let token = &received["received"]["messages"][0]["lockToken"];
        let settle = json!({ "link": 1, "decision": "defer", "lockTokens": [token] });
        done(&mut socket, "settle", &settle);
    }
}

fn by_numbers(id: u64, first: u64, count: u64) -> Json {
    let numbers: Vec<u64> = (first..first + count).collect();
    json!({ "id": id, "receiveDeferred": { "link": 1, "sequenceNumbers": numbers } })
}

fn frame_of(requests: impl Iterator<Item = Json>) -> Vec<u8> {
    let requests: Vec<Json> = requests.collect();
    masked(0x81, json!({ "seen": 0, "requests": requests }).to_string().as_bytes())
}

/// Sends a request that must succeed.
fn done(socket: &mut WebSocket, operation: &str, body: &Json) -> Json {
    let answer = socket.ask(5, operation, body).unwrap();
    assert!(answer.get("error").is_none(), "{operation}: {answer}");
    answer
}
