//! Each request with each set of rights, against the broker's table of rights.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Action, Authorizer, Ceiling, Grant, Principal, Right, Rights};
use peeklock_core::error::Rejection;
use peeklock_core::policies::Policies;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde_json::{Value, json};

use super::client::{Client, upgrade};
use super::expected;
use super::server::{Plan, Server, run};

/// Grants the rights that the token names.
struct Named;

#[async_trait]
impl Authorizer for Named {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        let token = principal.token.as_deref().unwrap_or_default();
        let is_named = |right: &Right| token.split(',').any(|name| name == right.name());
        Ok(Grant::of(Right::ALL.into_iter().filter(is_named).collect::<Rights>()))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Returns requests with their actions in the table. Link 1 sends to `q`, link 2 receives from it;
/// other entities do not exist.
fn requests() -> Vec<(&'static str, Value, Action)> {
    let token = "00000000-0000-0001-0000-000000000001";
    let messages = json!({ "link": 1, "messages": [{ "body": "a" }] });
    let subscription = "absent/Subscriptions/s";
    let rule =
        json!({ "path": subscription, "rule": { "name": "r", "filter": { "type": "true" } } });
    let named = json!({ "path": subscription, "name": "r" });
    let named_policy = json!({ "path": "absent", "name": "p" });
    vec![
        ("send", messages.clone(), Action::Send),
        ("sendBatch", messages, Action::Send),
        ("cancelScheduled", json!({ "link": 1, "sequenceNumbers": [99] }), Action::CancelScheduled),
        ("receive", json!({ "link": 2, "maxCount": 1, "waitSeconds": 0 }), Action::Receive),
        ("receiveDeferred", json!({ "link": 2, "sequenceNumbers": [99] }), Action::ReceiveDeferred),
        (
            "settle",
            json!({ "link": 2, "decision": "complete", "lockTokens": [token] }),
            Action::Settle,
        ),
        ("renew", json!({ "link": 2, "lockTokens": [token] }), Action::RenewLock),
        ("peek", json!({ "link": 2, "from": 0, "maxCount": 1 }), Action::Peek),
        ("deleteBatch", json!({ "link": 2, "maxCount": 1 }), Action::DeleteBatch),
        ("purge", json!({ "link": 2 }), Action::DeleteBatch),
        ("deleteDeferred", json!({ "link": 2, "sequenceNumber": 99 }), Action::DeleteDeferred),
        ("attach", json!({ "link": 3, "path": "absent", "role": "sender" }), Action::Send),
        ("attach", json!({ "link": 4, "path": "absent", "role": "receiver" }), Action::Receive),
        (
            "attachVia",
            json!({ "link": 6, "path": "absent", "destination": "absent too" }),
            Action::SendVia,
        ),
        (
            "acceptSession",
            json!({ "link": 5, "path": "absent", "sessionId": "s" }),
            Action::AcceptSession,
        ),
        ("listSessions", json!({ "path": "absent" }), Action::ListSessions),
        ("deleteUnlocked", json!({ "path": "absent" }), Action::DeleteUnlocked),
        ("createQueue", json!({ "path": "q" }), Action::Create),
        ("getQueue", json!({ "path": "absent" }), Action::Describe),
        ("updateQueue", json!({ "path": "absent" }), Action::Update),
        ("deleteQueue", json!({ "path": "absent" }), Action::Delete),
        ("listQueues", json!({}), Action::List),
        ("createTopic", json!({ "path": "q" }), Action::Create),
        ("getTopic", json!({ "path": "absent" }), Action::Describe),
        ("updateTopic", json!({ "path": "absent" }), Action::Update),
        ("deleteTopic", json!({ "path": "absent" }), Action::Delete),
        ("listTopics", json!({}), Action::List),
        ("createSubscription", json!({ "topic": "absent", "name": "s" }), Action::Create),
        ("getSubscription", json!({ "path": subscription }), Action::Describe),
        ("updateSubscription", json!({ "path": subscription }), Action::Update),
        ("deleteSubscription", json!({ "path": subscription }), Action::Delete),
        ("listSubscriptions", json!({ "path": "absent" }), Action::List),
        ("createRule", rule.clone(), Action::ChangeRules),
        ("updateRule", rule, Action::ChangeRules),
        ("deleteRule", named.clone(), Action::ChangeRules),
        ("getRule", named, Action::ReadRules),
        ("listRules", json!({ "path": subscription }), Action::ReadRules),
        ("explain", json!({ "path": subscription, "message": { "body": "a" } }), Action::ReadRules),
        ("createPolicy", named_policy.clone(), Action::ChangePolicies),
        ("updatePolicy", named_policy.clone(), Action::ChangePolicies),
        ("deletePolicy", named_policy.clone(), Action::ChangePolicies),
        (
            "regeneratePolicyKey",
            json!({ "path": "absent", "name": "p", "key": "primary" }),
            Action::ChangePolicies,
        ),
        ("getPolicyKeys", named_policy.clone(), Action::ReadKeys),
        ("getPolicy", named_policy, Action::ReadPolicies),
        ("listPolicies", json!({ "path": "absent" }), Action::ReadPolicies),
    ]
}

/// SEC-05, SEC-06, SEC-08, CNT-12: a request is carried out exactly if the table allows it, also on
/// links that another token has attached.
#[test]
fn every_request_asks_for_its_right() {
    run(async {
        let mut plan = Plan::new();
        plan.authorizer = Arc::new(Named);
        let server = plan.start().await;
        let token = json!({ "token": "Send,Listen,Manage" });
        let mut client = Client::hello(server.address, token).await;
        for (link, role) in [(1, "sender"), (2, "receiver")] {
            let attach = json!({ "link": link, "path": "q", "role": role });
            assert!(client.ask("attach", attach).await.get("done").is_some());
        }
        for bits in 0..8u8 {
            let rights = Right::ALL.into_iter().enumerate();
            let rights = rights.filter(|(place, _)| bits & (1 << place) != 0);
            let rights: Vec<Right> = rights.map(|(_, right)| right).collect();
            let names: Vec<&str> = rights.iter().map(|right| right.name()).collect();
            let token = format!("{},", names.join(","));
            let rights: Rights = rights.into_iter().collect();
            client.ask("authenticate", json!({ "token": token })).await;
            for (operation, body, action) in requests() {
                let answer = client.ask(operation, body).await;
                let refused = answer.to_string().contains("\"Unauthorized\"");
                let is_allowed = expected::allows(action, rights, Ceiling::Admin);
                assert_eq!(refused, !is_allowed, "{operation} with {token}: {answer}");
            }
        }
        server.stop().await;
    });
}

/// Grants everything for one minute to one token, and for two minutes to others.
struct ForAMinute(Timestamp);

#[async_trait]
impl Authorizer for ForAMinute {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        let grant = Grant::of(Right::ALL.into_iter().collect::<Rights>());
        Ok(match principal.token.as_deref() {
            Some("a minute") => grant.with_end(self.0.plus(TimeSpan::from_minutes(1))),
            _ => grant.with_end(self.0.plus(TimeSpan::from_minutes(2))),
        })
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-15: a link without deliveries is also detached when its grant ends; with a new token it
/// continues until that grant ends.
#[test]
fn links_without_deliveries_end_with_their_grant() {
    run(async {
        let begin = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
        let mut plan = Plan::new();
        plan.authorizer = Arc::new(ForAMinute(begin));
        let server = plan.start().await;
        let mut client = Client::hello(server.address, json!({ "token": "a minute" })).await;
        for (link, role) in [(1, "sender"), (2, "receiver")] {
            client.ask("attach", json!({ "link": link, "path": "q", "role": role })).await;
        }
        let via = json!({ "link": 3, "path": "q", "destination": "other" });
        server.broker.create_queue("other", Default::default()).await.unwrap();
        assert!(client.ask("attachVia", via).await.get("done").is_some());
        for token in [None, Some("longer")] {
            if let Some(token) = token {
                client.ask("authenticate", json!({ "token": token })).await;
                let send = json!({ "link": 1, "messages": [{}] });
                assert_eq!(client.ask("send", send).await["accepted"]["failed"], json!(null));
            }
            server.clock.advance(TimeSpan::from_minutes(1));
            let mut told = Vec::new();
            for _ in 0..3 {
                let detached = client.pushed("detached").await;
                assert_eq!(detached["error"]["condition"], "Unauthorized", "{detached}");
                told.push(detached["link"].as_u64().unwrap());
            }
            told.sort_unstable();
            assert_eq!(told, [1, 2, 3]);
        }
        server.stop().await;
    });
}
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// SEC-17: a client without a token that creates the first policy gets the answer. Then all
/// connections without a token are closed, including those without links; one with a token
/// continues.
#[test]
fn connections_without_a_token_are_closed_when_everybody_needs_one() {
    run(async {
        let policies = Policies::new();
        let mut plan = Plan::new();
        plan.authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::open_on_loopback()));
        plan.policies = Some(policies);
        let server = plan.start().await;
        let mut first = Client::open(server.address).await;
        // A heartbeat of one second: an idle connection checks as often.
        let idle = json!({ "heartbeatSeconds": 1 });
        let mut idle = Client::hello(server.address, idle).await;
        let mut receiver = Client::open(server.address).await;
        let attach = json!({ "link": 1, "path": "q", "role": "receiver", "credit": 1 });
        assert!(receiver.ask("attach", attach).await.get("done").is_some());
        let properties = json!({ "rights": ["Send", "Listen", "Manage"], "primaryKey": KEY });
        let create = json!({ "path": "", "name": "boss", "properties": properties });
        // Any client with a token is admitted; the token is judged with the first request.
        let token = sign("boss", KEY, "sb://x", Timestamp::NEVER);
        let mut signed = Client::hello(server.address, json!({ "token": token })).await;
        let created = first.ask("createPolicy", create).await;
        assert_eq!(created["policy"]["name"], "boss", "{created}");
        assert_eq!(receiver.pushed("detached").await["error"]["condition"], "Unauthorized");
        for client in [&mut first, &mut receiver, &mut idle] {
            let (code, reason) = client.closed().await.unwrap();
            assert!(code == 4001 && reason.contains("needs a token"), "{code} {reason}");
        }
        let answer = signed.ask("getQueue", json!({ "path": "q" })).await;
        assert_eq!(answer["queue"]["path"], "q", "{answer}");
        server.stop().await;
    });
}

/// SEC-17: a client behind a proxy is not local, wherever the proxy runs: the headers of the
/// upgrade show it. Without a token it may do nothing.
#[test]
fn a_connection_by_a_proxy_is_not_of_this_machine() {
    run(async {
        let policies = Policies::new();
        let mut plan = Plan::new();
        plan.authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::open_on_loopback()));
        plan.policies = Some(policies);
        let server = plan.start().await;
        for (name, value, is_let_in) in [
            ("x-peeklock-test", "203.0.113.7", true),
            ("x-forwarded-for", "203.0.113.7", false),
            ("forwarded", "for=203.0.113.7", false),
            ("x-forwarded-proto", "https", false),
            ("x-real-ip", "203.0.113.7", false),
            ("via", "1.1 proxy", false),
        ] {
            let headers = [("sec-websocket-protocol", "peeklock.v1.json"), (name, value)];
            let socket = upgrade(server.address, "/", &headers).await.unwrap();
            let mut client = Client::hello_over(socket, json!({})).await;
            let answer = ask(&server, &mut client, "getQueue", json!({ "path": "q" })).await;
            assert_eq!(answer.get("queue").is_some(), is_let_in, "{name}: {answer}");
            let refused = answer["error"]["condition"] == "Unauthorized";
            assert_eq!(refused, !is_let_in, "{name}: {answer}");
        }
        server.stop().await;
    });
}

/// Sends a request while time passes, since refusals are delayed (SEC-26).
pub(super) async fn ask(
    server: &Server,
    client: &mut Client,
    operation: &str,
    body: Value,
) -> Value {
    server.clock.while_short_waits_pass(client.ask(operation, body)).await
}

pub(super) async fn authenticate(server: &Server, client: &mut Client, token: &str) {
    ask(server, client, "authenticate", json!({ "token": token })).await;
}
