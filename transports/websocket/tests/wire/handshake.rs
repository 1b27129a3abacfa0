//! Which clients may connect, and how a connection begins.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::SinkExt;
use peeklock_core::contract::{Authorizer, Epoch, Grant, Principal, Right, Rights};
use peeklock_core::error::Rejection;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::client::{Client, closed, upgrade, upgrade_json};
use super::server::{Plan, Server, run};

const JSON: (&str, &str) = ("sec-websocket-protocol", "peeklock.v1.json");

fn refusal(result: Result<super::client::Socket, Error>) -> (u16, String) {
    match result {
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            (response.status().as_u16(), String::from_utf8(body).unwrap())
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was let in"),
    }
}

/// Asserts the form of a refusal (ERR-02) and returns its condition.
fn condition(status: u16, text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).expect("a problem");
    assert_eq!(problem["status"], status, "{text}");
    assert!(problem["retryable"].is_boolean() && problem["title"].is_string(), "{text}");
    let (code, id) = (problem["code"].as_str().unwrap(), problem["trackingId"].as_str().unwrap());
    assert_eq!(problem["type"], format!("urn:peeklock:condition:{code}"));
    assert!(problem["message"].as_str().unwrap().contains(&format!("TrackingId:{id}, Entity:")));
    code.to_owned()
}

/// ERR-02: a request that is not an upgrade gets an HTTP problem with a remedy, which the client
/// can read.
#[test]
fn a_request_without_upgrade_gets_a_problem() {
    run(async {
        let server = Server::start().await;
        let upgrade = "Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let headers = "a: b\r\n".repeat(1_000);
        for (request, status, says) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 426, "5300"),
            (format!("POST / HTTP/1.1\r\n{upgrade}Content-Length: 9\r\n\r\n"), 426, "5300"),
            (format!("GET / HTTP/1.1\r\n{upgrade}Sec-WebSocket-Version: 8\r\n\r\n"), 426, "13"),
            (format!("GET / HTTP/1.0\r\n{upgrade}Sec-WebSocket-Version: 13\r\n\r\n"), 426, "13"),
            ("nonsense\r\n\r\n".to_owned(), 400, "not an HTTP request"),
            ("\u{16}\u{3}\u{1}\r\n\r\n".to_owned(), 400, "not an HTTP request"),
            (format!("GET / HTTP/1.1\r\n{headers}\r\n"), 431, "5300"),
        ] {
            let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
            assert!(head.contains("Content-Type: application/problem+json\r\n"), "{head}");
            assert!(head.contains("Connection: close"), "{head}");
            assert_eq!(head.contains("Upgrade: websocket"), status == 426, "{head}");
            let code = if status == 431 { "ArgumentOutOfRange" } else { "ArgumentError" };
            assert_eq!(condition(status, body), code);
            assert!(body.contains(says), "{body}");
        }
        server.client().await.close(Some(1_000)).await;
        server.stop().await;
    });
}

/// SEC-23: a foreign Host is refused with 421 while anonymous access is on; the text names the
/// setting.
#[test]
fn a_foreign_host_is_refused_while_anonymous_access_is_on() {
    run(async {
        let mut plan = Plan::new();
        plan.config.allowed_hosts = vec!["bus.example".to_owned()];
        let server = plan.start().await;
        let with = |host| [JSON, ("host", host)];
        let (status, text) = refusal(upgrade(server.address, "/", &with("evil.example")).await);
        assert_eq!(status, 421);
        assert!(text.contains("websocket.allowed_hosts"), "{text}");
        assert_eq!(condition(status, &text), "Unauthorized");
        for host in ["localhost:1", "127.0.0.1", "[::1]:5301", "BUS.example:5301"] {
            upgrade(server.address, "/", &with(host)).await.unwrap();
        }
        server.stop().await;
    });
}

/// SEC-23: a foreign Origin is refused with 403, also for clients with a token.
#[test]
fn a_foreign_origin_is_refused() {
    run(async {
        let mut plan = Plan::new();
        plan.config.allowed_origins = vec!["https://console.example".to_owned()];
        plan.authorizer = Arc::new(Tokens);
        let server = plan.start().await;
        let own = format!("http://{}", server.address);
        for (origin, is_welcome) in [
            ("http://evil.example", false),
            ("null", false),
            ("https://console.example", true),
            (own.as_str(), true),
        ] {
            let upgraded = upgrade(server.address, "/", &[JSON, ("origin", origin)]).await;
            if is_welcome {
                upgraded.unwrap();
                continue;
            }
            let (status, text) = refusal(upgraded);
            assert_eq!(status, 403, "{origin}");
            assert!(text.contains("websocket.allowed_origins"), "{text}");
            assert_eq!(condition(status, &text), "Unauthorized");
        }
        server.stop().await;
    });
}

#[test]
fn a_subprotocol_is_agreed_upon_and_the_url_has_no_token() {
    run(async {
        let server = Server::start().await;
        let (status, text) = refusal(upgrade(server.address, "/", &[]).await);
        assert_eq!(status, 400);
        assert!(text.contains("peeklock.v1.json"), "{text}");
        assert_eq!(condition(status, &text), "ArgumentError");
        let name = "sec-websocket-protocol";
        let old = upgrade(server.address, "/", &[(name, "mqtt, peeklock.v9.json")]).await;
        assert_eq!(refusal(old).0, 400);
        upgrade(server.address, "/", &[(name, "mqtt, peeklock.v1.binary")]).await.unwrap();
        let (status, text) = refusal(upgrade(server.address, "/?token=secret", &[JSON]).await);
        assert_eq!(status, 400);
        assert!(text.contains("must not have a token"), "{text}");
        let (status, text) = refusal(upgrade(server.address, "/elsewhere", &[JSON]).await);
        assert_eq!((status, &*condition(status, &text)), (404, "EntityNotFound"));
        server.stop().await;
    });
}

#[test]
fn the_first_frame_is_one_hello_and_comes_in_time() {
    run(async {
        let mut plan = Plan::new();
        plan.config.handshake_timeout = Duration::from_millis(200);
        let server = plan.start().await;
        for (frame, code) in [
            (r#"{"requests":[{"id":1,"heartbeat":{}}]}"#, 4_002),
            (r#"{"requests":[]}"#, 4_002),
            (r#"{"requests":[{"id":1,"hello":{}},{"id":2,"heartbeat":{}}]}"#, 4_002),
            (r#"{"requests":[{"id":1,"hello":{"colour":"red"}}]}"#, 1_002),
            ("hello", 1_002),
        ] {
            let mut socket = upgrade_json(server.address).await;
            socket.send(Message::text(frame)).await.unwrap();
            let (found, reason) = closed(&mut socket).await.unwrap();
            assert_eq!(found, code, "{frame}");
            if frame == "hello" {
                let said = "the frame is not the expected JSON: expected value at line 1";
                assert!(reason.starts_with(said), "{reason}");
            }
        }
        let mut socket = upgrade_json(server.address).await;
        socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
        assert_eq!(closed(&mut socket).await.unwrap().0, 1_003);
        let mut silent = upgrade_json(server.address).await;
        assert_eq!(closed(&mut silent).await.unwrap().0, 4_002);
        server.stop().await;
    });
}

/// ERR-02: a client that sends half of an upgrade gets a problem when its time is over; one that
/// sends nothing gets none.
#[test]
fn half_an_upgrade_gets_a_problem() {
    run(async {
        let mut plan = Plan::new();
        plan.config.handshake_timeout = Duration::from_millis(200);
        let server = plan.start().await;
        for half in ["GET / HTTP/1.1\r\nHost: localhost\r\n", "GET / HTT", ""] {
            let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
            stream.write_all(half.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            if half.is_empty() {
                assert_eq!(answer, "");
                continue;
            }
            let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
            assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
            assert_eq!(condition(408, body), "ServiceTimeout");
            assert!(body.contains("5300"), "{body}");
        }
        server.stop().await;
    });
}

#[test]
fn welcome_has_heartbeat_and_limits() {
    run(async {
        let server = Server::start().await;
        let client = Client::hello(server.address, json!({ "heartbeatSeconds": 7 })).await;
        let welcome = &client.welcome;
        assert_eq!(welcome["heartbeatSeconds"], 7);
        assert_eq!(welcome["resumed"], false);
        assert_eq!(welcome["frameBytesMax"], 4 << 20);
        assert_eq!(welcome["commandCountMax"], 4_096);
        assert_eq!(welcome["nowUtc"], "2026-05-01T12:00:00Z");
        // No conversation is kept for a client that does not ask for it.
        assert_eq!(welcome["graceSeconds"], 0);
        assert!(welcome.get("resumeToken").is_none());
        server.stop().await;
    });
}

/// Grants the rights on entities that the token lists, such as `Manage:q`; everything to `all`.
struct Tokens;

#[async_trait]
impl Authorizer for Tokens {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        let token = principal.token.as_deref().unwrap_or_default();
        if token == "all" {
            return Ok(Grant::everything());
        }
        let is_granted = |right: &Right| {
            let one = format!("{}:{resource}", right.name());
            token.split(' ').any(|granted| granted == one)
        };
        Ok(Grant::of(Right::ALL.into_iter().filter(is_granted).collect::<Rights>()))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-05, SEC-08, SEC-22: rights are checked for each operation, and a refusal does not reveal
/// whether the queue exists.
#[test]
fn rights_are_asked_at_every_operation() {
    run(async {
        let mut plan = Plan::new();
        plan.authorizer = Arc::new(Tokens);
        let server = plan.start().await;
        let mut bare = upgrade_json(server.address).await;
        let hello = r#"{"requests":[{"id":1,"hello":{}}]}"#;
        bare.send(Message::text(hello)).await.unwrap();
        assert_eq!(closed(&mut bare).await.unwrap().0, 4_001);

        let mut client = Client::hello(server.address, json!({ "token": "Send:q" })).await;
        let sender = |path| json!({ "link": 1, "path": path, "role": "sender" });
        for path in ["other", "q/$deadletterqueue"] {
            let refused = client.ask("attach", sender(path)).await;
            assert_eq!(refused["error"]["condition"], "Unauthorized", "{refused}");
        }
        assert_eq!(client.ask("attach", sender("Q")).await["error"]["condition"], "Unauthorized");
        assert!(client.ask("attach", sender("q")).await.get("done").is_some());
        let message = json!({ "link": 1, "messages": [{ "body": "a" }] });
        assert!(client.ask("send", message.clone()).await.get("accepted").is_some());
        let listen = json!({ "link": 2, "path": "q", "role": "receiver" });
        assert_eq!(client.ask("attach", listen).await["error"]["condition"], "Unauthorized");
        let get = client.ask("getQueue", json!({ "path": "q" })).await;
        assert_eq!(get["error"]["condition"], "Unauthorized");
        let list = client.ask("listQueues", json!({})).await;
        assert_eq!(list["error"]["condition"], "Unauthorized");
        // Naming a destination requires Manage on it too (FWD-05).
        client.ask("authenticate", json!({ "token": "Manage:a" })).await;
        let forwards = json!({ "path": "a", "properties": { "forwardTo": "q" } });
        let refused = client.ask("createQueue", forwards.clone()).await;
        assert_eq!(refused["error"]["condition"], "Unauthorized", "{refused}");
        assert!(client.ask("createQueue", json!({ "path": "a" })).await.get("queue").is_some());
        let refused = client.ask("updateQueue", forwards.clone()).await;
        assert_eq!(refused["error"]["condition"], "Unauthorized", "{refused}");
        client.ask("authenticate", json!({ "token": "Manage:a Manage:q" })).await;
        assert!(client.ask("updateQueue", forwards).await.get("queue").is_some());
        // A new token replaces the old one, also on links.
        client.ask("authenticate", json!({ "token": "none" })).await;
        let refused = client.ask("send", message).await;
        let failed = &refused["accepted"]["failed"][0];
        assert_eq!(failed["error"]["condition"], "Unauthorized", "{refused}");
        assert!(!refused.to_string().contains("none"), "{refused}");
        server.stop().await;
    });
}

/// Grants everything to its token, in an epoch that the test may raise, and until an instant.
struct ForATime {
    epoch: Epoch,
    until: Timestamp,
}

#[async_trait]
impl Authorizer for ForATime {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        assert!(principal.peer.is_some_and(|peer| peer.ip().is_loopback()));
        match principal.token.as_deref() {
            Some("short") => Ok(Grant::everything().with_end(self.until)),
            Some("keyed") => Ok(Grant::everything().with_epoch(self.epoch.mark())),
            _ => Err(Rejection::unauthorized("this token is worth nothing")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-15, SEC-09: a link is closed with `Unauthorized` when its token expires or its grant is
/// withdrawn; a waiting request fails with the same error. With a new token the same link works
/// again.
#[test]
fn grants_end_in_time() {
    run(async {
        let until = Timestamp::parse("2026-05-01T12:00:30Z").unwrap();
        let authorizer = Arc::new(ForATime { epoch: Epoch::new(), until });
        let mut plan = Plan::new();
        plan.authorizer = Arc::clone(&authorizer) as Arc<dyn Authorizer>;
        let server = plan.start().await;
        let mut client = Client::hello(server.address, json!({ "token": "short" })).await;
        let attach = json!({ "link": 1, "path": "q", "role": "receiver", "credit": 8 });
        assert!(client.ask("attach", attach).await.get("done").is_some());
        let plain = json!({ "link": 2, "path": "q", "role": "receiver" });
        assert!(client.ask("attach", plain).await.get("done").is_some());
        server.clock.advance(TimeSpan::from_seconds(30));
        let mut told = Vec::new();
        for _ in 0..2 {
            let closed = client.pushed("detached").await;
            assert_eq!(closed["error"]["condition"], "Unauthorized", "{closed}");
            told.push(closed["link"].as_u64().unwrap());
        }
        told.sort_unstable();
        assert_eq!(told, [1, 2], "with credit and without");
        server.put(&["a"]).await;
        let peek = json!({ "link": 2, "from": 0, "maxCount": 1 });
        let refused = client.ask("peek", peek.clone()).await;
        assert_eq!(refused["error"]["condition"], "Unauthorized", "{refused}");

        client.ask("authenticate", json!({ "token": "keyed" })).await;
        assert!(client.ask("peek", peek.clone()).await.get("received").is_some());
        client.ask("credit", json!({ "link": 1, "upTo": 8 })).await;
        assert_eq!(client.deliveries(1).await.len(), 1);
        authorizer.epoch.raise();
        let refused = client.ask("peek", peek).await;
        assert_eq!(refused["error"]["condition"], "Unauthorized", "{refused}");
        server.stop().await;
    });
}
