//! Bytes that no client should send. They cause no panic and no malformed answer, and the listener
//! keeps working.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};

use super::server::{Plan, Server};

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics of the listener's threads.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_server = std::thread::current()
                .name()
                .is_none_or(|name| name.starts_with("actix") || name.starts_with("peeklock"));
            if is_server {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
}

async fn survives(server: &Server, bytes: &[u8]) {
    use tokio::io::AsyncWriteExt;
    let mut client = server.connect().await;
    // The server may close before it has read everything.
    drop(client.stream.write_all(bytes).await);
    drop(client.stream.shutdown().await);
    let answer = client.read_to_end().await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
}

fn requests(server: &Server) -> [Vec<u8>; 3] {
    [
        server.request(
            "POST /q/messages?x=%41\nContent-Type: text/plain\nBrokerProperties: {\"Label\":\"l\"}\nk: \"v\"",
            "body",
        ),
        [
            server.request("POST /q/messages\nTransfer-Encoding: chunked", ""),
            b"4\r\nbody\r\n0\r\n\r\n".to_vec(),
        ]
        .concat(),
        server.request(
            "POST /$api/v1/queues/q/messages",
            "{\"body\":\"b\",\"applicationProperties\":{\"k\":{\"type\":\"i8\",\"value\":1}}}",
        ),
    ]
}

#[tokio::test]
async fn a_request_that_ends_anywhere_does_no_harm() {
    count_panics();
    let server = Server::start().await;
    for request in requests(&server) {
        for end in 0..request.len() {
            survives(&server, &request[..end]).await;
        }
    }
    // No request was complete.
    assert_eq!(server.receive().await.status, 204);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_request_with_any_byte_changed_does_no_harm() {
    count_panics();
    let server = Server::start().await;
    for request in requests(&server) {
        for (place, change) in
            (0..request.len()).zip([0x00, 0xff, b'\n', b'%', b'"', b'9'].iter().cycle())
        {
            let mut changed = request.clone();
            changed[place] = *change;
            survives(&server, &changed).await;
        }
    }
    assert_eq!(server.ask("GET /livez", "").await.status, 200);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn garbage_does_no_harm() {
    count_panics();
    let server = Server::start().await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut all: Vec<Vec<u8>> =
        (0..50).map(|_| (0..200).flat_map(|_| next().to_le_bytes()).collect()).collect();
    all.push(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec());
    all.push(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec());
    all.push([b"GET /".as_slice(), &vec![b'a'; 200_000], b" HTTP/1.1\r\n\r\n"].concat());
    all.push(format!("GET /livez HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1_000)).into_bytes());
    all.push(server.request("POST /q/messages\nContent-Length: -1", ""));
    all.push(server.request("POST /q/messages\nContent-Length: 1\nContent-Length: 2", ""));
    all.push(
        server.request("POST /q/messages\nTransfer-Encoding: chunked\nContent-Length: 3", "abc"),
    );
    all.push(server.request("CONNECT q:443", ""));
    all.push(server.request("GET /livez\nUpgrade: websocket\nConnection: upgrade", ""));
    for bytes in &all {
        survives(&server, bytes).await;
    }
    assert_eq!(server.ask("GET /livez", "").await.status, 200);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn hostile_values_are_refused_or_harmless() {
    count_panics();
    let server = Server::start().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for head in [
        "POST /$api/v1/queues/q/messages",
        "POST /$api/v1/queues/q/messages/batch",
        "PUT /$api/v1/queues/n",
        "POST /q/messages\nContent-Type: application/vnd.microsoft.servicebus.json",
    ] {
        for body in [
            deep.as_str(),
            "\u{0}",
            "null",
            "1e999",
            "{\"messages\":{}}",
            "{\"misspelt\":1}",
            "\"\\ud800\"",
        ] {
            let answer = server.ask(head, body).await;
            assert_eq!(answer.error().0, 400, "{head}");
        }
    }
    let huge = format!("PUT /$api/v1/queues/{}", "x".repeat(10_000));
    assert_eq!(server.ask(&huge, "{}").await.error(), (400, "ArgumentOutOfRange".to_owned()));
    for path in [
        "/%00/messages",
        "/q%0d%0aInjected:%20x/messages",
        "/../q/messages",
        "/q/messages/%00/%00",
        "/%F0%9F%9A%9A/messages",
        "/$api/v1/queues/%2F%2F%2F/messages",
    ] {
        for method in ["POST", "DELETE", "GET"] {
            let answer = server.ask(&format!("{method} {path}"), "").await;
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
            assert!(answer.header("injected").is_none());
        }
    }
    // Properties from a sender cannot add headers to the answer of a receiver.
    let message = serde_json::json!({
        "body": "x", "subject": "a\r\nInjected: yes", "contentType": "a\r\nInjected: yes",
        "applicationProperties": { "k": "a\r\nInjected: yes", "bad name": 1, "content-length": 9 },
    });
    let answer = server.ask("POST /$api/v1/queues/q/messages", message.to_string()).await;
    assert_eq!(answer.status, 201);
    let answer = server.receive().await;
    assert_eq!((answer.status, answer.text()), (201, "x"));
    assert!(answer.header("injected").is_none());
    assert_eq!(answer.header("k"), Some("\"a\\r\\nInjected: yes\""));
    assert_eq!(answer.properties()["Subject"], "a\r\nInjected: yes");
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    server.stop().await;
}

/// DESIGN D6: memory for the values of a JSON text, in addition to the text, is reserved before
/// they are decoded. A rule that exceeds its limit waits for this memory and is then refused.
#[tokio::test]
async fn values_of_a_json_text_reserve_memory() {
    let mut plan = Plan::new();
    plan.config.inbound_bytes_max = 256 << 10;
    let server = plan.start().await;
    let broker = &server.broker;
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), Vec::new()).await.unwrap();
    let mut held = Vec::new();
    for bytes in [16 << 20, 1] {
        while let Some(permit) = broker.connection_budget().try_take(bytes) {
            held.push(permit);
        }
    }
    // It holds half of the memory while it waits for the broker.
    let mut message = server.connect().await;
    message.write(&server.request("POST /q/messages", "x".repeat(120_000))).await;
    while !broker.connection_budget().is_short() {
        tokio::task::yield_now().await;
    }
    let subject = "x".repeat(90_000);
    let rule = format!(r#"{{"filter":{{"type":"correlation","subject":"{subject}"}}}}"#);
    let mut large = server.connect().await;
    let put = "PUT /$api/v1/topics/t/subscriptions/s/rules/r";
    large.write(&server.request(put, rule)).await;
    let told = tokio::time::timeout(Duration::from_millis(900), large.read()).await;
    assert!(told.is_err(), "{:?}", told.map(|answer| answer.map(|answer| answer.status)));
    drop(held);
    assert_eq!(message.read().await.unwrap().status, 201);
    let refused = large.read().await.unwrap().error();
    assert_eq!(refused, (400, "ArgumentOutOfRange".to_owned()));
    server.stop().await;
}
