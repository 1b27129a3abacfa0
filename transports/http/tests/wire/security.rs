//! Which clients are admitted, and that refusals reveal nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use peeklock_core::Broker;
use peeklock_core::contract::{
    Action, Authorizer, Ceiling, Grant, Principal, Right, Rights, Transport,
};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::management::{Management, Page};
use peeklock_core::time::TimeSpan;
use peeklock_http::{HttpConfig, HttpTransport};

use super::expected;
use super::server::{Plan, Server};

/// Grants the rights that a token lists, and records the resources that it was asked about.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Authorizer for Keys {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        self.asked.lock().unwrap().push(resource.to_owned());
        let Some(token) = &principal.token else {
            return Err(Rejection::unauthorized("no token was presented"));
        };
        let refused = format!("not {resource}");
        if token.split(',').any(|name| name == refused) {
            return Ok(Grant::nothing());
        }
        let is_named = |right: &Right| token.split(',').any(|name| name == right.name());
        Ok(Grant::of(Right::ALL.into_iter().filter(is_named).collect::<Rights>()))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

pub(super) async fn guarded() -> (Server, Arc<Keys>) {
    let keys = Arc::new(Keys::default());
    let mut plan = Plan::new();
    plan.authorizer = Arc::clone(&keys) as Arc<dyn Authorizer>;
    plan.config.metrics = Some(Arc::new(|| "the page".to_owned()));
    (plan.start().await, keys)
}

/// Each operation with its action; `{}` stands for the entity.
pub(super) const OPERATIONS: [(&str, Action); 44] = [
    ("POST /{}/messages", Action::Send),
    ("POST /{}/messages/head?timeout=0", Action::Receive),
    ("DELETE /{}/messages/head?timeout=0", Action::Receive),
    ("DELETE /{}/messages/1/00000000-0000-0001-0000-000000000001", Action::Settle),
    ("PUT /{}/messages/1/00000000-0000-0001-0000-000000000001", Action::Settle),
    ("POST /{}/messages/1/00000000-0000-0001-0000-000000000001", Action::RenewLock),
    ("PUT /$api/v1/queues/{}", Action::Create),
    ("GET /$api/v1/queues/{}", Action::Overview),
    ("PATCH /$api/v1/queues/{}", Action::Update),
    ("DELETE /$api/v1/queues/{}", Action::Delete),
    ("POST /$api/v1/queues/{}/messages", Action::Send),
    ("POST /$api/v1/queues/{}/messages/batch", Action::Send),
    ("POST /$api/v1/queues/{}/messages/schedule", Action::Send),
    ("POST /$api/v1/queues/{}/messages/cancel-scheduled", Action::CancelScheduled),
    ("POST /$api/v1/queues/{}/messages/receive", Action::Receive),
    ("POST /$api/v1/queues/{}/messages/receive-deferred", Action::ReceiveDeferred),
    ("GET /$api/v1/queues/{}/messages", Action::Peek),
    ("GET /$api/v1/queues/{}/sessions", Action::ListSessions),
    ("GET /$api/v1/queues/{}/heads", Action::Inspect),
    ("GET /$api/v1/queues/{}/messages/1/head", Action::Inspect),
    ("GET /$api/v1/queues/{}/messages/1/body", Action::Inspect),
    ("GET /$api/v1/queues/{}/messages/1/journey", Action::Inspect),
    ("GET /$api/v1/queues/{}/locks", Action::Inspect),
    ("GET /$api/v1/queues/{}/timeline", Action::Inspect),
    ("GET /$api/v1/queues/{}/series", Action::Inspect),
    ("GET /$api/v1/queues/{}/sessions/details", Action::Inspect),
    ("GET /$api/v1/queues/{}/sessions/s/state", Action::Inspect),
    ("POST /$api/v1/queues/{}/messages/delete-batch", Action::DeleteBatch),
    ("POST /$api/v1/queues/{}/messages/purge", Action::DeleteBatch),
    ("DELETE /$api/v1/queues/{}/messages/1", Action::DeleteDeferred),
    ("POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/complete", Action::Settle),
    ("POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/abandon", Action::Settle),
    ("POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/defer", Action::Settle),
    (
        "POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/dead-letter",
        Action::Settle,
    ),
    ("POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/release", Action::Settle),
    ("POST /$api/v1/queues/{}/locks/00000000-0000-0001-0000-000000000001/renew", Action::RenewLock),
    ("GET /$api/v1/queues", Action::Overview),
    ("GET /$api/v1/queues/{}/policies", Action::ReadPolicies),
    ("GET /$api/v1/queues/{}/policies/p", Action::ReadPolicies),
    ("PUT /$api/v1/queues/{}/policies/p", Action::ChangePolicies),
    ("PATCH /$api/v1/queues/{}/policies/p", Action::ChangePolicies),
    ("POST /$api/v1/queues/{}/policies/p/regenerate", Action::ChangePolicies),
    ("POST /$api/v1/queues/{}/policies/p/keys", Action::ReadKeys),
    ("DELETE /$api/v1/queues/{}/policies/p", Action::ChangePolicies),
];

/// Returns each set of rights, and whether the specification allows the action with it.
pub(super) fn matrix(action: Action) -> Vec<(String, bool)> {
    let sets = (0..8u8).map(|bits| {
        let rights = Right::ALL.into_iter().enumerate();
        let rights = rights.filter(|(place, _)| bits & (1 << place) != 0).map(|(_, right)| right);
        rights.collect::<Vec<Right>>()
    });
    sets.map(|rights| {
        let names: Vec<&str> = rights.iter().map(|right| right.name()).collect();
        let held = rights.into_iter().collect::<Rights>();
        (names.join(","), expected::allows(action, held, Ceiling::Admin))
    })
    .collect()
}

/// SEC-05, SEC-08, SEC-22, CNT-12, CON-73: an operation is allowed by exactly the rights in the
/// table. Without them the refusal is the same whether the entity exists or not, and it contains no
/// token.
#[tokio::test]
async fn a_refusal_discloses_nothing() {
    let (server, keys) = guarded().await;
    for (operation, action) in OPERATIONS {
        for (rights, is_allowed) in matrix(action) {
            let mut details = Vec::new();
            for entity in ["other", "absent"] {
                let token = format!("{rights},secret-part");
                let head = format!("{}\nAuthorization: {token}", operation.replace("{}", entity));
                keys.asked.lock().unwrap().clear();
                let answer = server.ask(&head, "{}").await;
                assert!(!answer.text().contains("secret-part"));
                if is_allowed {
                    assert_ne!(answer.status, 401, "{head}");
                    continue;
                }
                assert_eq!(answer.error(), (401, "Unauthorized".to_owned()), "{head}");
                assert!(answer.header("www-authenticate").is_some());
                let detail = answer.json()["detail"].as_str().unwrap().to_owned();
                assert!(!detail.contains(entity), "{detail}");
                details.push(detail);
                if operation.contains("{}") {
                    assert_eq!(*keys.asked.lock().unwrap(), [entity.to_owned()], "{head}");
                }
            }
            assert!(details.windows(2).all(|two| two[0] == two[1]), "{details:?}");
        }
    }
    server.stop().await;
}

/// FWD-05, SEC-07: naming a destination also requires the Manage right on it; a patch without a
/// destination does not.
#[tokio::test]
async fn forwarding_needs_the_right_on_source_and_destination() {
    let (server, keys) = guarded().await;
    let ask = async |method: &str, path: &str, token: &str, body: &str| {
        let head = format!("{method} /$api/v1/{path}\nAuthorization: {token}");
        server.ask(&head, body).await.status
    };
    for made in ["queues/b", "topics/t"] {
        assert_eq!(ask("PUT", made, "Manage", "{}").await, 201);
    }
    let named = ["forwardTo", "forwardDeadLetteredMessagesTo"];
    let places = ["queues/a", "topics/t/subscriptions/s"];
    for (place, property) in places.into_iter().flat_map(|place| named.map(|name| (place, name))) {
        let body = format!("{{\"{property}\": \"b\"}}");
        assert_eq!(ask("PUT", place, "Manage,not b", &body).await, 401, "{place} {property}");
        assert_eq!(ask("PUT", place, "Manage", "{}").await, 201);
        assert_eq!(ask("PATCH", place, "Manage,not b", &body).await, 401, "{place} {property}");
        assert_eq!(ask("PATCH", place, "Manage", &body).await, 200);
        assert_eq!(ask("PATCH", place, "Manage,not b", "{}").await, 200);
        assert!(keys.asked.lock().unwrap().contains(&"b".to_owned()));
        assert_eq!(ask("DELETE", place, "Manage", "").await, 204);
    }
    server.stop().await;
}

/// SEC-08: the authorizer is asked about the same path that is looked up, in any spelling.
#[tokio::test]
async fn the_authorizer_sees_the_address_that_is_looked_up() {
    let (server, keys) = guarded().await;
    for (path, resource) in [
        ("/q%5Cx", "q/x"),
        ("/http:%2F%2Fhost%2Fq", "q"),
        ("/q/%24DEADLETTERQUEUE", "q/$deadletterqueue"),
        ("/%2Fq%2F", "q"),
    ] {
        keys.asked.lock().unwrap().clear();
        server.ask(&format!("POST {path}/messages/head"), "").await;
        assert_eq!(*keys.asked.lock().unwrap(), [resource.to_owned()], "{path}");
    }
    server.stop().await;
}

/// ADM-05: probes need no token. The metrics, which name entities, and the details of the health
/// do.
#[tokio::test]
async fn probes_are_open_and_metrics_are_not() {
    let (server, _) = guarded().await;
    for path in ["/livez", "/readyz", "/health"] {
        assert_eq!(server.ask(&format!("GET {path}"), "").await.status, 200);
    }
    let strangers = server.ask("GET /health", "").await;
    assert_eq!(strangers.json(), serde_json::json!({ "status": "ok" }));
    assert_eq!(
        server.ask("GET /health\nAuthorization: Send,Listen", "").await.json(),
        strangers.json()
    );
    let known = server.ask("GET /health\nAuthorization: Manage", "").await.json();
    assert_eq!((&known["entities"], &known["durable"]), (&1.into(), &false.into()), "{known}");
    assert_eq!(server.ask("GET /metrics", "").await.error().0, 401);
    let answer = server.ask("GET /metrics\nAuthorization: Manage", "").await;
    assert_eq!((answer.status, answer.text()), (200, "the page"));
    server.stop().await;
}

/// ADM-05: with `http.metrics_public` the metrics need no token either; the details of the health
/// still do.
#[tokio::test]
async fn metrics_are_open_where_they_are_public() {
    let mut plan = Plan::new();
    plan.authorizer = Arc::new(Keys::default());
    plan.config.metrics = Some(Arc::new(|| "the page".to_owned()));
    plan.config.metrics_public = true;
    let server = plan.start().await;
    let answer = server.ask("GET /metrics", "").await;
    assert_eq!((answer.status, answer.text()), (200, "the page"));
    let health = server.ask("GET /health", "").await;
    assert_eq!(health.json(), serde_json::json!({ "status": "ok" }));
    server.stop().await;
}

async fn raw(server: &Server, request: String) -> u16 {
    let mut client = server.connect().await;
    client.write(request.as_bytes()).await;
    client.read().await.unwrap().status
}

/// SEC-23: while anonymous access is on, a foreign `Host` is refused, and the error names the
/// setting.
#[tokio::test]
async fn a_foreign_host_is_refused() {
    let mut plan = Plan::new();
    plan.config.allowed_hosts = vec!["bus.example".to_owned()];
    let server = plan.start().await;
    for (host, status) in [
        ("127.0.0.1", 200),
        ("127.0.0.1:5380", 200),
        ("[::1]:5380", 200),
        ("localhost", 200),
        ("LocalHost:1", 200),
        ("bus.example:80", 200),
        ("evil.example", 421),
        ("bus.example.evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ] {
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(raw(&server, request).await, status, "{host}");
    }
    assert_eq!(raw(&server, "GET /health HTTP/1.0\r\n\r\n".to_owned()).await, 421);
    let absolute = "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned();
    assert_eq!(raw(&server, absolute).await, 421);
    let twice = "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".to_owned();
    assert!(matches!(raw(&server, twice).await, 400 | 421));
    let mut client = server.connect().await;
    client.write(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    let answer = client.read().await.unwrap();
    assert!(answer.text().contains("http.allowed_hosts"));
    answer.error();
    server.stop().await;

    // With authentication any name is accepted, since the token protects.
    let (server, _) = guarded().await;
    let request = "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned();
    assert_eq!(raw(&server, request).await, 200);
    server.stop().await;
}

/// Answers at once for one valid token, and never for any other.
#[derive(Default)]
struct Late {
    waiting: AtomicUsize,
}

#[async_trait]
impl Authorizer for Late {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        if principal.token.as_deref() == Some("good") {
            return Ok(Grant::everything());
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-26, DESIGN D6: while the refusal of any list is delayed, it holds neither memory for an
/// answer nor a turn, so a client with a valid token never waits for it.
#[tokio::test]
async fn a_refusal_that_waits_holds_nothing() {
    let late = Arc::new(Late::default());
    let mut plan = Plan::new();
    plan.authorizer = Arc::clone(&late) as Arc<dyn Authorizer>;
    // Memory for one answer.
    plan.config.outbound_bytes_max = 64 << 10;
    let server = plan.start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let lists = [
        ("GET /$api/v1/queues", ""),
        ("GET /$api/v1/topics", ""),
        ("GET /$api/v1/topics/t/subscriptions", ""),
        ("GET /$api/v1/topics/t/subscriptions/s/rules", ""),
        ("POST /$api/v1/topics/t/subscriptions/s/explain", r#"{"message": {"body": "a"}}"#),
        ("POST /$api/v1/topics/t/explain", r#"{"message": {"body": "a"}}"#),
        ("POST /$api/v1/declaration?dryRun=true", r#"{"queues": [{"path": "q"}]}"#),
        ("GET /$Resources/queues?api-version=2021-05", ""),
        ("GET /$Resources/topics?api-version=2021-05", ""),
        ("GET /t/subscriptions?api-version=2021-05", ""),
        ("GET /t/subscriptions/s/rules?api-version=2021-05", ""),
    ];
    let mut refused = Vec::new();
    for (head, body) in lists {
        let mut client = server.connect().await;
        client.write(&server.request(&format!("{head}\nAuthorization: wrong"), body)).await;
        refused.push(client);
    }
    while late.waiting.load(Ordering::Relaxed) < lists.len() {
        tokio::task::yield_now().await;
    }
    for (head, body) in lists {
        let answer = server.ask(&format!("{head}\nAuthorization: good"), body).await;
        assert_eq!(answer.status, 200, "{head}: {}", answer.text());
    }
    drop(refused);
    server.stop().await;
}

/// ERR-09, DESIGN D6: the number of lists and explanations built at once is limited, over all
/// connections; a request that waits too long fails.
#[tokio::test]
async fn lists_have_their_turns() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let access = server.broker.full_access();
    let queues = Management::Queues(Page { skip: 0, top: None });
    let mut turns = Vec::new();
    while let Some(turn) = access.turn_at("", queues.clone()).now_or_never() {
        turns.push(turn.unwrap());
    }
    assert_eq!(turns.len(), 8);
    for head in ["GET /$api/v1/queues", "GET /$api/v1/topics/t/subscriptions/s/rules"] {
        let asked = server.ask(head, "");
        let mut asked = std::pin::pin!(asked);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asked => break answer,
                () = tokio::task::yield_now() => server.clock.advance(TimeSpan::from_seconds(1)),
            }
        };
        assert_eq!(answer.error(), (503, "ServerBusy".to_owned()), "{}", answer.text());
        assert!(answer.text().contains("lists (at most 8"), "{}", answer.text());
    }
    turns.pop();
    assert_eq!(server.ask("GET /$api/v1/queues", "").await.status, 200);
    server.stop().await;
}

/// SEC-23: a foreign `Origin` is always refused, and the error names the setting; no CORS header is
/// sent.
#[tokio::test]
async fn a_foreign_origin_is_refused() {
    let mut plan = Plan::new();
    plan.config.allowed_origins = vec!["https://console.example".to_owned()];
    let server = plan.start().await;
    let own = format!("http://{}", server.address);
    for (origin, status) in [
        (own.as_str(), 200),
        ("https://console.example", 200),
        ("https://console.example:444", 403),
        ("http://console.example", 403),
        ("http://evil.example", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("", 403),
    ] {
        let answer = server.ask(&format!("GET /health\nOrigin: {origin}"), "").await;
        assert_eq!(answer.status, status, "{origin}");
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
    }
    let answer = server.ask("OPTIONS /q/messages\nOrigin: http://evil.example", "").await;
    assert!(answer.text().contains("http.allowed_origins"));
    assert_eq!(answer.error().0, 403);
    server.stop().await;
    let (server, _) = guarded().await;
    assert_eq!(server.ask("GET /health\nOrigin: http://evil.example", "").await.status, 403);
    server.stop().await;
}

/// CON-70: a page of another site reaches no operation of the JSON API, and a page of this origin
/// writes only with its header and `application/json`. Programs that are no browser need neither.
#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let mut plan = Plan::new();
    plan.config.allowed_origins = vec!["https://console.example".to_owned()];
    let server = plan.start().await;
    let own = format!("Origin: http://{}", server.address);
    let json = "Content-Type: application/json";
    let page = "Peeklock-Page: 1";
    let read = "GET /$api/v1/queues";
    let write = "POST /$api/v1/queues/q/messages";
    for (status, head) in [
        (200, read.to_owned()),
        (200, format!("{read}\nSec-Fetch-Site: none")),
        (200, format!("{read}\nSec-Fetch-Site: same-origin")),
        (403, format!("{read}\nSec-Fetch-Site: same-site")),
        (403, format!("{read}\nSec-Fetch-Site: cross-site")),
        (403, format!("{read}\nSec-Fetch-Site: same-origin\nSec-Fetch-Site: cross-site")),
        (200, format!("{read}\nSec-Fetch-Site: cross-site\nOrigin: https://console.example")),
        (201, write.to_owned()),
        (201, format!("{write}\n{json}\n{page}\n{own}\nSec-Fetch-Site: same-origin")),
        (201, format!("{write}\n{json}\n{page}\nOrigin: https://console.example")),
        (403, format!("{write}\n{json}\n{own}")),
        (403, format!("{write}\n{page}\n{own}")),
        (403, format!("{write}\nContent-Type: text/plain\n{page}\n{own}")),
        (403, format!("{write}\n{json}\nSec-Fetch-Site: same-origin")),
        (403, format!("{write}\n{json}\n{page}\nSec-Fetch-Site: cross-site")),
    ] {
        let answer = server.ask(&head, if head.starts_with("GET") { "" } else { "{}" }).await;
        assert_eq!(answer.status, status, "{head}: {}", answer.text());
    }
    // Each request that changes something, with or without a body.
    for head in [
        "PUT /$api/v1/queues/new",
        "PATCH /$api/v1/queues/q",
        "DELETE /$api/v1/queues/q",
        "POST /$api/v1/queues/q/messages/purge",
        "POST /$api/v1/queues/q/locks/break",
        "DELETE /$api/v1/clients/1",
        "POST /$api/v1/sign-in",
    ] {
        let answer = server.ask(&format!("{head}\n{own}"), "").await;
        assert_eq!(answer.status, 403, "{head}");
        assert!(answer.text().contains("Peeklock-Page"), "{}", answer.text());
    }
    let queue = server.ask("GET /$api/v1/queues/q", "").await.json();
    assert_eq!(queue["runtime"]["activeMessageCount"], 3);
    server.stop().await;
}

/// CON-64: a protected entity is neither deleted nor purged over the JSON API; other changes work.
#[tokio::test]
async fn protected_entities_are_neither_deleted_nor_purged() {
    let mut plan = Plan::new();
    plan.config.protected = vec!["Q".to_owned(), "news/Subscriptions/audit".to_owned()];
    let server = plan.start().await;
    for head in ["topics/news", "topics/news/subscriptions/audit", "topics/other"] {
        assert_eq!(server.ask(&format!("PUT /$api/v1/{head}"), "{}").await.status, 201, "{head}");
    }
    server.send("a").await;
    for head in [
        "DELETE /$api/v1/queues/q",
        "POST /$api/v1/queues/q/messages/purge",
        "POST /$api/v1/queues/q/messages/delete-batch",
        "POST /$api/v1/queues/q/messages/delete-unlocked",
        "POST /$api/v1/queues/q%2F$DeadLetterQueue/messages/purge",
        "DELETE /$api/v1/topics/NEWS",
        "DELETE /$api/v1/topics/news/subscriptions/Audit",
        "POST /$api/v1/topics/news/subscriptions/audit/messages/purge",
    ] {
        let answer = server.ask(head, "").await;
        assert_eq!(answer.error().1, "InvalidOperation", "{head}");
        assert!(answer.text().contains("console.protect"), "{}", answer.text());
    }
    let changed = server.ask("PATCH /$api/v1/queues/q", r#"{"lockDuration": "PT1M"}"#).await;
    assert_eq!(changed.status, 200);
    assert_eq!(server.ask("DELETE /$api/v1/topics/other", "").await.status, 204);
    let receive = r#"{"mode": "receiveAndDelete"}"#;
    let received = server.ask("POST /$api/v1/queues/q/messages/receive", receive).await;
    assert_eq!(received.json()["messages"].as_array().map(Vec::len), Some(1));
    server.stop().await;
}

/// SEC-17: anonymous access beyond loopback must be requested explicitly.
#[tokio::test]
async fn an_open_listener_beyond_loopback_is_refused() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let config = || HttpConfig::at(SocketAddr::from(([0, 0, 0, 0], 0)));
    let refused = Box::new(HttpTransport::new(config())).start(broker.clone()).await;
    let Err(error) = refused else { panic!("it listens") };
    assert!(error.to_string().contains("security.i_know"), "{error}");
    let mut known = config();
    known.i_know = true;
    let running = Box::new(HttpTransport::new(known)).start(broker.clone()).await.unwrap();
    running.stop(std::time::Duration::ZERO).await;
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}
