//! Each operation of the data plane, the JSON API and the Atom API with each kind of token. The
//! operations are not listed here again: the JSON API is read from its OpenAPI document, the Atom
//! API from the methods of each address, and the actions from a match that must cover new ones. The
//! expected rights are taken from the specification, not from the broker's own table.

use std::collections::BTreeSet;

use peeklock_auth_sas::{SasConfig, sign};
use peeklock_core::ChecksConfig;
use peeklock_core::contract::{Action, Ceiling, Right};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::policies::{KeyText, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;
use serde_json::Value;

use super::atom::{VERSION, entry};
use super::expected::allows;
use super::server::{Plan, Server};
use super::signed::{KEY, LATER_KEY, RETIRED_KEY, ask, rights_of, start_plan};

const SUBSCRIPTION: &str = "news/Subscriptions/audit";
const LOCK: &str = "00000000-0000-0001-0000-000000000001";
/// Entities with policies, one for each right: a queue, a topic with a subscription, and the
/// namespace. Queue and topic are siblings of each other, and the topic is the parent of its
/// subscription.
const OWNERS: [&str; 3] = ["orders", "news", ""];

/// Interface of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Surface {
    Rest,
    Json,
    Atom,
    Page,
}

/// One operation as a request.
pub(super) struct Row {
    surface: Surface,
    /// Request line, with additional headers if necessary.
    pub(super) head: String,
    pub(super) body: String,
    /// All actions that it needs, with their entities.
    pub(super) needs: Vec<(Action, &'static str)>,
}

/// Returns the interfaces of an action over HTTP. The match makes the compiler report a new action
/// here.
fn surfaces(action: Action) -> &'static [Surface] {
    use Surface::{Atom, Json, Page, Rest};
    match action {
        Action::Send | Action::Receive | Action::Settle | Action::RenewLock => &[Rest, Json],
        Action::CancelScheduled
        | Action::ReceiveDeferred
        | Action::Peek
        | Action::Inspect
        | Action::ListSessions
        | Action::DeleteBatch
        | Action::DeleteUnlocked
        | Action::DeleteDeferred
        | Action::Operate
        | Action::CloseClients
        | Action::ReadAudit
        | Action::Overview
        | Action::Plan
        | Action::ReadRules
        | Action::ReadPolicies
        | Action::ReadKeys => &[Json],
        Action::Describe | Action::List => &[Atom],
        Action::Create
        | Action::Update
        | Action::Delete
        | Action::BeForwardedTo
        | Action::ChangeRules
        | Action::ChangePolicies => &[Json, Atom],
        Action::ReadMetrics => &[Page],
        // They need a link or a held session, which HTTP does not have, or no client can request
        // them.
        Action::SendVia
        | Action::ChangeOwnRules
        | Action::BeSentTo
        | Action::Forward
        | Action::AcceptSession
        | Action::HoldSession
        | Action::End
        | Action::Commit
        | Action::Internal => &[],
    }
}

fn row(surface: Surface, head: impl Into<String>, action: Action, at: &'static str) -> Row {
    Row { surface, head: head.into(), body: "{}".to_owned(), needs: vec![(action, at)] }
}

/// Returns the action of an operation of the JSON API, and its entity.
fn of_document(method: &str, path: &str) -> (Action, &'static str) {
    let (at, below) = if let Some(below) = path.strip_prefix("/queues/{queue}") {
        ("orders", below)
    } else if let Some(below) = path.strip_prefix("/topics/{topic}/subscriptions/{subscription}") {
        (SUBSCRIPTION, below)
    } else if let Some(below) = path.strip_prefix("/topics/{topic}") {
        ("news", below)
    } else {
        ("", path)
    };
    let action = match (method, below) {
        ("put", "") => Action::Create,
        ("patch", "") => Action::Update,
        ("delete", "") => Action::Delete,
        ("get", "" | "/queues" | "/topics" | "/subscriptions" | "/namespace") => Action::Overview,
        ("post", "/declaration") => return (Action::Plan, "orders"),
        ("post", "/declaration/text") | ("get", "/declaration/export") => Action::Plan,
        ("post", "/messages" | "/messages/batch" | "/messages/schedule") => Action::Send,
        ("post", "/messages/cancel-scheduled") => Action::CancelScheduled,
        ("post", "/messages/receive") => Action::Receive,
        ("post", "/messages/receive-deferred") => Action::ReceiveDeferred,
        ("get", "/messages") => Action::Peek,
        ("post", "/messages/delete-batch" | "/messages/purge") => Action::DeleteBatch,
        ("post", "/messages/delete-unlocked") => Action::DeleteUnlocked,
        ("delete", "/messages/{sequenceNumber}") => Action::DeleteDeferred,
        // Without a job, the right on the namespace.
        (
            "get",
            "/jobs/{job}" | "/jobs/{job}/samples" | "/jobs/{job}/failures" | "/jobs/{job}/export",
        ) => Action::Inspect,
        ("post", "/jobs") => Action::Operate,
        ("post", job) if job.starts_with("/jobs/{job}/") => Action::Operate,
        ("post", "/locks/break" | "/sessions/{sessionId}/break" | "/messages/act")
        | ("delete", "/receipts/{job}")
        | ("put" | "delete", "/sessions/{sessionId}/state") => Action::Operate,
        ("delete", "/clients/{client}") => Action::CloseClients,
        ("get", "/audit" | "/audit/export") => Action::ReadAudit,
        ("post", "/locks/{lockToken}/renew") => Action::RenewLock,
        ("post", lock) if lock.starts_with("/locks/{lockToken}/") => Action::Settle,
        ("get", "/sessions") => Action::ListSessions,
        ("get", "/entities" | "/clients" | "/topology" | "/checks") => Action::Overview,
        ("post", "/checks/mute" | "/checks/unmute") => Action::Operate,
        ("post", "/watch" | "/search") | ("get", "/jobs" | "/journeys") => {
            return (Action::Inspect, "orders");
        }
        (
            "get",
            "/heads"
            | "/locks"
            | "/timeline"
            | "/series"
            | "/sessions/details"
            | "/sessions/{sessionId}/state"
            | "/messages/{sequenceNumber}/head"
            | "/messages/{sequenceNumber}/journey"
            | "/messages/{sequenceNumber}/body",
        ) => Action::Inspect,
        ("get", "/samples") | ("post", "/what-if") => Action::Inspect,
        ("post", "/explain") if at == "news" => Action::Inspect,
        ("get", "/rules" | "/rules/{rule}") | ("post", "/explain") => Action::ReadRules,
        ("put" | "patch" | "delete", "/rules/{rule}") => Action::ChangeRules,
        ("get", "/policies" | "/policies/{policy}") => Action::ReadPolicies,
        ("put" | "patch" | "delete", "/policies/{policy}")
        | ("post", "/policies/{policy}/regenerate") => Action::ChangePolicies,
        ("post", "/policies/{policy}/keys") => Action::ReadKeys,
        _ => {
            panic!("{method} {path} is an operation of the JSON API that the matrix does not have")
        }
    };
    (action, at)
}

/// Returns the operations of the JSON API from its OpenAPI document.
pub(super) async fn json_rows(server: &Server) -> Vec<Row> {
    let document = server.ask("GET /$api/v1/openapi.json", "").await.json();
    let mut rows = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        // They need valid credentials, or rights at the path in their body; see `sign_in.rs`.
        if path.starts_with("/sign-in") || path.starts_with("/downloads") {
            continue;
        }
        // Any right Listen suffices for these lists, whose answer is then shorter.
        if path == "/jobs" || path == "/journeys" {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            if !["get", "put", "post", "patch", "delete"].contains(&method.as_str()) {
                continue;
            }
            let (action, at) = of_document(method, path);
            let mut filled = path.clone();
            for (name, value) in [
                ("{queue}", "orders"),
                ("{topic}", "news"),
                ("{subscription}", "audit"),
                ("{rule}", "r"),
                ("{policy}", "p"),
                ("{lockToken}", LOCK),
                ("{sequenceNumber}", "1"),
                ("{sessionId}", "s"),
                ("{client}", "9"),
                ("{job}", "00000000-0000-4000-8000-000000000001"),
            ] {
                filled = filled.replace(name, value);
            }
            assert!(!filled.contains('{'), "{path}");
            let head = format!("{} /$api/v1{filled}", method.to_uppercase());
            let mut row = row(Surface::Json, head, action, at);
            match path.as_str() {
                "/declaration" => {
                    rows.extend(declarations());
                    continue;
                }
                // Refused because of its query, after the rights were checked.
                "/watch" => {
                    let query = r#"{"name": "locks", "path": "orders", "query": {"top": 501}}"#;
                    row.body = format!(r#"{{"subjects": [{query}]}}"#);
                }
                "/search" => row.body = r#"{"entities": ["orders"], "hits": 0}"#.to_owned(),
                "/checks/mute" => row.body = r#"{"kind": "nearlyFull", "reason": "x"}"#.to_owned(),
                "/checks/unmute" => row.body = r#"{"kind": "nearlyFull"}"#.to_owned(),
                path if path.ends_with("/what-if") => {
                    let change = r#"{"subscription": "audit", "remove": "$Default"}"#;
                    row.body = format!(r#"{{"changes": [{change}]}}"#);
                }
                path if path.ends_with("/explain") => row.body = r#"{"message": {}}"#.to_owned(),
                _ => {}
            }
            rows.push(row);
        }
    }
    assert!(rows.len() > 70, "{} operations", rows.len());
    let forwards = |head: &str, action, at| Row {
        body: r#"{"forwardTo": "orders"}"#.to_owned(),
        needs: vec![(action, at), (Action::BeForwardedTo, "orders")],
        ..row(Surface::Json, head, action, at)
    };
    rows.push(forwards("PUT /$api/v1/queues/fresh", Action::Create, "fresh"));
    let subscription = "PATCH /$api/v1/topics/news/subscriptions/audit";
    rows.push(forwards(subscription, Action::Update, SUBSCRIPTION));
    // An unchanged destination needs no right (FWD-05).
    let again = "PATCH /$api/v1/topics/news/subscriptions/forwarded";
    rows.push(Row {
        body: r#"{"forwardTo": "orders"}"#.to_owned(),
        ..row(Surface::Json, again, Action::Update, "news/Subscriptions/forwarded")
    });
    rows
}

/// Returns plans and declarations: they need the right on all named entities, and on no others
/// (DEC-12).
fn declarations() -> Vec<Row> {
    let named = |body: &str, needs| {
        ["dryRun=true", "digest=0123456789abcdef"].map(|query| Row {
            surface: Surface::Json,
            head: format!("POST /$api/v1/declaration?{query}"),
            body: body.to_owned(),
            needs: Vec::clone(&needs),
        })
    };
    let orders = (Action::Plan, "orders");
    let rows = [
        named(r#"{"queues": [{"path": "orders"}]}"#, vec![orders]),
        named(
            r#"{"queues": [{"path": "orders"}], "topics": [{"path": "news"}]}"#,
            vec![orders, (Action::Plan, "news")],
        ),
        named(
            r#"{"queues": [{"path": "orders", "properties": {"forwardTo": "sibling"}}]}"#,
            vec![orders, (Action::BeForwardedTo, "sibling")],
        ),
        named(
            r#"{"queues": [{"path": "orders"}], "deleteUnnamed": true}"#,
            vec![(Action::Plan, ""), orders],
        ),
        named(
            r#"{"queues": [{"path": "fresh"}]}"#,
            vec![(Action::Plan, "fresh"), (Action::Create, "fresh")],
        ),
    ];
    rows.into_iter().flatten().collect()
}

/// Returns the operations of the data plane, which has no document.
fn rest_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for at in ["orders", "news"] {
        rows.push(row(Surface::Rest, format!("POST /{at}/messages"), Action::Send, at));
    }
    for at in ["orders", SUBSCRIPTION] {
        for (method, action) in [("POST", Action::Receive), ("DELETE", Action::Receive)] {
            let head = format!("{method} /{at}/messages/head?timeout=0");
            rows.push(row(Surface::Rest, head, action, at));
        }
        for (method, action) in
            [("DELETE", Action::Settle), ("PUT", Action::Settle), ("POST", Action::RenewLock)]
        {
            let head = format!("{method} /{at}/messages/1/{LOCK}");
            rows.push(row(Surface::Rest, head, action, at));
        }
    }
    rows
}

/// Returns the operations of the Atom API from the methods of each address.
async fn atom_rows(server: &Server) -> Vec<Row> {
    // Over this API, reading rules needs the right to manage the subscription.
    let rule = (Action::Describe, Action::ChangeRules, Action::ChangeRules, Action::ChangeRules);
    let rules = (Action::List, Action::ChangeRules, Action::ChangeRules, Action::ChangeRules);
    let entity = (Action::Describe, Action::Create, Action::Update, Action::Delete);
    let list = (Action::List, Action::Create, Action::Update, Action::Delete);
    let mut rows = Vec::new();
    for (address, at, actions) in [
        ("$namespaceinfo", "", entity),
        ("$Resources/queues", "", list),
        ("$Resources/topics", "", list),
        ("orders", "orders", entity),
        ("news", "news", entity),
        ("news/subscriptions", "news", list),
        ("news/subscriptions/audit", SUBSCRIPTION, entity),
        ("news/subscriptions/audit/rules", SUBSCRIPTION, rules),
        ("news/subscriptions/audit/rules/r", SUBSCRIPTION, rule),
    ] {
        let line = |method: &str| format!("{method} /{address}?{VERSION}");
        let methods = server.ask(&line("OPTIONS"), "").await;
        let (read, create, update, delete) = actions;
        for method in methods.header("allow").unwrap().split(", ") {
            let atom = |head, action| row(Surface::Atom, head, action, at);
            match method {
                // HEAD is GET without a body, and OPTIONS requests nothing.
                "HEAD" | "OPTIONS" => {}
                "GET" => rows.push(atom(line("GET"), read)),
                "PUT" => {
                    rows.push(atom(line("PUT"), create));
                    rows.push(atom(line("PUT") + "\nIf-Match: *", update));
                }
                "DELETE" => rows.push(atom(line("DELETE"), delete)),
                other => panic!("{address} has {other}, which the matrix does not have"),
            }
        }
    }
    let update = format!("PUT /orders?{VERSION}\nIf-Match: *");
    let with = |properties: &str, further| Row {
        body: entry("QueueDescription", properties),
        needs: vec![(Action::Update, "orders"), further],
        ..row(Surface::Atom, update.clone(), Action::Update, "orders")
    };
    rows.push(with("<ForwardTo>sibling</ForwardTo>", (Action::BeForwardedTo, "sibling")));
    let policy = "<AuthorizationRules><AuthorizationRule><Rights/><KeyName>p</KeyName></AuthorizationRule></AuthorizationRules>";
    rows.push(with(policy, (Action::ChangePolicies, "orders")));
    rows
}

/// Ensures that all entities of the matrix exist, after the last request may have deleted some.
pub(super) async fn arrange(server: &Server) {
    for queue in ["orders", "sibling"] {
        server.broker.create_queue(queue, QueueUpdate::default()).await.ok();
    }
    server.broker.create_topic("news", TopicUpdate::default()).await.ok();
    let plain = SubscriptionUpdate::default;
    server.broker.create_subscription("news", "audit", plain(), Vec::new()).await.ok();
    server.broker.update_subscription(SUBSCRIPTION, plain(), None).await.unwrap();
    let forwards = SubscriptionUpdate { forward_to: Some("orders".into()), ..plain() };
    server.broker.create_subscription("news", "forwarded", forwards, Vec::new()).await.ok();
    server.broker.delete_entity("fresh").await.ok();
    server.broker.update_queue("orders", QueueUpdate::default(), None).await.ok();
    for owner in OWNERS {
        for right in Right::ALL {
            let properties = PolicyUpdate::of(rights_of(right))
                .with_keys(KeyText::parse(KEY).ok(), KeyText::parse(RETIRED_KEY).ok());
            let name = policy(right, owner);
            if server.broker.create_policy(owner, &name, properties).await.is_ok() {
                let which = WhichKey::Secondary;
                server.broker.regenerate_key(owner, &name, which, None).await.unwrap();
            }
        }
    }
}

/// Returns the name of a policy, which differs between entities, so that it identifies its entity.
pub(super) fn policy(right: Right, owner: &str) -> String {
    format!("{}{owner}", right.name())
}

/// Whether a policy of `owner` applies to a resource: to its entity, to resources below that, or to
/// all.
fn holds(owner: &str, at: &str) -> bool {
    let below = at.strip_prefix(owner);
    owner.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// A token, and the resources for which it is valid.
struct Shown {
    token: String,
    is_good_at: Box<dyn Fn(&str) -> bool>,
    what: String,
}

fn tokens(of: &str) -> Vec<(Right, &'static str, Shown)> {
    let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
    let mut tokens = Vec::new();
    for owner in OWNERS {
        for right in Right::ALL {
            let name = policy(right, owner);
            let nowhere = || Box::new(|_: &str| false) as Box<dyn Fn(&str) -> bool>;
            let mut add = |what: &str, token: String, is_good_at| {
                let what = format!("{what} of {name}");
                tokens.push((right, owner, Shown { token, is_good_at, what }));
            };
            add("token", sign(&name, KEY, "sb://x", latest), Box::new(|_| true));
            let narrow = sign(&name, KEY, &format!("https://h:5300/{of}/"), latest);
            let own = of.to_owned();
            add("token for it alone", narrow, Box::new(move |at| holds(&own, at)));
            if right != Right::Manage {
                continue;
            }
            // An invalid token is invalid regardless of its policy's rights, so a policy with all
            // rights is enough.
            add("token for elsewhere", sign(&name, KEY, "sb://x/elsewhere", latest), nowhere());
            add("wrong signature", sign(&name, LATER_KEY, "sb://x", latest), nowhere());
            add("regenerated key", sign(&name, RETIRED_KEY, "sb://x", latest), nowhere());
            add("expired token", sign(&name, KEY, "sb://x", past), nowhere());
        }
    }
    tokens
}

/// SEC-01, SEC-03, SEC-05, SEC-07, SEC-09, SEC-14, FWD-05, DEC-12, HTP-02, ADM-11: each operation
/// over HTTP, in each of its forms, without a token, and with a token for each right on its entity,
/// the parent, a sibling and the namespace. Also with a token that has expired, has a wrong
/// signature or a regenerated key, or is for another resource. The broker refuses exactly the
/// requests that the specification refuses.
#[tokio::test]
async fn every_operation_against_every_token() {
    let mut plan = Plan::new();
    plan.checks = Some(ChecksConfig::default());
    let server = start_plan(plan, SasConfig::closed()).await;
    let mut rows = json_rows(&server).await;
    rows.extend(rest_rows());
    rows.extend(atom_rows(&server).await);
    rows.push(row(Surface::Page, "GET /metrics", Action::ReadMetrics, ""));

    let asked: BTreeSet<(usize, Surface)> = rows
        .iter()
        .flat_map(|row| row.needs.iter().map(|(action, _)| (*action as usize, row.surface)))
        .collect();
    let said = Action::ALL.into_iter();
    let said =
        said.flat_map(|action| surfaces(action).iter().map(move |it| (action as usize, *it)));
    assert_eq!(asked, said.collect(), "each action is asked for in each form that it has");

    arrange(&server).await;
    for Row { surface, head, body, needs } in &rows {
        let is_read = head.starts_with("GET");
        let of = needs[0].1;
        for (right, owner, Shown { token, is_good_at, what }) in tokens(of) {
            let rights = rights_of(right);
            let allowed = needs.iter().all(|(action, at)| {
                is_good_at(at) && holds(owner, at) && allows(*action, rights, Ceiling::Admin)
            });
            let head = format!("{head}\nAuthorization: {token}");
            let answer = ask(&server, &head, body).await;
            let shown = || format!("{head} with the {what}: {}", answer.text());
            // A list may contain the entities that the token covers; no token covers `q` or
            // `sibling`.
            if of.is_empty() && is_read && !allowed && answer.status == 200 {
                assert!(
                    !answer.text().contains("\"q\"") && !answer.text().contains(">q<"),
                    "{}",
                    shown()
                );
                assert!(!answer.text().contains("sibling"), "{}", shown());
                continue;
            }
            assert_eq!(answer.status == 401, !allowed, "{}", shown());
            if *surface == Surface::Json && !allowed {
                assert_eq!(answer.json()["code"], Value::from("Unauthorized"), "{}", shown());
            }
            assert!(allowed || !answer.text().contains(KEY), "{}", shown());
            if !is_read && answer.status < 300 {
                arrange(&server).await;
            }
        }
        assert_eq!(ask(&server, head, body).await.status, 401, "{head} with nothing");
    }
    server.stop().await;
}
