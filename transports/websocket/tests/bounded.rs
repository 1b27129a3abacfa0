//! Bounds of the memory that one client can make the broker hold, measured as resident memory of
//! the process. The tests run one at a time, since they measure the whole process. Their names
//! state the client's behaviour.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "tests")]

#[path = "wire/client.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod client;
#[path = "wire/server.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::SinkExt;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::QueueUpdate;
use peeklock_core::time::TimeSpan;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use self::client::{Client, upgrade_json};
use self::server::{Plan, run};

/// Time without progress after which a peer counts as no longer reading.
const STUCK: Duration = Duration::from_millis(1_500);
const MIB: u64 = 1 << 20;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Returns a plan with timeouts of minutes, so that neither silence nor slowness ends a connection
/// during a test.
fn patient() -> Plan {
    let mut plan = Plan::new();
    plan.config.heartbeat = Duration::from_secs(300);
    plan.config.frame_timeout = Duration::from_secs(300);
    plan
}

/// Writes the same bytes repeatedly until the server stops reading or `most` bytes are written;
/// returns the number of bytes.
async fn write_until_stuck(socket: &mut TcpStream, bytes: &[u8], most: u64) -> u64 {
    let mut written = 0;
    while written < most {
        if tokio::time::timeout(STUCK, socket.write_all(bytes)).await.is_err() {
            break;
        }
        written += bytes.len() as u64;
    }
    written
}

fn pings() -> Vec<u8> {
    let mut ping = vec![0x89, 0xfd, 0, 0, 0, 0];
    ping.extend_from_slice(&[b'x'; 125]);
    ping.repeat(500)
}

/// Pings are not read while their pongs are not read, before and after the hello.
#[test]
fn pings_whose_pongs_are_not_read() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        let mut client = server.client().await;
        let before = resident_bytes();
        let written = write_until_stuck(client.socket.get_mut(), &pings(), 96 * MIB).await;
        assert!(written < 96 * MIB, "{written} bytes of pings were read");
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 24 * MIB, "{grown} bytes for pongs");
        let mut silent = upgrade_json(server.address).await;
        let written = write_until_stuck(silent.get_mut(), &pings(), 96 * MIB).await;
        assert!(written < 96 * MIB, "{written} bytes of pings were read before the hello");
        server.stop().await;
    });
}

/// Answers to a frame of 4,096 lists are not read: few lists are built at a time, and none without
/// room.
#[test]
fn lists_that_are_not_read() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        for number in 0..100 {
            let path = format!("q{number}");
            server.broker.create_queue(&path, QueueUpdate::default()).await.unwrap();
        }
        let mut client = server.client().await;
        let lists: Vec<_> =
            (10..4_000).map(|id| json!({ "id": id, "listQueues": { "skip": 0 } })).collect();
        let before = resident_bytes();
        client.frame_of(json!(lists)).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 40 * MIB, "{grown} bytes for lists");
        // The answers are only delayed: a client that reads gets them.
        for id in 10..30 {
            let answer = client.answer(id).await;
            assert!(answer.get("queues").is_some(), "{answer}");
        }
        server.stop().await;
    });
}

/// Explanations of many large rules are not read, over many connections: two are built at a time,
/// and each reserves room in the broker-wide pool for answers. A client that reads gets all its
/// answers meanwhile.
#[test]
fn explanations_that_are_not_read_over_many_connections() {
    let _alone = alone();
    run(async {
        let mut plan = patient();
        plan.settings.limits.broker_outbound_bytes_max = 16 * MIB;
        let server = plan.start().await;
        let mut client = server.client().await;
        client.ask("createTopic", json!({ "path": "t" })).await;
        let rules: Vec<_> = (0..100)
            .map(|number| {
                let sql = format!("{}a = {number}", "colour = 'red' OR ".repeat(50));
                json!({ "name": format!("r{number}"), "filter": { "type": "sql", "sql": sql } })
            })
            .collect();
        let made = json!({ "topic": "t", "name": "s", "rules": rules });
        let made = client.ask("createSubscription", made).await;
        assert!(made.get("subscription").is_some(), "{made}");
        let explain = json!({ "path": "t/subscriptions/s", "message": { "body": "x" } });
        // Runs it once, so that one-time allocations exist before the measurement.
        assert!(client.ask("explain", explain.clone()).await.get("explained").is_some());
        let before = resident_bytes();
        let mut silent = Vec::new();
        for _ in 0..60 {
            let mut client = server.client().await;
            let asked: Vec<_> =
                (10..60).map(|id| json!({ "id": id, "explain": explain })).collect();
            client.frame_of(json!(asked)).await;
            silent.push(client);
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 120 * MIB, "{grown} bytes for explanations");
        // Clients that disconnect return their turns and their room, however many requests they
        // have sent.
        drop(silent);
        assert!(client.ask("explain", explain).await.get("explained").is_some());
        server.stop().await;
    });
}

/// PEK-08: peeks of many small messages are not read. The fixed part of each message in an answer
/// is paid for like a command, before contents are fetched. A client that reads gets all its
/// answers, even if its second frame waits for the first.
#[test]
fn peeks_of_many_messages_that_are_not_read() {
    let _alone = alone();
    run(async {
        let mut plan = patient();
        plan.settings.limits.broker_inbound_bytes_max = 8 * MIB;
        let server = plan.start().await;
        server.put(&["x"; 250]).await;
        let peeks = |first: u64| {
            let asked = (first..first + 40)
                .map(|id| json!({ "id": id, "peek": { "link": 1, "from": 0, "maxCount": 250 } }));
            json!(asked.collect::<Vec<_>>())
        };
        let attach = json!({ "link": 1, "path": "q", "role": "receiver" });
        let mut silent = Vec::new();
        for _ in 0..4 {
            let mut client = server.client().await;
            client.ask("attach", attach.clone()).await;
            silent.push(client);
        }
        let before = resident_bytes();
        for client in &mut silent {
            for frame in 0..12 {
                let frame = json!({ "requests": peeks(100 + 40 * frame) }).to_string();
                // Other clients wait for its room, and it does not read, so it may be closed
                // already.
                client.socket.send(Message::text(frame)).await.ok();
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 48 * MIB, "{grown} bytes for peeks");
        let mut reader = server.client().await;
        reader.ask("attach", attach).await;
        for first in [100, 140] {
            reader.frame_of(peeks(first)).await;
        }
        for id in 100..180 {
            let answer = reader.answer(id).await;
            assert_eq!(answer["received"]["messages"].as_array().unwrap().len(), 250, "{id}");
        }
        server.stop().await;
    });
}

/// Settlements of thousands of numbers that were never delivered; the answers are not read.
#[test]
fn failures_that_are_not_read() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        let mut client = server.client().await;
        client.receive_with(None).await;
        let ranges: Vec<_> = (0..4_096_u32).map(|number| [3 * number, 3 * number]).collect();
        let settle = json!({ "link": 1, "decision": "complete", "ranges": ranges });
        let frame = json!({ "requests": [{ "id": 5, "settle": settle }] }).to_string();
        let before = resident_bytes();
        for _ in 0..200 {
            let sent = client.socket.send(Message::text(frame.clone()));
            if tokio::time::timeout(STUCK, sent).await.is_err() {
                break;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 48 * MIB, "{grown} bytes for failures");
        server.stop().await;
    });
}

/// A frame of 4 MiB with more than a million empty messages: the cost is known before they are
/// decoded, and requests beyond the limit are refused.
#[test]
fn empty_messages_beyond_count() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        let mut client = server.client().await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "sender" })).await;
        let messages = format!("[{}{{}}]", "{},".repeat(4_095));
        let sends: Vec<String> = (10..340)
            .map(|id| format!(r#"{{"id":{id},"send":{{"link":1,"messages":{messages}}}}}"#))
            .collect();
        let frame = format!(r#"{{"requests":[{}]}}"#, sends.join(","));
        assert!(frame.len() < 4 << 20);
        drop(sends);
        let before = resident_bytes();
        client.socket.send(Message::text(frame)).await.unwrap();
        assert!(client.answer(10).await.get("accepted").is_some());
        let error = client.answer(339).await;
        assert_eq!(error["error"]["condition"], "QuotaExceeded", "{error}");
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 96 * MIB, "{grown} bytes for one frame");
        for id in 11..14 {
            assert!(client.answer(id).await.get("accepted").is_some());
        }
        assert_eq!(server.counts().await.active, 4 * 4_096);
        server.stop().await;
    });
}

/// Pipelined peeks of large messages are not read: contents are fetched only if they are paid for.
#[test]
fn peeks_that_are_not_read() {
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("peeklock-bounded-{}", std::process::id()));
    run(async {
        let mut plan = patient();
        plan.data_dir = Some(directory.clone());
        let server = plan.start().await;
        let text = "x".repeat(900_000);
        for _ in 0..8 {
            server.put(&[&text]).await;
        }
        let mut clients = Vec::new();
        let before = resident_bytes();
        for _ in 0..12 {
            let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
            client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
            let peeks: Vec<_> = (0..64)
                .map(|number| {
                    let peek = json!({ "link": 1, "from": number % 8 + 1, "maxCount": 1 });
                    json!({ "id": 10 + number, "peek": peek })
                })
                .collect();
            client.frame_of(json!(peeks)).await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let grown = resident_bytes().saturating_sub(before);
        // 12 connections with 4 MiB each, in addition the bytes being written and the cache of the
        // store.
        assert!(grown < 200 * MIB, "{grown} bytes for peeks");
        server.stop().await;
    });
    std::fs::remove_dir_all(&directory).ok();
}

/// SET-21: small answers, one per frame, to a client that may resume and confirms nothing. A kept
/// frame counts with all its memory, not only its length. Without room no further answers are sent;
/// after a confirmation they are.
#[test]
fn small_answers_that_are_not_confirmed() {
    /// Answers of some 45 bytes. By their length only, twice as many would fit.
    const ANSWERS: u64 = 10_000;

    let _alone = alone();
    run(async {
        let mut plan = patient();
        // Twice this is kept.
        plan.config.outbound_bytes_max = MIB / 2;
        let server = plan.start().await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        let before = resident_bytes();
        let mut answered = 0;
        while answered < ANSWERS {
            let id = 2 + answered;
            let beat = json!({ "requests": [{ "id": id, "heartbeat": {} }] }).to_string();
            client.socket.send(Message::text(beat)).await.unwrap();
            if tokio::time::timeout(STUCK, client.answer(id)).await.is_err() {
                break;
            }
            answered += 1;
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(answered < ANSWERS / 2, "{answered} answers are kept");
        assert!(answered > 2_000, "{answered} answers are kept");
        assert!(grown < 4 * MIB, "{grown} bytes for {answered} answers");
        client.frame_of(json!([])).await;
        client.answer(2 + answered).await;
        server.stop().await;
    });
}

/// DESIGN D6: hundreds of ranges in a frame, each naming a thousand deliveries, become commands
/// only while there is room for them. When the first range is answered, the commands of the others
/// do not exist yet.
#[test]
fn ranges_that_name_many_deliveries() {
    const DELIVERIES: usize = 1_000;

    let _alone = alone();
    run(async {
        let server = patient().start().await;
        server.put(&["x"; DELIVERIES]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1_000)).await;
        client.deliveries(DELIVERIES).await;
        let before = resident_bytes();
        let renew = json!({ "link": 1, "ranges": [[1, DELIVERIES]] });
        let renewals: Vec<_> = (100..612).map(|id| json!({ "id": id, "renew": renew })).collect();
        client.frame_of(json!(renewals)).await;
        let answer = client.answer(100).await;
        assert!(answer["renewed"]["lockedUntilUtc"].is_string(), "{answer}");
        // All commands would take some 300 bytes each, 150 MiB together.
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 40 * MIB, "{grown} bytes for renewals");
        for id in 101..110 {
            let answer = client.answer(id).await;
            assert!(answer["renewed"].get("failed").is_none(), "{answer}");
        }
        server.stop().await;
    });
}

/// RCV-02: receive-and-delete requests run only while their answers have room; the other messages
/// stay.
#[test]
fn receives_that_are_not_read_lose_little() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        let text = "x".repeat(200_000);
        for _ in 0..200 {
            server.put(&[&text]).await;
        }
        let mut client = server.client().await;
        let attach =
            json!({ "link": 1, "path": "q", "role": "receiver", "mode": "receiveAndDelete" });
        client.ask("attach", attach).await;
        let receives: Vec<_> = (10..210)
            .map(|id| {
                let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 0.0 });
                json!({ "id": id, "receive": receive })
            })
            .collect();
        client.frame_of(json!(receives)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Requests for 40 MB were sent. Only messages in the sockets, and within the bound of one
        // connection, are removed.
        let left = server.counts().await.active;
        assert!(left > 100, "{left} messages are left");
        // A client that reads gets all of them.
        for id in 10..210 {
            let answer = client.answer(id).await;
            assert_eq!(answer["received"]["messages"].as_array().unwrap().len(), 1, "{id}");
        }
        assert_eq!(server.counts().await.active, 0);
        server.stop().await;
    });
}

/// DEF-11, RCV-02: receives by sequence number that delete also run only while their answers have
/// room.
#[test]
fn receives_by_numbers_that_are_not_read_lose_little() {
    let _alone = alone();
    run(async {
        let server = patient().start().await;
        let text = "x".repeat(200_000);
        for _ in 0..200 {
            server.put(&[&text]).await;
        }
        let queue = server.broker.entity("q").unwrap();
        let all = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: 200,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let Outcome::Received(messages) = queue.call(all).await.unwrap() else { panic!() };
        for message in messages {
            let token = message.facts.lock.unwrap().token;
            let settlement = Settlement::Defer { properties: None };
            queue.call(Command::Settle { token, settlement }).await.unwrap();
        }
        assert_eq!(server.counts().await.deferred, 200);
        let mut client = server.client().await;
        let attach =
            json!({ "link": 1, "path": "q", "role": "receiver", "mode": "receiveAndDelete" });
        client.ask("attach", attach).await;
        let receives: Vec<_> = (1..201)
            .map(|number| {
                let receive = json!({ "link": 1, "sequenceNumbers": [number] });
                json!({ "id": 10 + number, "receiveDeferred": receive })
            })
            .collect();
        client.frame_of(json!(receives)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let left = server.counts().await.deferred;
        assert!(left > 60, "{left} messages are left");
        for id in 11..211 {
            let answer = client.answer(id).await;
            assert_eq!(answer["received"]["messages"].as_array().unwrap().len(), 1, "{id}");
        }
        assert_eq!(server.counts().await.deferred, 0);
        server.stop().await;
    });
}
