//! Tests of every header and byte of a request.

use bytes::Bytes;
use peeklock_core::contract::Verdict;
use peeklock_core::message::Message;
use peeklock_forward_webhook::Secret;

use crate::server::*;

fn destination(server: &Server, rest: &str) -> String {
    format!("webhook+http://127.0.0.1:{}{rest}", server.port)
}

#[test]
fn binary_mode_has_headers_and_the_unchanged_body() {
    run(async {
        let mut server = serve(vec![Act::Answer(OK.to_owned())]).await;
        let every_byte: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let message = Message::new(every_byte.clone())
            .with_message_id("order-1")
            .with_subject("tea")
            .with_content_type("application/octet-stream")
            .with_application_property("priority", 7i32);
        let destination = destination(&server, "/in?key=%41&mode=binary&b");
        let verdicts = route(config(), &destination).forward(&[outgoing(42, &message)]).await;
        assert_eq!(verdicts, [Verdict::Delivered]);
        let got = server.got.recv().await.unwrap();
        assert_eq!(got.head.split("\r\n").next(), Some("POST /in?key=%41&b HTTP/1.1"));
        assert_eq!(
            got.headers(),
            [
                "ce-deliverycount: 0",
                "ce-hopcount: 1",
                "ce-id: order-1",
                "ce-priority: 7",
                "ce-sequencenumber: 42",
                "ce-source: peeklock://00000000-0000-0000-0000-0000000000ab/orders",
                "ce-specversion: 1.0",
                "ce-subject: tea",
                "ce-time: 2026-05-01T11:59:59Z",
                "ce-type: io.github.peeklock.message",
                "content-length: 100000",
                "content-type: application/octet-stream",
                &format!("host: 127.0.0.1:{}", server.port),
                concat!("user-agent: peeklock/", env!("CARGO_PKG_VERSION")),
                "webhook-id: msg_000000000000000000000000000000ab_12_42",
                "webhook-timestamp: 1777636800",
            ]
        );
        assert!(got.body == every_byte);
    });
}

#[test]
fn structured_mode_is_one_json_object() {
    run(async {
        let mut server = serve(vec![Act::Answer(OK.to_owned())]).await;
        let message = Message::new("{\"n\": 1.50}")
            .with_message_id("order-1")
            .with_content_type("application/json");
        let destination = destination(&server, "?mode=structured&type=com.example.order");
        let verdicts = route(config(), &destination).forward(&[outgoing(42, &message)]).await;
        assert_eq!(verdicts, [Verdict::Delivered]);
        let got = server.got.recv().await.unwrap();
        let body = "{\"datacontenttype\":\"application/json\",\"deliverycount\":0,\"hopcount\":1,\
                    \"id\":\"order-1\",\"sequencenumber\":\"42\",\
                    \"source\":\"peeklock://00000000-0000-0000-0000-0000000000ab/orders\",\
                    \"specversion\":\"1.0\",\"time\":\"2026-05-01T11:59:59Z\",\
                    \"type\":\"com.example.order\",\"data\":{\"n\": 1.50}}";
        assert_eq!(String::from_utf8(got.body.clone()).unwrap(), body);
        assert_eq!(
            got.headers(),
            [
                &format!("content-length: {}", body.len()),
                "content-type: application/cloudevents+json; charset=utf-8",
                &format!("host: 127.0.0.1:{}", server.port),
                concat!("user-agent: peeklock/", env!("CARGO_PKG_VERSION")),
                "webhook-id: msg_000000000000000000000000000000ab_12_42",
                "webhook-timestamp: 1777636800",
            ]
        );
    });
}

#[test]
fn a_secret_signs_requests_to_its_host() {
    run(async {
        let file = std::env::temp_dir().join(format!("peeklock-webhook-{}", std::process::id()));
        std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let secret = Secret::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut server = serve(vec![Act::Answer(OK.to_owned())]).await;
        let mut with_secret = config();
        with_secret.secrets = vec![
            ("other.example.com".parse().unwrap(), secret.clone()),
            ("127.0.0.1".parse().unwrap(), secret.clone()),
        ];
        let message = Message::new(Bytes::from_static(b"\x00\xff body")).with_message_id("1");
        let verdicts =
            route(with_secret, &destination(&server, "")).forward(&[outgoing(7, &message)]).await;
        assert_eq!(verdicts, [Verdict::Delivered]);
        let got = server.got.recv().await.unwrap();
        // HMAC-SHA256 over `id.timestamp.body`, computed with another program.
        assert_eq!(
            got.header("webhook-signature"),
            Some("v1,rVbF4xzjBfknW0n/ySngROB1g1l7nB11BB1ON32LQmU=")
        );
        assert_eq!(got.header("webhook-id"), Some("msg_000000000000000000000000000000ab_12_7"));
        let mut elsewhere = config();
        elsewhere.secrets = vec![("other.example.com".parse().unwrap(), secret)];
        route(elsewhere, &destination(&server, "")).forward(&[outgoing(7, &message)]).await;
        assert_eq!(server.got.recv().await.unwrap().header("webhook-signature"), None);
    });
}

/// FWD-10: messages are posted in order, one at a time, over one connection.
#[test]
fn messages_go_one_after_the_other_over_one_connection() {
    run(async {
        let answer =
            "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let mut server = serve(vec![Act::Answer(answer.to_owned())]).await;
        let mut route = route(config(), &destination(&server, "/"));
        for _ in 0..2 {
            assert_eq!(route.forward(&messages(5)).await, vec![Verdict::Delivered; 5]);
            for number in 1..=5 {
                let got = server.got.recv().await.unwrap();
                assert_eq!(got.body, number.to_string().as_bytes());
                assert_eq!(got.connection, 0);
            }
        }
        assert!(server.got.try_recv().is_err());
    });
}

#[test]
fn a_message_with_the_largest_header_arrives_whole() {
    run(async {
        let mut server = serve(vec![Act::Answer(OK.to_owned())]).await;
        // Each byte needs three after encoding.
        let message = Message::new("a").with_message_id("1").with_subject("\u{fc}".repeat(30_000));
        let mut route = route(config(), &destination(&server, "/"));
        assert_eq!(route.forward(&[outgoing(1, &message)]).await, [Verdict::Delivered]);
        let got = server.got.recv().await.unwrap();
        assert_eq!(got.header("ce-subject"), Some("%C3%BC".repeat(30_000).as_str()));
    });
}
