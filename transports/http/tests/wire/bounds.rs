//! Bounds of a client in memory and time: heads, bodies, answers, connections.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::client::Client;
use super::server::{Plan, Server};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(300);

/// Returns a plan with timeouts that never end a slow connection during a test.
fn patient() -> Plan {
    let mut plan = Plan::new();
    plan.config.head_timeout = NEVER;
    plan.config.body_timeout = NEVER;
    plan.config.write_timeout = NEVER;
    plan
}

async fn refused(client: &mut Client, status: u16, code: &str) {
    let answer = client.read().await.expect("an answer");
    assert_eq!(answer.error(), (status, code.to_owned()), "{}", answer.text());
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(client.read_to_end().await, b"");
}

/// ERR-02: bytes that are not a request are refused with a problem like any other error, and the
/// client can read it.
#[tokio::test]
async fn bytes_other_than_http_get_a_problem() {
    let server = Server::start().await;
    let name = "n".repeat(70_000);
    let headers = "a: b\r\n".repeat(100);
    for (bytes, status, code) in [
        ("nonsense\r\n\r\n".to_owned(), 400, "ArgumentError"),
        ("\u{16}\u{3}\u{1}".to_owned(), 400, "ArgumentError"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "ArgumentError"),
        (
            "POST /q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: no\r\n\r\n".to_owned(),
            400,
            "ArgumentError",
        ),
        (format!("GET /livez HTTP/1.1\r\n{headers}\r\n"), 431, "ArgumentOutOfRange"),
        (format!("GET /livez HTTP/1.1\r\n{name}: x\r\n\r\n"), 431, "ArgumentOutOfRange"),
        (
            format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(70_000)),
            414,
            "ArgumentOutOfRange",
        ),
        (format!("GET /{}", "x".repeat(200_000)), 431, "ArgumentOutOfRange"),
    ] {
        let mut client = server.connect().await;
        // The server may close before it has read everything.
        drop(client.stream.write_all(bytes.as_bytes()).await);
        refused(&mut client, status, code).await;
    }
    assert_eq!(server.in_progress_now().await, 1);
    server.stop().await;
}

/// ERR-02: an invalid request is refused after the answers to earlier requests.
#[tokio::test]
async fn a_refusal_comes_in_its_turn() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let good = server.request("POST /q/messages", "kept");
    client.write(&[&good, &good, b"nonsense\r\n\r\n".as_slice(), &good].concat()).await;
    assert_eq!(client.read().await.unwrap().status, 201);
    assert_eq!(client.read().await.unwrap().status, 201);
    refused(&mut client, 400, "ArgumentError").await;
    assert_eq!(server.broker.describe_queue("q").await.unwrap().counts.active, 2);
    server.stop().await;
}

/// Each head of a connection must arrive in time, whether it stops or arrives slowly.
#[tokio::test]
async fn any_head_arrives_in_its_time() {
    let mut plan = patient();
    plan.config.head_timeout = Duration::from_millis(200);
    plan.config.keep_alive = NEVER;
    let server = plan.start().await;
    for before in [0, 1, 3] {
        let mut client = server.connect().await;
        for _ in 0..before {
            client.write(&server.request("GET /livez", "")).await;
            assert_eq!(client.read().await.unwrap().status, 200);
        }
        client.write(b"GET /livez HTTP/1.1\r\nHos").await;
        refused(&mut client, 408, "ServiceTimeout").await;
        let client = server.connect().await;
        let (mut reader, mut writer) = client.stream.into_split();
        let whole = server.request("GET /livez", "").repeat(before);
        writer.write_all(&whole).await.unwrap();
        let dripping = tokio::spawn(async move {
            // Until the server closes.
            while writer
                .write_all(b"GET /livez HTTP/1.1\r\na: b\r\n".get(..1).unwrap())
                .await
                .is_ok()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut all = Vec::new();
        drop(tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut all).await);
        assert!(String::from_utf8_lossy(&all).contains("HTTP/1.1 408 "), "{before}");
        drop(reader);
        dripping.await.unwrap();
    }
    server.stop().await;
}

/// An idle connection is closed in time and without an answer.
#[tokio::test]
async fn an_idle_connection_is_closed() {
    let mut plan = patient();
    plan.config.keep_alive = Duration::from_millis(100);
    let server = plan.start().await;
    let mut client = server.connect().await;
    client.write(&server.request("GET /livez", "")).await;
    assert_eq!(client.read().await.unwrap().status, 200);
    // Blank lines are not a request.
    client.write(b"\r\n\r\n").await;
    assert_eq!(client.read_to_end().await, b"");
    server.stop().await;
}

/// Polls over this connection until `count` requests are in progress, including its own.
async fn in_progress(server: &Server, look: &mut Client, count: u64) {
    loop {
        look.write(&server.request("GET /health", "")).await;
        if look.read().await.unwrap().json()["requestsInProgress"] == count {
            return;
        }
    }
}

/// A connection beyond the maximum replaces the connection that is idle longest. If none is idle it
/// is refused.
#[tokio::test]
async fn an_idle_connection_makes_room() {
    let mut plan = patient();
    plan.config.connection_count_max = 3;
    let server = plan.start().await;
    // Busy, since its body has not arrived.
    let busy = server.request("POST /q/messages\nContent-Length: 4", "");
    let mut first = server.connect().await;
    first.write(&busy).await;
    let mut half = server.connect().await;
    half.write(&server.request("GET /livez", "")).await;
    assert_eq!(half.read().await.unwrap().status, 200);
    half.write(b"GET /liv").await;
    let mut look = server.connect().await;
    in_progress(&server, &mut look, 2).await;
    // The fourth connection replaces the connection whose head makes no progress.
    let mut second = server.connect().await;
    second.write(&busy).await;
    refused(&mut half, 503, "ServerBusy").await;
    in_progress(&server, &mut look, 3).await;
    // When all others are busy too, a further connection is refused.
    let answer = loop {
        look.write(&busy).await;
        let mut more = server.connect().await;
        let read = tokio::time::timeout(Duration::from_secs(2), more.read()).await;
        if let Ok(answer) = read {
            break answer.unwrap();
        }
        // It came before the request was read, and has replaced the connection that was idle until
        // then.
        look = server.connect().await;
    };
    assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
    for mut client in [first, second, look] {
        client.write(b"body").await;
        assert_eq!(client.read().await.unwrap().status, 201);
    }
    server.stop().await;
}

/// Consecutive connections succeed with a single slot, although the end of the last one may be
/// noticed late.
#[tokio::test]
async fn connections_one_after_the_other_need_one_place() {
    let mut plan = patient();
    plan.config.connection_count_max = 1;
    let server = plan.start().await;
    for _ in 0..100 {
        let mut client = server.connect().await;
        client.write(&server.request("GET /livez", "")).await;
        assert_eq!(client.read().await.unwrap().status, 200);
    }
    server.stop().await;
}

/// HTP-08: if all connections wait for messages, the receive that has waited longest ends early for
/// a new connection, and the others continue.
#[tokio::test]
async fn a_receive_that_waits_makes_room() {
    for (receive, status) in [
        ("POST /q/messages/head", 204),
        ("DELETE /q/messages/head", 204),
        ("POST /$api/v1/queues/q/messages/receive", 200),
    ] {
        let mut plan = patient();
        plan.config.connection_count_max = 3;
        let server = plan.start().await;
        let body = if status == 200 { r#"{"waitSeconds":60}"# } else { "" };
        let mut waiting = Vec::new();
        for _ in 0..3 {
            server.clock.advance(TimeSpan::from_seconds(1));
            let mut client = server.connect().await;
            client.write(&server.request(receive, body)).await;
            let described = async || server.broker.describe_queue("q").await.unwrap();
            while described().await.accessed_at != server.broker.now() {}
            waiting.push(client);
        }
        let mut probe = server.connect().await;
        probe.write(&server.request("GET /readyz", "")).await;
        assert_eq!(probe.read().await.unwrap().status, 200);
        let mut oldest = waiting.remove(0);
        let answer = oldest.read().await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")));
        assert_eq!(oldest.read_to_end().await, b"");
        for mut client in waiting {
            server.send_direct("a").await;
            let answer = client.read().await.unwrap();
            assert!(answer.text().contains('a'), "{}", answer.status);
        }
        server.stop().await;
    }
}

/// A body that is only announced reserves no memory.
#[tokio::test]
async fn announced_bodies_reserve_no_memory() {
    let mut plan = patient();
    plan.config.inbound_bytes_max = 1 << 20;
    let server = plan.start().await;
    let mut announced = Vec::new();
    for _ in 0..64 {
        let mut client = server.connect().await;
        client.write(&server.request("POST /q/messages\nContent-Length: 1000000", "")).await;
        announced.push(client);
    }
    server.in_progress(65).await;
    assert_eq!(server.ask("POST /q/messages", "x".repeat(500_000)).await.status, 201);
    server.stop().await;
}

/// Bodies that make no progress yield their memory to one that arrives, the slowest first.
#[tokio::test]
async fn a_slow_body_yields_its_room() {
    let mut plan = patient();
    plan.config.inbound_bytes_max = 1 << 20;
    let server = plan.start().await;
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut client = server.connect().await;
        let head = server.request("POST /q/messages\nContent-Length: 1000000", "");
        client.write(&head).await;
        client.write(&vec![b'x'; 200_000]).await;
        slow.push(client);
    }
    let begun = Instant::now();
    assert_eq!(server.ask("POST /q/messages", "x".repeat(500_000)).await.status, 201);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let mut yielded = 0;
    for mut client in slow {
        // Bodies that still had memory were not refused.
        let told = tokio::time::timeout(Duration::from_millis(50), client.read()).await;
        if let Ok(Some(answer)) = told {
            assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
            yielded += 1;
        }
    }
    assert!((1..6).contains(&yielded), "{yielded} of 6 yielded");
    server.stop().await;
}

/// ERR-01: a body below the minimum pace is given up when its time is over; a body that keeps the
/// pace is not.
#[tokio::test]
async fn a_body_keeps_a_pace() {
    let mut plan = patient();
    plan.config.body_timeout = Duration::from_millis(300);
    let server = plan.start().await;
    let mut dripping = server.connect().await;
    dripping.write(&server.request("POST /q/messages\nContent-Length: 1000", "")).await;
    let answer = loop {
        dripping.stream.write_all(b"x").await.ok();
        let answer = tokio::time::timeout(Duration::from_millis(20), dripping.read()).await;
        if let Ok(answer) = answer {
            break answer.unwrap();
        }
    };
    assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()));
    let mut stopped = server.connect().await;
    stopped.write(&server.request("POST /q/messages\nContent-Length: 1048576", "")).await;
    stopped.write(&vec![b'x'; 900_000]).await;
    let answer = stopped.read().await.unwrap();
    assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()), "haste was saved up");
    let mut steady = server.connect().await;
    steady.write(&server.request("POST /q/messages\nContent-Length: 400000", "")).await;
    for _ in 0..10 {
        steady.write(&vec![b'x'; 40_000]).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(steady.read().await.unwrap().status, 201);
    server.stop().await;
}

/// ERR-01: a body that waits for memory is not read meanwhile, and that time does not count.
#[tokio::test]
async fn a_body_that_waits_for_room_is_not_late() {
    let mut plan = patient();
    plan.config.body_timeout = Duration::from_millis(300);
    // A body takes all or nothing, so that no two bodies wait for each other.
    plan.config.inbound_bytes_max = 64 << 10;
    let server = plan.start().await;
    let mut held = Vec::new();
    for bytes in [16 << 20, 1] {
        while let Some(permit) = server.broker.connection_budget().try_take(bytes) {
            held.push(permit);
        }
    }
    let mut first = server.connect().await;
    first.write(&server.request("POST /q/messages", "x".repeat(40_000))).await;
    server.in_progress(2).await;
    let mut second = server.connect().await;
    second.write(&server.request("POST /q/messages", "x".repeat(600_000))).await;
    let told = tokio::time::timeout(Duration::from_millis(900), second.read()).await;
    assert!(told.is_err(), "{:?}", told.map(|answer| answer.map(|answer| answer.status)));
    drop(held);
    for client in [&mut first, &mut second] {
        assert_eq!(client.read().await.unwrap().status, 201);
    }
    server.stop().await;
}

/// More bytes than the sockets hold unread.
pub const LARGE: usize = 12 << 20;

/// Returns a plan that allows messages of that size.
pub fn large() -> Plan {
    let mut plan = patient();
    plan.settings.limits.message_bytes_http_max = 2 * LARGE as u64;
    plan.settings.limits.message_bytes_default = 2 * LARGE as u64;
    plan
}

/// RCV-02, RCV-14: clients that do not read hold the memory of their answers only while no other
/// request needs it. A receive is answered, even one that removes its message.
#[tokio::test]
async fn readers_that_do_not_read_yield() {
    let mut plan = large();
    plan.config.outbound_bytes_max = 40 << 20;
    let server = plan.start().await;
    for _ in 0..12 {
        server.send(&"x".repeat(LARGE)).await;
    }
    let mut stuck = Vec::new();
    for _ in 0..8 {
        let mut client = server.connect().await;
        client.write(&server.request("POST /q/messages/head?timeout=0", "").repeat(12)).await;
        stuck.push(client);
    }
    for method in ["DELETE", "POST", "DELETE"] {
        let answer = loop {
            let answer = server.ask(&format!("{method} /q/messages/head?timeout=0"), "").await;
            // A refusal before any message was taken is acceptable too.
            if answer.status != 503 {
                break answer;
            }
        };
        assert_eq!(answer.body.len(), LARGE, "{method}: {}", answer.status);
    }
    drop(stuck);
    // Their locked messages are released.
    assert_eq!(server.active(10).await, 10);
    server.stop().await;
}

/// RCV-02, RCV-14: a receive that waited without memory removes no message before its answer has
/// memory. A client that disconnects meanwhile loses no message.
#[tokio::test]
async fn removal_waits_for_memory_of_the_answer() {
    for (waiting, body) in [
        ("DELETE /w/messages/head?timeout=60", ""),
        (
            "POST /$api/v1/queues/w/messages/receive",
            r#"{"mode":"receiveAndDelete","waitSeconds":60}"#,
        ),
    ] {
        let mut plan = large();
        // Room for two large answers, the first of which needs more than half, and a little more.
        plan.config.outbound_bytes_max = (2 * LARGE + (1 << 20) + (64 << 10)) as u64;
        let server = plan.start().await;
        server.broker.create_queue("w", Default::default()).await.unwrap();
        for bytes in [LARGE + (1 << 20), LARGE] {
            server.send(&"x".repeat(bytes)).await;
        }
        let first = steady_reader(&server).await;
        // Half of the memory is taken, so it waits without any.
        server.clock.advance(TimeSpan::from_seconds(1));
        let mut client = server.connect().await;
        client.write(&server.request(waiting, body)).await;
        let described = async || server.broker.describe_queue("w").await.unwrap();
        while described().await.accessed_at != server.broker.now() {}
        let second = steady_reader(&server).await;
        let entity = server.broker.entity("w").unwrap();
        let message = server.broker.inbound(Message::new("a".repeat(100_000)));
        entity.call(Command::Send { message }).await.unwrap();
        while take(&entity).await {}
        assert_eq!(described().await.counts.active, 1, "it is removed, and has no room");
        drop(client);
        while !take(&entity).await {}
        first.abort();
        second.abort();
        server.stop().await;
    }
}

/// Receives a large message, and reads it just fast enough to hold its memory for seconds.
async fn steady_reader(server: &Server) -> tokio::task::JoinHandle<()> {
    let mut client = server.connect().await;
    client.write(&server.request("POST /q/messages/head?timeout=0", "")).await;
    client.stream.read_u8().await.unwrap();
    tokio::spawn(async move {
        let mut part = vec![0; 32 << 10];
        while client.stream.read_exact(&mut part).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// Whether a message is available; it is given back.
async fn take(entity: &Entity) -> bool {
    let receive = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let Outcome::Received(messages) = entity.call(receive).await.unwrap() else { panic!() };
    let Some(lock) = messages.first().and_then(|message| message.facts.lock) else { return false };
    let settlement = Settlement::Release;
    entity.call(Command::Settle { token: lock.token, settlement }).await.unwrap();
    true
}

/// RCV-14: a lock for a client that stops reading is released without a count when its time is
/// over.
#[tokio::test]
async fn an_answer_that_is_not_read_gives_its_lock_back() {
    let mut plan = large();
    plan.config.write_timeout = Duration::from_millis(300);
    let server = plan.start().await;
    server.send(&"x".repeat(LARGE)).await;
    let mut stuck = server.connect().await;
    stuck.write(&server.request("POST /q/messages/head?timeout=0", "")).await;
    // A fast start earns no additional time. The more it has read, the more its socket accepts.
    stuck.stream.read_exact(&mut vec![0; LARGE / 64]).await.unwrap();
    let answer = loop {
        let mut reader = server.connect().await;
        let receive = "POST /q/messages/head?timeout=60\nConnection: close";
        reader.write(&server.request(receive, "")).await;
        let answer = reader.read_to_end().await;
        // An answer without processor time for that long was cut off as well, and its message was
        // released.
        if answer.len() > LARGE {
            break String::from_utf8(answer).unwrap();
        }
    };
    assert!(answer.starts_with("HTTP/1.1 201 "));
    assert!(answer.contains("\"DeliveryCount\":1,"), "its release is not counted");
    drop(stuck);
    server.stop().await;
}

/// DESIGN D6: the metrics and the OpenAPI document are answers like others: a client that does not
/// read them holds their memory only while no other request needs it.
#[tokio::test]
async fn pages_that_are_not_read_yield_their_room() {
    let document = peeklock_http::openapi_json().len();
    for (target, bytes) in [("/metrics", 2 * LARGE), ("/$api/v1/openapi.json", document)] {
        let mut plan = patient();
        // A single page takes all the memory.
        plan.config.outbound_bytes_max = bytes as u64;
        plan.config.metrics = Some(Arc::new(move || "x".repeat(bytes)));
        let server = plan.start().await;
        // More pages than the sockets hold.
        let count = (2 * LARGE).div_ceil(bytes);
        let last = server.request(&format!("GET {target}\nConnection: close"), "");
        let others = server.request(&format!("GET {target}"), "").repeat(count - 1);
        let mut stuck = server.connect().await;
        stuck.write(&[others, last].concat()).await;
        stuck.stream.read_u8().await.unwrap();
        // Each of these requests lets the only thread do all its work, until the sockets are full.
        let mut look = server.connect().await;
        for _ in 0..4 * count {
            look.write(&server.request("GET /livez", "")).await;
            assert_eq!(look.read().await.unwrap().status, 200);
        }
        let listed = loop {
            let answer = server.ask("GET /$api/v1/queues", "").await;
            if answer.status != 503 {
                break answer.status;
            }
        };
        assert_eq!(listed, 200, "{target}");
        assert!(stuck.read_to_end().await.len() < count * bytes, "{target} did not yield");
        server.stop().await;
    }
}

/// DESIGN D6: the metrics page is built on a thread that serves no connections.
#[tokio::test]
async fn the_metrics_page_delays_no_connection() {
    let mut plan = patient();
    let (begun, begins) = channel();
    let (go, goes) = channel();
    let goes = Mutex::new(goes);
    plan.config.metrics = Some(Arc::new(move || {
        begun.send(()).unwrap();
        goes.lock().unwrap().recv().unwrap();
        "the page".to_owned()
    }));
    let server = plan.start().await;
    let mut scrapes = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.write(&server.request("GET /metrics", "")).await;
        scrapes.push(client);
    }
    // One page is being built, and the only thread that serves connections still answers.
    begins.recv().unwrap();
    server.in_progress(3).await;
    for _ in 0..2 {
        go.send(()).unwrap();
    }
    for mut client in scrapes {
        let answer = client.read().await.unwrap();
        assert_eq!((answer.status, answer.text()), (200, "the page"));
    }
    server.stop().await;
}

/// HTP-09: the memory of the values in a body is known before they are decoded.
#[tokio::test]
async fn a_batch_is_bounded_before_it_is_made() {
    let server = Server::start().await;
    let many = |count: usize| format!("{{\"messages\":[{}{{}}]}}", "{},".repeat(count - 1));
    let batch = "POST /$api/v1/queues/q/messages/batch";
    let answer = server.ask(batch, many(700_000)).await;
    assert_eq!(answer.error(), (403, "QuotaExceeded".to_owned()), "{}", answer.text());
    let answer = server.ask(batch, many(4_097)).await;
    assert_eq!(answer.error(), (400, "ArgumentError".to_owned()), "{}", answer.text());
    assert_eq!(server.ask(batch, many(4_096)).await.status, 201);
    let values = format!("{{\"body\":[{}1]}}", "1,".repeat(500_000));
    let answer = server.ask("POST /$api/v1/queues/q/messages", values).await;
    assert_eq!(answer.error(), (403, "QuotaExceeded".to_owned()), "{}", answer.text());
    server.stop().await;
}

/// DESIGN D6: a request that waits too long for the broker's room for commands is refused with a
/// retryable error, and nothing was done.
#[tokio::test]
async fn a_command_without_room_is_refused_as_retryable() {
    let mut plan = patient();
    plan.settings.limits.broker_inbound_bytes_max = 1 << 20;
    let server = plan.start().await;
    server.send_direct("locked").await;
    let lock = server.receive().await.header("location").unwrap().to_owned();
    let delete = lock.replace(&format!("http://{}", server.address), "DELETE ");
    let budget = server.broker.connection_budget();
    let held: Vec<_> = std::iter::from_fn(|| budget.try_take(1)).collect();
    let mut waiting = Vec::new();
    for (head, body) in [
        ("POST /q/messages", "more"),
        ("POST /q/messages/head?timeout=0", ""),
        ("GET /$api/v1/queues/q/messages", ""),
        (&delete, ""),
    ] {
        let mut client = server.connect().await;
        client.write(&server.request(head, body)).await;
        waiting.push(client);
    }
    for mut client in waiting {
        let answer = tokio::time::timeout(Duration::from_secs(60), client.read()).await;
        let answer = answer.expect("it waits for good").unwrap();
        assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
        assert_eq!(answer.json()["retryable"], true);
    }
    drop(held);
    assert_eq!(server.ask(&delete, "").await.status, 200, "it is locked still");
    assert_eq!(server.receive().await.status, 204, "nothing else was stored");
    server.stop().await;
}
