//! Policies, and tokens signed with their keys. `matrix.rs` tests each operation with each token.

use std::sync::Arc;

use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Authorizer, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;

use super::client::Answer;
use super::server::{Plan, Server};

pub(super) const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// An earlier key of each policy.
pub(super) const RETIRED_KEY: &str = "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub(super) const LATER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

pub(super) async fn start(config: SasConfig) -> Server {
    start_plan(Plan::new(), config).await
}

pub(super) async fn start_plan(mut plan: Plan, config: SasConfig) -> Server {
    let policies = Policies::new();
    plan.authorizer = Arc::new(SasAuthorizer::new(&policies, config)) as Arc<dyn Authorizer>;
    plan.policies = Some(policies);
    plan.config.metrics = Some(Arc::new(|| "the page".to_owned()));
    plan.start().await
}

/// Sends a request while time passes, since refusals are delayed (SEC-26).
pub(super) async fn ask(server: &Server, head: &str, body: &str) -> Answer {
    server.clock.while_short_waits_pass(server.ask(head, body)).await
}

pub(super) fn rights_of(right: Right) -> Rights {
    if right == Right::Manage { Rights::ALL } else { Rights::of(right) }
}

/// Ensures that queues exist, and policies of these and of the namespace.
async fn arrange(server: &Server) {
    for queue in ["orders", "sibling"] {
        server.broker.create_queue(queue, QueueUpdate::default()).await.ok();
    }
    for owner in ["", "orders", "sibling"] {
        for right in Right::ALL {
            let properties = PolicyUpdate::of(rights_of(right))
                .with_keys(KeyText::parse(KEY).ok(), KeyText::parse(RETIRED_KEY).ok());
            // Names differ between entities, so that a name identifies its entity.
            let name = format!("{}{}", right.name(), owner);
            if server.broker.create_policy(owner, &name, properties).await.is_ok() {
                let which = WhichKey::Secondary;
                server.broker.regenerate_key(owner, &name, which, None).await.unwrap();
            }
        }
    }
}

/// SEC-09: after a key is regenerated, tokens signed with it are refused.
#[tokio::test]
async fn tokens_of_a_regenerated_key_are_refused() {
    let server = start(SasConfig::closed()).await;
    arrange(&server).await;
    let token = sign("Manage", KEY, "sb://x", Timestamp::NEVER);
    let peek = format!("GET /$api/v1/queues/orders/messages\nAuthorization: {token}");
    assert_eq!(ask(&server, &peek, "").await.status, 200);
    let regenerate = format!("POST /$api/v1/policies/manage/regenerate\nAuthorization: {token}");
    let body = format!("{{\"key\": \"primary\", \"value\": \"{LATER_KEY}\"}}");
    let answer = ask(&server, &regenerate, &body).await;
    assert_eq!((answer.status, &answer.json()["primaryKey"]), (200, &LATER_KEY.into()));
    assert_eq!(ask(&server, &peek, "").await.status, 401);
    let newer = sign("Manage", LATER_KEY, "sb://x", Timestamp::NEVER);
    let peek = format!("GET /$api/v1/queues/orders/messages\nAuthorization: {newer}");
    assert_eq!(ask(&server, &peek, "").await.status, 200);
    server.stop().await;
}

/// SEC-01, SEC-02, SEC-04, SEC-09, SEC-17: policies are managed over the JSON API. After the first
/// one is created, every client needs a token, also for the metrics.
#[tokio::test]
async fn policies_are_managed_and_end_anonymous_access() {
    let server = start(SasConfig::open_on_loopback()).await;
    assert_eq!(ask(&server, "GET /metrics", "").await.status, 200);
    let listed = ask(&server, "GET /$api/v1/policies", "").await.json();
    assert_eq!(listed["policies"][0]["name"], "RootManageSharedAccessKey");
    assert_eq!(listed["policies"][0]["rights"].as_array().unwrap().len(), 3);
    assert!(listed["policies"][0].get("primaryKey").is_none());
    // A client behind a proxy is not local.
    for header in [
        "Forwarded: for=10.0.0.1",
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-Host: bus.example.com",
        "X-Forwarded-Proto: https",
        "X-Real-IP: 10.0.0.1",
        "Via: 1.1 proxy",
    ] {
        let answer = ask(&server, &format!("GET /$api/v1/policies\n{header}"), "").await;
        assert_eq!(answer.status, 401, "{header}");
    }
    // The version that nginx uses by default.
    for (version, status) in [("1.0", 401), ("1.1", 200)] {
        let mut client = server.connect().await;
        let head = format!("GET /$api/v1/policies HTTP/{version}\r\nHost: localhost\r\n\r\n");
        client.write(head.as_bytes()).await;
        let answer = server.clock.while_short_waits_pass(client.read()).await;
        assert_eq!(answer.unwrap().status, status, "{version}");
    }
    for (body, text) in [
        (r#"{"rights": ["Manage"]}"#, "Manage"),
        (r#"{"rights": []}"#, "at least one"),
        (r#"{"rights": ["Send"], "primaryKey": "secret-part"}"#, "44 characters"),
    ] {
        let answer = ask(&server, "PUT /$api/v1/queues/q/policies/p", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.text().contains(text) && !answer.text().contains("secret-part"));
    }
    let form = format!(r#"{{"rights": ["Send", "Listen", "Manage"], "primaryKey": "{KEY}"}}"#);
    let answer = ask(&server, "PUT /$api/v1/queues/q/policies/p", &form).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert!(answer.header("location").unwrap().ends_with("/$api/v1/queues/q/policies/p"));
    assert!(!answer.text().contains(KEY));
    assert_eq!(ask(&server, "GET /$api/v1/queues/q/policies", "").await.status, 401);
    assert_eq!(ask(&server, "GET /metrics", "").await.status, 401);

    let token = sign("p", KEY, "sb://x/q", Timestamp::NEVER);
    let with = async |line: &str, body: &str| {
        ask(&server, &format!("{line}\nAuthorization: {token}"), body).await
    };
    assert_eq!(with("PUT /$api/v1/queues/q/policies/p", &form).await.status, 409);
    let keys = with("POST /$api/v1/queues/q/policies/p/keys", "").await.json();
    assert_eq!(keys["primaryKey"], KEY);
    assert_ne!(keys["secondaryKey"], KEY);
    let send = r#"{"rights": ["Send"]}"#;
    assert_eq!(with("PUT /$api/v1/queues/q/policies/other", send).await.status, 201);
    let answer = with("PATCH /$api/v1/queues/q/policies/other", r#"{"rights": ["Listen"]}"#).await;
    assert_eq!(answer.json()["rights"], serde_json::json!(["Listen"]));
    assert_eq!(with("GET /$api/v1/queues/q/policies/other", "").await.status, 200);
    assert_eq!(with("DELETE /$api/v1/queues/q/policies/other", "").await.status, 204);
    assert_eq!(with("GET /$api/v1/queues/q/policies/other", "").await.status, 404);
    assert_eq!(with("GET /$api/v1/policies", "").await.status, 401, "that of the namespace");
    server.stop().await;
}

/// HTP-02, SEC-22: a token in the URL does not count, and metrics need a right on the namespace.
#[tokio::test]
async fn a_token_stands_in_its_header_alone() {
    let server = start(SasConfig::closed()).await;
    arrange(&server).await;
    let token = sign("Manage", KEY, "sb://x", Timestamp::NEVER);
    let fields = token.strip_prefix("SharedAccessSignature ").unwrap();
    for query in [fields.to_owned(), format!("Authorization={fields}")] {
        let answer = ask(&server, &format!("POST /orders/messages?{query}"), "a").await;
        assert_ne!(answer.status, 201, "{query}");
    }
    let metrics = async |token: &str| {
        ask(&server, &format!("GET /metrics\nAuthorization: {token}"), "").await.status
    };
    assert_eq!(metrics(&token).await, 200);
    assert_eq!(metrics(&sign("Send", KEY, "sb://x", Timestamp::NEVER)).await, 401);
    assert_eq!(metrics(&sign("Manageorders", KEY, "sb://x", Timestamp::NEVER)).await, 401);
    let bearer = ask(&server, "GET /metrics\nAuthorization: Bearer eyJh.eyJp.c2ln", "").await;
    assert!(bearer.text().contains("DefaultAzureCredential"));
    server.stop().await;
}
