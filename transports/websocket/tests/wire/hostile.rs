//! A peer that stalls, floods, lies or sends garbage gets typed errors within bounded memory;
//! others are unharmed.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use peeklock_store_testing::Random;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, Socket, closed, upgrade_json};
use super::server::{Plan, Server, run};

/// Asserts that another client can still send and receive.
async fn assert_unharmed(server: &Server) {
    let mut client = server.client().await;
    client.ask("attach", json!({ "link": 1, "path": "q", "role": "sender" })).await;
    let send = json!({ "link": 1, "messages": [{ "body": "fine" }] });
    assert!(client.ask("send", send).await.get("accepted").is_some());
    let receiver = json!({ "link": 2, "path": "q", "role": "receiver" });
    client.ask("attach", receiver).await;
    let receive = json!({ "link": 2, "maxCount": 100, "waitSeconds": 0 });
    let got = client.ask("receive", receive).await;
    let messages = got["received"]["messages"].as_array().unwrap();
    let fine = messages.iter().find(|message| message["body"] == "fine").unwrap();
    let tokens = json!([fine["lockToken"]]);
    let settle = json!({ "link": 2, "decision": "complete", "lockTokens": tokens });
    assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
    client.close(Some(1_000)).await;
}

/// Any garbage after the hello closes the connection with 1002, and no other connection.
#[test]
fn garbage_closes_the_connection_and_no_other() {
    run(async {
        let server = Server::start().await;
        let mut random = Random::new(7);
        for _ in 0..50 {
            let mut client = server.client().await;
            let garbage: String = (0..random.between(1, 200))
                .map(|_| char::from(u8::try_from(random.between(33, 126)).unwrap()))
                .collect();
            client.socket.send(Message::text(garbage)).await.unwrap();
            assert_eq!(client.closed().await.unwrap().0, 1_002);
        }
        // A list of the values of a frame in their order is not a frame.
        for list in ["[]", "[0]", "[0,[]]"] {
            let mut client = server.client().await;
            client.socket.send(Message::text(list)).await.unwrap();
            assert_eq!(client.closed().await.map(|(code, _)| code), Some(1_002), "{list}");
        }
        // Frames that the WebSocket protocol does not define.
        for bytes in [&[0x83, 0x80, 0, 0, 0, 0][..], &[0x81, 0x01, 0x41], &[0xc1, 0x80, 0, 0, 0, 0]]
        {
            let mut client = server.client().await;
            client.socket.get_mut().write_all(bytes).await.unwrap();
            assert_eq!(client.closed().await.map(|(code, _)| code), Some(1_002));
        }
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// Bytes that are not WebSocket.
#[test]
fn bytes_other_than_websocket_are_dropped() {
    run(async {
        let mut plan = Plan::new();
        plan.config.handshake_timeout = Duration::from_millis(200);
        let server = plan.start().await;
        let headers = "x: y\r\n".repeat(2_000);
        for request in [
            "\0\0\0\0\0\0\0\0".to_owned(),
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\n{headers}\r\n"),
            "GET / HTT".to_owned(),
        ] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.ok();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok();
            assert!(!answer.starts_with(b"HTTP/1.1 101"));
        }
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// QUO-01: a frame of the maximum size is read; one byte more closes with 1009.
#[test]
fn a_frame_has_a_limit() {
    run(async {
        let mut plan = Plan::new();
        plan.config.frame_bytes_max = 10_000;
        let server = plan.start().await;
        let frame = |length: usize| {
            let start = r#"{"requests":[{"id":9,"heartbeat":{}}]"#;
            format!("{start}{}}}", " ".repeat(length - start.len() - 1))
        };
        let mut client = server.client().await;
        client.socket.send(Message::text(frame(10_000))).await.unwrap();
        client.answer(9).await;
        client.socket.send(Message::text(frame(10_001))).await.unwrap();
        assert_eq!(client.closed().await.unwrap().0, 1_009);
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// QUO-01: a connection beyond the maximum is closed with "try again later". Room is made first by
/// a lost connection that waits for its client, then by the connection that is idle longest, even
/// with open transactions. A connection with a link never makes room, however long it is silent.
#[test]
fn connections_have_a_limit() {
    run(async {
        let mut plan = Plan::new();
        plan.config.connection_count_max = 2;
        let server = plan.start().await;
        let lost = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        let attach = |role: &str| json!({ "link": 1, "path": "q", "role": role });
        let mut kept = server.client().await;
        assert!(kept.ask("attach", attach("receiver")).await.get("done").is_some());
        let refused = |address| async move {
            let mut socket = upgrade_json(address).await;
            let hello = r#"{"requests":[{"id":1,"hello":{}}]}"#;
            socket.send(Message::text(hello)).await.unwrap();
            closed(&mut socket).await
        };
        let (code, reason) = refused(server.address).await.unwrap();
        assert_eq!(code, 1_013);
        assert!(reason.starts_with("QuotaExceeded, TrackingId:"), "{reason}");
        drop(lost);
        // Succeeds as soon as the loss is noticed.
        let mut idle = Client::over(welcome(server.address).await);
        let begun = idle.ask("beginTransaction", json!({})).await;
        assert!(begun.get("transaction").is_some(), "{begun}");
        // Succeeds as soon as it has been idle for a while.
        let mut next = Client::over(welcome(server.address).await);
        let reason = idle.closed().await;
        assert_eq!(
            reason,
            Some((1_013, "the connection is closed to make room for another client".to_owned()))
        );
        assert!(next.ask("attach", attach("sender")).await.get("done").is_some());
        // No connection is idle now, with or without messages.
        let refusal = refused(server.address).await.unwrap();
        assert!(refusal.1.starts_with("QuotaExceeded"), "{refusal:?}");
        for client in [&mut kept, &mut next] {
            let detach = json!({ "link": 1 });
            assert!(client.ask("detach", detach).await.get("done").is_some(), "it is there still");
        }
        drop((next, kept));
        server.stop().await;
    });
}

/// Tries until there is a slot.
async fn welcome(address: SocketAddr) -> Socket {
    loop {
        let mut socket = upgrade_json(address).await;
        let hello = r#"{"requests":[{"id":1,"hello":{}}]}"#;
        socket.send(Message::text(hello)).await.unwrap();
        if let Some(Ok(Message::Text(_))) = socket.next().await {
            return socket;
        }
    }
}

/// Links have a limit, and requests about foreign links or locks are refused.
#[test]
fn links_have_a_limit_and_lies_are_refused() {
    run(async {
        let mut plan = Plan::new();
        plan.config.link_count_max = 2;
        let server = plan.start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        for link in 1..=2 {
            let attach = json!({ "link": link, "path": "q", "role": "receiver" });
            assert!(client.ask("attach", attach).await.get("done").is_some());
        }
        let attach = |link| json!({ "link": link, "path": "q", "role": "sender" });
        assert_eq!(client.ask("attach", attach(3)).await["error"]["condition"], "QuotaExceeded");
        assert_eq!(client.ask("attach", attach(1)).await["error"]["condition"], "InvalidOperation");
        for operation in ["credit", "drain", "detach", "peek", "send", "purge"] {
            let body = match operation {
                "credit" => json!({ "link": 9, "upTo": 1 }),
                "peek" => json!({ "link": 9, "from": 0, "maxCount": 1 }),
                "send" => json!({ "link": 9, "messages": [] }),
                _ => json!({ "link": 9 }),
            };
            let refused = client.ask(operation, body).await;
            assert_eq!(refused["error"]["condition"], "InvalidOperation", "{operation} {refused}");
        }
        // A receiver cannot send, and a sender cannot receive.
        let messages = json!([{ "body": "b" }]);
        for (operation, body) in [
            ("send", json!({ "link": 2, "messages": messages })),
            ("sendBatch", json!({ "link": 2, "messages": messages })),
            ("cancelScheduled", json!({ "link": 2, "sequenceNumbers": [1] })),
        ] {
            let refused = client.ask(operation, body).await;
            let detail = refused["error"]["detail"].as_str().unwrap();
            assert_eq!(detail, "link 2 is a receiver, not a sender", "{operation}");
        }
        // A list is not an object, even with the right elements.
        let refused = client.ask("detach", json!([1, false])).await;
        assert_eq!(refused["error"]["condition"], "ArgumentError", "{refused}");
        assert!(client.ask("attach", attach(3)).await.get("error").is_some());
        let refused = client.ask("detach", json!({ "link": 2 })).await;
        assert!(refused.get("done").is_some(), "{refused}");
        assert!(client.ask("attach", attach(3)).await.get("done").is_some());
        let send = json!({ "link": 3, "messages": [["b"]] });
        let refused = client.ask("send", send).await;
        assert!(refused.to_string().contains("ArgumentError"), "{refused}");
        // The client settles a message that it has not locked.
        let foreign = "00000000-0000-0001-0000-000000000000";
        let settle = json!({ "link": 1, "decision": "complete", "lockTokens": [foreign] });
        let failed = &client.ask("settle", settle).await["settled"]["failed"];
        assert_eq!(failed[0]["error"]["condition"], "MessageLockLost");
        let hello = client.ask("hello", json!({})).await;
        assert_eq!(hello["error"]["condition"], "InvalidOperation");
        let seen = json!({ "seen": u64::MAX, "requests": [{ "id": 90, "heartbeat": {} }] });
        client.socket.send(Message::text(seen.to_string())).await.unwrap();
        client.answer(90).await;
        assert_eq!(server.counts().await.active, 1);
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// DESIGN D6: a client that floods and reads nothing is no longer read. Others continue, and its
/// memory is bounded.
#[test]
fn a_flood_without_reading_is_stopped_by_its_own_answers() {
    run(async {
        let mut plan = Plan::new();
        plan.config.heartbeat = Duration::from_secs(300);
        let server = plan.start().await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        server.put(&["x".repeat(100_000).as_str()]).await;
        // Each answer has 100 kB. With 4 MiB unconfirmed nothing more is written, and with enough
        // unanswered requests nothing more is read.
        let peek =
            json!({ "requests": [{ "id": 5, "peek": { "link": 1, "from": 0, "maxCount": 1 } }] });
        let peek = Message::text(peek.to_string());
        let mut written = 0_u32;
        // Only a write that makes no progress shows that the peer does not read.
        while tokio::time::timeout(Duration::from_secs(1), client.socket.send(peek.clone()))
            .await
            .is_ok()
        {
            written += 1;
            assert!(written < 300_000, "it is read on and on");
        }
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// A flood of requests that are refused at once: their answers are bounded too.
#[test]
fn a_flood_of_bad_requests_is_stopped_by_its_own_answers() {
    run(async {
        let mut plan = Plan::new();
        plan.config.heartbeat = Duration::from_secs(300);
        let server = plan.start().await;
        let mut client = server.client().await;
        let bad = Message::text(r#"{"requests":[{"id":5,"drain":{"link":77}}]}"#);
        let mut written = 0_u32;
        while tokio::time::timeout(Duration::from_secs(1), client.socket.send(bad.clone()))
            .await
            .is_ok()
        {
            written += 1;
            assert!(written < 1_000_000, "it is read on and on");
        }
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// A frame that begins and makes no progress is given up, even if it claims to be large.
#[test]
fn a_stalled_frame_is_given_up() {
    run(async {
        let mut plan = Plan::new();
        plan.config.frame_timeout = Duration::from_millis(200);
        let server = plan.start().await;
        let mut client = server.client().await;
        // A text frame of 4 MiB less one byte, of which ten bytes arrive.
        let mut bytes = vec![0x81, 0xff];
        bytes.extend_from_slice(&((4_u64 << 20) - 1).to_be_bytes());
        bytes.extend_from_slice(&[0; 14]);
        client.socket.get_mut().write_all(&bytes).await.unwrap();
        assert_eq!(client.closed().await.unwrap().0, 4_101);
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// Pings between the fragments of a message do not count as progress: the message is given up as
/// early as without them. Outside of a message, pings are complete frames and may arrive at any
/// pace.
#[test]
fn pings_within_a_message_do_not_keep_it() {
    const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
    run(async {
        let mut plan = Plan::new();
        plan.config.frame_timeout = Duration::from_millis(300);
        let server = plan.start().await;
        let mut client = server.client().await;
        let pinging = async {
            // Half a ping together with the other half of the previous one, for longer than a frame
            // may take.
            let mut rest = Vec::new();
            for _ in 0..40 {
                rest.extend_from_slice(&PING);
                let half: Vec<u8> = rest.drain(..rest.len().min(5)).collect();
                client.socket.get_mut().write_all(&half).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            client.socket.get_mut().write_all(&rest).await.unwrap();
            // The first fragment of a text.
            client.socket.get_mut().write_all(&[0x01, 0x82, 0, 0, 0, 0, b'{', b' ']).await.unwrap();
            loop {
                client.socket.get_mut().write_all(&PING).await.unwrap();
                match client.socket.next().await {
                    Some(Ok(Message::Close(close))) => break u16::from(close.unwrap().code),
                    Some(Ok(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        let code = tokio::time::timeout(Duration::from_secs(20), pinging).await.expect("in time");
        assert_eq!(code, 4_101);
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// Partial frames share one budget. A connection without room waits until another frame is
/// complete, and then continues.
#[test]
fn unfinished_frames_share_a_budget() {
    run(async {
        let mut plan = Plan::new();
        // Room for one frame.
        plan.config.inbound_bytes_max = 64 << 10;
        let server = plan.start().await;
        let mut first = server.client().await;
        let mut second = server.client().await;
        for client in [&mut first, &mut second] {
            client.ask("attach", json!({ "link": 1, "path": "q", "role": "sender" })).await;
        }
        let messages = json!([{ "body": "x".repeat(50_000) }]);
        let frame =
            json!({ "requests": [{ "id": 7, "send": { "link": 1, "messages": messages } }] });
        let payload = frame.to_string().into_bytes();
        let mut bytes = vec![0x81, 0xff];
        bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&payload);
        let (begin, end) = bytes.split_at(40_000);
        first.socket.get_mut().write_all(begin).await.unwrap();
        second.socket.get_mut().write_all(begin).await.unwrap();
        second.socket.get_mut().write_all(end).await.unwrap();
        first.socket.get_mut().write_all(end).await.unwrap();
        assert!(first.answer(7).await.get("accepted").is_some());
        assert!(second.answer(7).await.get("accepted").is_some());
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// Stalled partial frames have taken all the room. The slowest yield, and an honest frame passes
/// soon.
#[test]
fn stalled_frames_yield_to_one_that_moves() {
    run(async {
        let mut plan = Plan::new();
        plan.config.inbound_bytes_max = 1 << 20;
        let server = plan.start().await;
        let mut stalled = Vec::new();
        for _ in 0..20 {
            let mut client = server.client().await;
            let mut bytes = vec![0x81, 0xff];
            bytes.extend_from_slice(&((4_u64 << 20) - 1).to_be_bytes());
            bytes.extend_from_slice(&[b' '; 100_000]);
            client.socket.get_mut().write_all(&bytes).await.unwrap();
            stalled.push(client);
        }
        let mut client = server.client().await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "sender" })).await;
        let messages = json!([{ "body": "x".repeat(100_000) }]);
        let sent = client.ask("send", json!({ "link": 1, "messages": messages }));
        let answer = tokio::time::timeout(Duration::from_secs(10), sent).await.expect("in time");
        assert!(answer.get("accepted").is_some(), "{answer}");
        server.stop().await;
    });
}

/// Receives that wait for days do not delay a receive that does not wait, however many they are.
#[test]
fn receives_that_wait_hold_up_none_that_does_not() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        let wait = json!({ "link": 1, "maxCount": 1, "waitSeconds": 86_400 });
        let waits: Vec<_> = (100..1_100).map(|id| json!({ "id": id, "receive": wait })).collect();
        client.frame_of(json!(waits)).await;
        let now = json!({ "link": 1, "maxCount": 1, "waitSeconds": 0 });
        let received = client.ask("receive", now);
        let answer =
            tokio::time::timeout(Duration::from_secs(60), received).await.expect("in time");
        assert_eq!(answer["received"]["messages"], json!([]), "{answer}");
        server.stop().await;
    });
}

/// A client with many slow requests keeps their room only while no other client waits for it.
#[test]
fn many_slow_requests_yield() {
    run(async {
        let mut plan = Plan::new();
        plan.settings.limits.broker_inbound_bytes_max = 1 << 20;
        let server = plan.start().await;
        let mut client = server.client().await;
        client.ask("createTopic", json!({ "path": "t" })).await;
        let rules: Vec<_> = (0..60)
            .map(|number| {
                let sql = format!("p LIKE '%{}b{number}%'", "a_".repeat(450));
                json!({ "name": format!("r{number}"), "filter": { "type": "sql", "sql": sql } })
            })
            .collect();
        let made = json!({ "topic": "t", "name": "s", "rules": rules });
        let made = client.ask("createSubscription", made).await;
        assert!(made.get("subscription").is_some(), "{made}");
        let message = json!({ "body": "x", "applicationProperties": { "p": "a".repeat(30_000) } });
        let explain = json!({ "path": "t/subscriptions/s", "message": message });
        let mut greedy = Vec::new();
        for _ in 0..2 {
            let mut client = server.client().await;
            let asked: Vec<_> =
                (10..55).map(|id| json!({ "id": id, "explain": explain })).collect();
            client.frame_of(json!(asked)).await;
            greedy.push(client);
        }
        // Others come and go while it keeps its room.
        let others = async {
            loop {
                let asked = json!({ "link": 1, "path": "q", "role": "sender" });
                let asked = client.ask("attach", asked);
                tokio::time::timeout(Duration::from_secs(60), asked).await.expect("in time");
                client.ask("detach", json!({ "link": 1 })).await;
            }
        };
        let [one, other] = greedy.as_mut_slice() else { unreachable!() };
        let closed = tokio::select! {
            closed = one.closed() => closed,
            closed = other.closed() => closed,
            () = others => unreachable!(),
        };
        assert_eq!(closed.unwrap().0, 4_101);
        server.stop().await;
    });
}

/// A client that does not read its answers is given up, even if it shows other signs of life.
#[test]
fn a_client_without_reads_is_given_up() {
    run(async {
        let mut plan = Plan::new();
        plan.config.frame_timeout = Duration::from_millis(600);
        let server = plan.start().await;
        let mut client = server.client().await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        let text = "x".repeat(900_000);
        server.put(&[&text]).await;
        let peeks: Vec<_> = (10..60)
            .map(|id| json!({ "id": id, "peek": { "link": 1, "from": 0, "maxCount": 1 } }))
            .collect();
        client.frame_of(json!(peeks)).await;
        let beat = Message::text(json!({ "requests": [{ "heartbeat": {} }] }).to_string());
        while client.socket.send(beat.clone()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_unharmed(&server).await;
        server.stop().await;
    });
}

/// A waiting receive is identified by its id. A request without an id, or with the id of a waiting
/// one, is refused and leaves the other unchanged.
#[test]
fn a_waiting_receive_needs_an_id_of_its_own() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        let attach =
            json!({ "link": 1, "path": "q", "role": "receiver", "mode": "receiveAndDelete" });
        client.ask("attach", attach).await;
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 20.0 });
        let requests = json!([
            { "id": 7, "receive": receive },
            { "id": 7, "receive": receive },
            { "receive": receive },
        ]);
        client.frame_of(requests).await;
        // Under that id the client would take it for the answer to the other request.
        assert_eq!(client.pushed("error").await["condition"], "ArgumentError");
        assert_eq!(client.pushed("error").await["condition"], "ArgumentError");
        server.put(&["one", "two"]).await;
        assert_eq!(client.answer(7).await["received"]["messages"][0]["body"], "one");
        assert_eq!(server.counts().await.active, 1);
        server.stop().await;
    });
}
