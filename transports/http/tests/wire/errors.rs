//! Errors: one name, the status of its row, one form (ERR-01, ERR-02).

use std::time::Duration;

use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::limits::Limits;

use super::server::{Plan, Server};

async fn check(server: &Server, head: &str, body: &str, status: u16, code: &str) {
    let answer = server.ask(head, body).await;
    assert_eq!(answer.error(), (status, code.to_owned()), "{head}: {}", answer.text());
}

/// ERR-01, ERR-02: the conditions that a request can cause.
#[tokio::test]
async fn every_condition_has_its_status_and_form() {
    let mut plan = Plan::new();
    plan.settings.limits.batch_delete_count_max = 10;
    let server = plan.start().await;
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
    server.broker.create_queue("off", disabled).await.unwrap();
    let long =
        format!("POST /q/messages\nBrokerProperties: {{\"MessageId\":\"{}\"}}", "x".repeat(129));
    for (head, body, status, code) in [
        ("POST /q/messages\nBrokerProperties: {\"MessageId\":7}", "", 400, "ArgumentError"),
        ("POST /q/messages\nBrokerProperties: nonsense", "", 400, "ArgumentError"),
        (&long, "", 400, "ArgumentOutOfRange"),
        ("POST /q/$deadletterqueue/messages", "x", 400, "InvalidOperation"),
        ("DELETE /$api/v1/queues/q%2F$deadletterqueue", "", 400, "InvalidOperation"),
        ("PUT /$api/v1/queues/s", "{\"forwardTo\":\"absent\"}", 404, "EntityNotFound"),
        ("POST /absent/messages", "x", 410, "EntityNotFound"),
        ("POST /absent/messages/head", "", 410, "EntityNotFound"),
        ("GET /$api/v1/queues/absent", "", 404, "EntityNotFound"),
        ("PUT /$api/v1/queues/Q", "{}", 409, "EntityAlreadyExists"),
        ("PUT /$api/v1/queues/a%23b", "{}", 400, "ArgumentError"),
        ("POST /off/messages", "x", 400, "EntityDisabled"),
        ("POST /off/messages/head", "", 400, "EntityDisabled"),
        ("DELETE /q/messages/1/00000000-0000-0001-0000-000000000001", "", 404, "MessageLockLost"),
        (
            "POST /$api/v1/queues/q/messages/receive-deferred",
            "{\"sequenceNumbers\":[1]}",
            404,
            "MessageNotFound",
        ),
        (
            "PATCH /$api/v1/queues/q\nIf-Match: \"2020-01-01T00:00:00Z\"",
            "{\"maxDeliveryCount\":3}",
            409,
            "UpdateConflict",
        ),
        (
            "POST /$api/v1/queues/q/messages/delete-batch",
            "{\"maxCount\":11}",
            400,
            "ArgumentOutOfRange",
        ),
        ("POST /%ff/messages", "", 400, "ArgumentError"),
        ("GET /$api/nothing/here", "", 404, "EntityNotFound"),
        ("GET /metrics", "", 404, "EntityNotFound"),
        ("GET /q/messages", "", 405, "InvalidOperation"),
        ("PATCH /livez", "", 405, "InvalidOperation"),
        ("BREW /q/messages", "", 405, "InvalidOperation"),
        ("PUT /$api/v1/queues/n", "{\"lockDuration\":5}", 400, "ArgumentError"),
        ("PUT /$api/v1/queues/n", "{\"lockDuration\":\"1s\"}", 400, "ArgumentError"),
        ("PUT /$api/v1/queues/n", "{\"lockduration\":\"PT1M\"}", 400, "ArgumentError"),
        ("PUT /$api/v1/queues/n", "{", 400, "ArgumentError"),
        ("PUT /$api/v1/queues/n\nContent-Type: text/plain", "{}", 415, "ArgumentError"),
        ("POST /q/messages\nContent-Encoding: gzip", "x", 415, "ArgumentError"),
    ] {
        check(&server, head, body, status, code).await;
    }
    let answer = server.ask("GET /q/messages", "").await;
    assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
    server.stop().await;
}

/// ERR-01: QuotaExceeded for a receive beyond the maximum (RCV-22).
#[tokio::test]
async fn a_receive_too_many_is_a_quota_exceeded() {
    let mut plan = Plan::new();
    plan.settings.limits.receiver_count_max = 1;
    let server = plan.start().await;
    let mut waiting = server.connect().await;
    waiting.write(&server.request("POST /q/messages/head", "")).await;
    super::lifecycle::until_refused(&server).await;
    check(&server, "POST /q/messages/head?timeout=0", "", 403, "QuotaExceeded").await;
    server.stop().await;
}

/// ERR-01, QUO-01: a message at the size limit of HTTP is accepted and a larger one refused,
/// however it is framed.
#[tokio::test]
async fn a_body_above_its_limit_is_a_message_size_exceeded() {
    let server = Server::start().await;
    let most = usize::try_from(Limits::default().message_bytes_http_max).unwrap();
    // Encoding around the body: message id, section, length.
    let around = 100;
    assert_eq!(server.ask("POST /q/messages", vec![b'x'; most - around]).await.status, 201);
    check(&server, "POST /q/messages", &"x".repeat(most), 403, "MessageSizeExceeded").await;

    // A body that is announced as too large is refused before it is read.
    let mut client = server.connect().await;
    let head = format!("POST /q/messages\nContent-Length: {}", u64::MAX);
    client.write(&server.request(&head, "")).await;
    let answer = client.read().await.unwrap();
    assert_eq!(answer.error(), (403, "MessageSizeExceeded".to_owned()));

    // A body of unknown length is refused when it has become too long.
    let client = server.connect().await;
    let (reader, mut writer) = client.stream.into_split();
    let head = server.request("POST /q/messages\nTransfer-Encoding: chunked", "");
    let writing = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let mut chunk = b"10000\r\n".to_vec();
        chunk.extend(vec![b'x'; 0x10000]);
        chunk.extend(b"\r\n");
        writer.write_all(&head).await.unwrap();
        // Until the server closes.
        while writer.write_all(&chunk).await.is_ok() {}
    });
    let mut start = Vec::new();
    use tokio::io::AsyncReadExt;
    let mut reader = reader;
    drop(reader.read_to_end(&mut start).await);
    assert!(start.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&start));
    drop(reader);
    writing.await.unwrap();

    // Bodies that are not read as messages are refused too.
    let head = "POST /q/messages/head?timeout=0";
    check(&server, head, &"x".repeat(70_000), 403, "MessageSizeExceeded").await;
    let head = "POST /$api/v1/queues/q/messages/batch";
    check(&server, head, &" ".repeat(3 << 20), 403, "MessageSizeExceeded").await;
    let batch = "POST /q/messages\nContent-Type: application/vnd.microsoft.servicebus.json";
    check(&server, batch, &" ".repeat(3 << 20), 403, "MessageSizeExceeded").await;
    // A batch of more messages than memory should hold.
    let many = format!("[{}{{}}]", "{},".repeat(5_000));
    check(&server, batch, &many, 400, "ArgumentError").await;
    server.stop().await;
}

/// ERR-01, ERR-09: a slow request that holds memory gets ServerBusy when another request needs the
/// memory, before any operation ran.
#[tokio::test]
async fn a_request_without_room_is_refused_as_retryable() {
    let mut plan = Plan::new();
    plan.config.inbound_bytes_max = 64 << 10;
    let server = plan.start().await;
    let text = "x".repeat(60_000);
    let mut slow = server.connect().await;
    slow.write(&server.request("POST /q/messages\nContent-Length: 60001", "")).await;
    slow.write(text.as_bytes()).await;
    server.in_progress(2).await;
    assert_eq!(server.ask("POST /q/messages", &text).await.status, 201);
    let answer = slow.read().await.unwrap();
    assert_eq!(answer.error(), (503, "ServerBusy".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(answer.json()["retryable"], true);
    assert_eq!(server.broker.describe_queue("q").await.unwrap().counts.active, 1);
    server.stop().await;
}

/// ERR-01: ServiceTimeout, for a body that does not arrive.
#[tokio::test]
async fn a_client_that_is_too_slow_is_given_up() {
    let mut plan = Plan::new();
    plan.config.body_timeout = Duration::from_millis(50);
    plan.config.head_timeout = Duration::from_millis(50);
    let server = plan.start().await;
    let mut slow = server.connect().await;
    slow.write(&server.request("POST /q/messages\nContent-Length: 10", "")).await;
    slow.write(b"012").await;
    let answer = slow.read().await.unwrap();
    assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()));
    assert_eq!(slow.read_to_end().await, b"");
    let mut slow = server.connect().await;
    slow.write(b"POST /q/mess").await;
    let answer = slow.read().await.unwrap();
    assert_eq!(answer.error(), (408, "ServiceTimeout".to_owned()));
    assert_eq!(slow.read_to_end().await, b"");
    server.stop().await;
}

/// HEAD and OPTIONS are answered without a body and without CORS headers.
#[tokio::test]
async fn head_and_options_are_sane() {
    let server = Server::start().await;
    for path in ["/livez", "/readyz", "/health", "/$api/v1/openapi.json", "/$api/v1/queues/q"] {
        let answer = server.ask(&format!("HEAD {path}"), "").await;
        assert_eq!(answer.status, 200, "{path}");
        let mut client = server.connect().await;
        client.write(&server.request(&format!("HEAD {path}\nConnection: close"), "")).await;
        client.read_head().await.unwrap();
        assert_eq!(client.read_to_end().await, b"");
    }
    assert_eq!(server.ask("HEAD /q/messages/head", "").await.status, 405);
    let answer = server.ask("OPTIONS /q/messages/head", "").await;
    assert_eq!((answer.status, answer.header("allow")), (204, Some("POST, DELETE, OPTIONS")));
    assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
    assert_eq!(server.ask("OPTIONS *", "").await.status, 404);
    server.stop().await;
}
