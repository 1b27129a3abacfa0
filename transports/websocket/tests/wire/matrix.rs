//! Each request of the protocol with each kind of token, on links that exist already. The list of
//! requests is checked against the reference page. The expected rights are taken from the
//! specification, not from the broker's own table.

use std::collections::BTreeSet;
use std::sync::Arc;

use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Action, Ceiling, Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::Timestamp;
use serde_json::{Value, json};

use super::client::Client;
use super::expected::{allows, expected};
use super::rights::{ask, authenticate};
use super::server::{Plan, Server, run};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const RETIRED_KEY: &str = "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SUBSCRIPTION: &str = "news/Subscriptions/audit";

/// Entities of the links: the one with policies, which is also sent to, the one received from, and
/// the one with sessions.
#[derive(Clone, Copy)]
struct Place {
    owner: &'static str,
    path: &'static str,
    sessions: &'static str,
}

const AT_QUEUE: Place = Place { owner: "q", path: "q", sessions: "steps" };
/// A subscription has no policies of its own; the policies of its topic apply.
const AT_SUBSCRIPTION: Place =
    Place { owner: "news", path: SUBSCRIPTION, sessions: "news/Subscriptions/steps" };

/// Entities with policies, one for each right; the empty path is the namespace.
const OWNERS: [&str; 5] = ["q", "news", "sibling", "steps", ""];
/// First link with a session. Each token gets its own, since a session ends with the right to it.
const SESSION_LINK: u32 = 100;
/// Requests that need no right: they concern the connection, or end something that the client has
/// begun. `credit` and `drain` belong to a link with deliveries, which ends with its right
/// (SEC-15).
const FREE: [&str; 9] = [
    "hello",
    "authenticate",
    "heartbeat",
    "detach",
    "credit",
    "drain",
    "withdraw",
    "beginTransaction",
    "rollBack",
];

/// One request, with the actions that it needs and their entities.
struct Row {
    name: &'static str,
    body: Value,
    needs: Vec<(Action, &'static str)>,
}

/// Whether an action can be requested over WebSocket. The match makes the compiler report a new
/// action here.
fn is_asked(action: Action) -> bool {
    match action {
        Action::Send
        | Action::SendVia
        | Action::BeSentTo
        | Action::CancelScheduled
        | Action::Forward
        | Action::Receive
        | Action::ReceiveDeferred
        | Action::Settle
        | Action::RenewLock
        | Action::Peek
        | Action::Inspect
        | Action::AcceptSession
        | Action::HoldSession
        | Action::ListSessions
        | Action::DeleteBatch
        | Action::DeleteUnlocked
        | Action::DeleteDeferred
        | Action::Operate
        | Action::CloseClients
        | Action::ReadAudit
        | Action::Create
        | Action::Describe
        | Action::Overview
        | Action::Plan
        | Action::Update
        | Action::Delete
        | Action::List
        | Action::BeForwardedTo
        | Action::ReadRules
        | Action::ChangeRules
        | Action::ReadPolicies
        | Action::ReadKeys
        | Action::ChangePolicies
        | Action::Commit => true,
        // Only over HTTP, by requests that need no right, or never.
        Action::ChangeOwnRules | Action::ReadMetrics | Action::End | Action::Internal => false,
    }
}

/// Returns the requests on links and on the entity that they receive from. Link 1 sends, link 2
/// receives, link 3 sends to `sibling` through the entity of link 1, and links from
/// [`SESSION_LINK`] on each had a session.
fn on_links(at: Place, transaction: &Value, session: u32) -> Vec<Row> {
    let Place { owner, path, sessions } = at;
    let locks = json!(["00000000-0000-0001-0000-000000000001"]);
    let row = |name, body, action, at| Row { name, body, needs: vec![(action, at)] };
    let sent = |name, body, action| row(name, body, action, owner);
    let received = |name, body, action| row(name, body, action, path);
    let messages = |link: u32| json!({ "link": link, "messages": [{ "body": "a" }] });
    let settle = json!({ "link": 2, "decision": "abandon", "lockTokens": locks });
    let source = json!({
        "broker": "7b1f3c52-93e4-4c0e-a9b1-0d4a5c8f2e66", "entity": 18, "forwarding": "messages",
    });
    let via = vec![(Action::SendVia, owner), (Action::BeSentTo, "sibling")];
    let in_it = |part: Value| {
        let mut body = json!({ "transaction": transaction });
        body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        body
    };
    vec![
        sent("send", messages(1), Action::Send),
        sent("sendBatch", messages(1), Action::Send),
        Row { name: "send", body: messages(3), needs: via.clone() },
        Row { name: "sendBatch", body: messages(3), needs: via.clone() },
        sent(
            "cancelScheduled",
            json!({ "link": 1, "sequenceNumbers": [99] }),
            Action::CancelScheduled,
        ),
        sent("forward", json!({ "link": 1, "source": source, "messages": [] }), Action::Forward),
        received("receive", json!({ "link": 2, "maxCount": 1, "waitSeconds": 0 }), Action::Receive),
        received(
            "receiveDeferred",
            json!({ "link": 2, "sequenceNumbers": [99] }),
            Action::ReceiveDeferred,
        ),
        received("settle", settle.clone(), Action::Settle),
        received(
            "settleDelayed",
            json!({ "delayMilliseconds": 1, "settle": settle }),
            Action::Settle,
        ),
        received("renew", json!({ "link": 2, "lockTokens": locks }), Action::RenewLock),
        received("peek", json!({ "link": 2, "from": 0, "maxCount": 1 }), Action::Peek),
        received(
            "peekSession",
            json!({ "link": 2, "sessionId": "s", "from": 0, "maxCount": 1 }),
            Action::Peek,
        ),
        received("deleteBatch", json!({ "link": 2, "maxCount": 1 }), Action::DeleteBatch),
        received("purge", json!({ "link": 2 }), Action::DeleteBatch),
        received(
            "deleteDeferred",
            json!({ "link": 2, "sequenceNumber": 99 }),
            Action::DeleteDeferred,
        ),
        row("renewSession", json!({ "link": session }), Action::HoldSession, sessions),
        row("getSessionState", json!({ "link": session }), Action::HoldSession, sessions),
        row("setSessionState", json!({ "link": session }), Action::HoldSession, sessions),
        received(
            "acceptSession",
            json!({ "link": 14, "path": path, "sessionId": "s" }),
            Action::AcceptSession,
        ),
        row(
            "setSessionStateIn",
            in_it(json!({ "setSessionState": { "link": session } })),
            Action::HoldSession,
            sessions,
        ),
        sent("sendIn", in_it(json!({ "send": messages(1) })), Action::Send),
        received("settleIn", in_it(json!({ "settle": settle })), Action::Settle),
        received(
            "renewIn",
            in_it(json!({ "renew": { "link": 2, "lockTokens": locks } })),
            Action::RenewLock,
        ),
        sent(
            "cancelScheduledIn",
            in_it(json!({ "cancelScheduled": { "link": 1, "sequenceNumbers": [99] } })),
            Action::CancelScheduled,
        ),
        Row { name: "commit", body: in_it(json!({})), needs: vec![(Action::Commit, owner)] },
        received("listSessions", json!({ "path": path }), Action::ListSessions),
        received("deleteUnlocked", json!({ "path": path }), Action::DeleteUnlocked),
    ]
}

/// Returns all other requests. `absent` does not exist, so that a successful delete changes
/// nothing.
fn of_entities(digest: &Value) -> Vec<Row> {
    let row = |name, body, action, at| Row { name, body, needs: vec![(action, at)] };
    let of_q = |name, body, action| row(name, body, action, "q");
    let job = "b".repeat(32);
    let question = |path, question: Value, action| {
        row("inspect", json!({ "path": path, "question": question }), action, path)
    };
    let rule =
        json!({ "path": SUBSCRIPTION, "rule": { "name": "r", "filter": { "type": "true" } } });
    let of_rule = json!({ "path": SUBSCRIPTION, "name": "r" });
    let of_policy = json!({ "path": "q", "name": "p" });
    let declaration = json!({ "queues": [{ "path": "q", "properties": {} }] });
    let forwards = json!({ "path": "q", "properties": { "forwardTo": "sibling" } });
    vec![
        row(
            "attach",
            json!({ "link": 10, "path": "absent", "role": "receiver" }),
            Action::Receive,
            "absent",
        ),
        row(
            "attach",
            json!({ "link": 11, "path": "absent", "role": "sender" }),
            Action::Send,
            "absent",
        ),
        row(
            "attach",
            json!({ "link": 12, "path": "news/Subscriptions/no", "role": "receiver" }),
            Action::Receive,
            "news/Subscriptions/no",
        ),
        Row {
            name: "attachVia",
            body: json!({ "link": 13, "path": "q", "destination": "absent" }),
            needs: vec![(Action::SendVia, "q"), (Action::BeSentTo, "absent")],
        },
        of_q("createQueue", json!({ "path": "q" }), Action::Create),
        of_q("getQueue", json!({ "path": "q" }), Action::Describe),
        of_q("updateQueue", json!({ "path": "q" }), Action::Update),
        Row {
            name: "updateQueue",
            body: forwards,
            needs: vec![(Action::Update, "q"), (Action::BeForwardedTo, "sibling")],
        },
        of_q(
            "updateQueue",
            json!({ "path": "q", "properties": { "forwardTo": null } }),
            Action::Update,
        ),
        row("deleteQueue", json!({ "path": "absent" }), Action::Delete, "absent"),
        row("listQueues", json!({}), Action::List, ""),
        row("createTopic", json!({ "path": "news" }), Action::Create, "news"),
        row("getTopic", json!({ "path": "news" }), Action::Describe, "news"),
        row("updateTopic", json!({ "path": "news" }), Action::Update, "news"),
        row("deleteTopic", json!({ "path": "absent" }), Action::Delete, "absent"),
        row("listTopics", json!({}), Action::List, ""),
        row(
            "createSubscription",
            json!({ "topic": "news", "name": "audit" }),
            Action::Create,
            SUBSCRIPTION,
        ),
        row("getSubscription", json!({ "path": SUBSCRIPTION }), Action::Describe, SUBSCRIPTION),
        row("updateSubscription", json!({ "path": SUBSCRIPTION }), Action::Update, SUBSCRIPTION),
        row(
            "deleteSubscription",
            json!({ "path": "news/Subscriptions/no" }),
            Action::Delete,
            "news/Subscriptions/no",
        ),
        row("listSubscriptions", json!({ "path": "news" }), Action::List, "news"),
        row("createRule", rule.clone(), Action::ChangeRules, SUBSCRIPTION),
        row("updateRule", rule, Action::ChangeRules, SUBSCRIPTION),
        row("getRule", of_rule.clone(), Action::ReadRules, SUBSCRIPTION),
        row("listRules", json!({ "path": SUBSCRIPTION }), Action::ReadRules, SUBSCRIPTION),
        row("deleteRule", of_rule, Action::ChangeRules, SUBSCRIPTION),
        row(
            "explain",
            json!({ "path": SUBSCRIPTION, "message": { "body": "a" } }),
            Action::ReadRules,
            SUBSCRIPTION,
        ),
        of_q("createPolicy", of_policy.clone(), Action::ChangePolicies),
        of_q("updatePolicy", of_policy.clone(), Action::ChangePolicies),
        of_q("deletePolicy", of_policy.clone(), Action::ChangePolicies),
        of_q(
            "regeneratePolicyKey",
            json!({ "path": "q", "name": "p", "key": "primary" }),
            Action::ChangePolicies,
        ),
        of_q("getPolicyKeys", of_policy.clone(), Action::ReadKeys),
        of_q("getPolicy", of_policy, Action::ReadPolicies),
        of_q("listPolicies", json!({ "path": "q" }), Action::ReadPolicies),
        of_q("planDeclaration", json!({ "declaration": declaration }), Action::Plan),
        of_q(
            "carryOutDeclaration",
            json!({ "declaration": declaration, "digest": digest }),
            Action::Plan,
        ),
        question("q", json!({ "heads": {} }), Action::Inspect),
        question("q", json!({ "locks": {} }), Action::Inspect),
        question("q", json!({ "sessions": {} }), Action::Inspect),
        question("q", json!({ "sessionState": { "sessionId": "s" } }), Action::Inspect),
        question("q", json!({ "timeline": {} }), Action::Inspect),
        question("q", json!({ "series": {} }), Action::Inspect),
        question("q", json!({ "journey": { "sequenceNumber": 9 } }), Action::Inspect),
        question("q", json!({ "samples": {} }), Action::Inspect),
        question("q", json!({ "explain": { "sequenceNumber": 9 } }), Action::Inspect),
        question(
            "q",
            json!({ "whatIf": { "changes": [{ "subscription": "s", "remove": "r" }] } }),
            Action::Inspect,
        ),
        question("q", json!({ "body": { "sequenceNumber": 99 } }), Action::Inspect),
        question("q", json!({ "tap": {} }), Action::Inspect),
        question("q", json!({ "search": { "begin": { "where": "x" } } }), Action::Inspect),
        question("", json!({ "entities": {} }), Action::Overview),
        question("", json!({ "clients": {} }), Action::Overview),
        question("", json!({ "topology": {} }), Action::Overview),
        question("", json!({ "checks": {} }), Action::Overview),
        question("", json!({ "audit": {} }), Action::ReadAudit),
        question("", json!({ "jobs": { "one": { "job": job } } }), Action::Inspect),
        question("", json!({ "jobs": { "samples": { "job": job } } }), Action::Inspect),
        of_q("breakLocks", json!({ "path": "q", "sequenceNumbers": [9] }), Action::Operate),
        of_q("breakSession", json!({ "path": "q", "sessionId": "s" }), Action::Operate),
        of_q("setStateOfSession", json!({ "path": "q", "sessionId": "s" }), Action::Operate),
        of_q(
            "act",
            json!({ "path": "q", "act": { "sequenceNumbers": [9], "deed": { "undefer": {} } } }),
            Action::Operate,
        ),
        of_q("forgetJob", json!({ "path": "q", "job": job }), Action::Operate),
        of_q(
            "createJob",
            json!({ "path": "q", "draft": { "where": "", "deed": { "undefer": {} } } }),
            Action::Operate,
        ),
        // The right on the namespace, since no entity has this job.
        row("controlJob", json!({ "job": job, "control": { "pause": {} } }), Action::Operate, ""),
        of_q(
            "muteFinding",
            json!({ "path": "q", "kind": "nearlyFull", "reason": "x" }),
            Action::Operate,
        ),
        of_q("unmuteFinding", json!({ "path": "q", "kind": "nearlyFull" }), Action::Operate),
        row("closeClient", json!({ "client": u64::MAX }), Action::CloseClients, ""),
    ]
}

/// Returns the requests of the protocol, as the reference page lists their codes (section 10).
fn documented() -> BTreeSet<String> {
    let document = include_str!("../../websocket-protocol.md");
    let table = document.split("| Code | Request |").nth(1).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let named =
        lines.flat_map(|line| line.split('|').nth(2).unwrap().split('`').skip(1).step_by(2));
    named.map(str::to_owned).collect()
}

fn rights_of(right: Right) -> Rights {
    if right == Right::Manage { Rights::ALL } else { Rights::of(right) }
}

fn covers(owner: &str, at: &str) -> bool {
    let below = at.strip_prefix(owner);
    owner.is_empty() || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

fn is_met((action, at): (Action, &str), owner: &str, rights: Rights) -> bool {
    allows(action, rights, Ceiling::Admin) && (takes_nothing(action) || covers(owner, at))
}

fn takes_nothing(action: Action) -> bool {
    expected(action).is_some_and(|(one_of, _)| one_of.is_empty())
}

async fn furnished() -> Server {
    let policies = Policies::new();
    let mut plan = Plan::new();
    plan.authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    plan.policies = Some(policies);
    let server = plan.start().await;
    server.broker.create_queue("sibling", QueueUpdate::default()).await.unwrap();
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    server.broker.create_queue("steps", sessions).await.unwrap();
    server.broker.create_topic("news", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("news", "audit", properties, Vec::new()).await.unwrap();
    let sessions =
        SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
    // Sent messages have no session.
    let nothing = RuleDescription::new("nothing", Filter::False, Timestamp::NONE);
    server.broker.create_subscription("news", "steps", sessions, vec![nothing]).await.unwrap();
    for owner in OWNERS {
        for right in Right::ALL {
            let properties = PolicyUpdate::of(rights_of(right))
                .with_keys(KeyText::parse(KEY).ok(), KeyText::parse(RETIRED_KEY).ok());
            let name = format!("{}{owner}", right.name());
            server.broker.create_policy(owner, &name, properties).await.unwrap();
            let which = WhichKey::Secondary;
            server.broker.regenerate_key(owner, &name, which, None).await.unwrap();
        }
    }
    server
}

/// Returns a client with the links of [`on_links`] and a token that is valid everywhere.
async fn linked(server: &Server, at: Place) -> Client {
    let token = sign("Manage", KEY, "sb://x", Timestamp::NEVER);
    let mut client = Client::hello(server.address, json!({ "token": token })).await;
    for (link, path, role) in [(1, at.owner, "sender"), (2, at.path, "receiver")] {
        let attach = json!({ "link": link, "path": path, "role": role });
        assert!(client.ask("attach", attach).await.get("done").is_some());
    }
    let via = json!({ "link": 3, "path": at.owner, "destination": "sibling" });
    assert!(client.ask("attachVia", via).await.get("done").is_some());
    client
}

/// A token, the owner of its policy, its rights, and the entity to which it is restricted.
type Shown = (String, &'static str, Rights, &'static str);

/// Returns the tokens to test: none, invalid ones, and for each owner one for each right,
/// unrestricted and restricted.
fn tokens(at: Place) -> Vec<Shown> {
    let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
    let mut tokens = vec![
        ("".to_owned(), "none", Rights::NONE, ""),
        ("Bearer eyJh.eyJp.c2ln".to_owned(), "none", Rights::NONE, ""),
    ];
    for owner in OWNERS {
        for right in Right::ALL {
            let name = format!("{}{owner}", right.name());
            let narrow = |path: &str| sign(&name, KEY, &format!("amqps://h:5671/{path}/"), latest);
            tokens.push((sign(&name, KEY, "sb://x", latest), owner, rights_of(right), ""));
            let upper = narrow(&at.owner.to_uppercase());
            tokens.push((upper, owner, rights_of(right), at.owner));
            for below in [at.path, at.sessions] {
                if below != at.owner && covers(owner, below) {
                    tokens.push((narrow(below), owner, rights_of(right), below));
                }
            }
        }
    }
    for owner in [at.owner, ""] {
        let name = format!("Manage{owner}");
        for wrong in [
            sign(&name, KEY, "sb://x/elsewhere", latest),
            sign(&name, "another key", "sb://x", latest),
            sign(&name, RETIRED_KEY, "sb://x", latest),
            sign(&name, KEY, "sb://x", past),
        ] {
            tokens.push((wrong, owner, Rights::NONE, ""));
        }
    }
    tokens
}

/// Sends requests with each token over a client with the links of a place; `requests` gets the
/// transaction and the link of the session.
async fn against(
    server: &Server,
    client: &mut Client,
    at: Place,
    requests: impl Fn(&Value, u32) -> Vec<Row>,
) {
    let all = sign("Manage", KEY, "sb://x", Timestamp::NEVER);
    for (session, (token, owner, rights, audience)) in (SESSION_LINK..).zip(tokens(at)) {
        authenticate(server, client, &all).await;
        let name = format!("s{session}");
        let accept = json!({ "link": session, "path": at.sessions, "sessionId": name });
        let accepted = ask(server, client, "acceptSession", accept).await;
        assert!(accepted.get("sessionAccepted").is_some(), "{accepted}");
        authenticate(server, client, &token).await;
        let begun = ask(server, client, "beginTransaction", json!({})).await;
        let transaction = &begun["transaction"]["transaction"];
        for Row { name, mut body, needs } in requests(transaction, session) {
            if name == "setSessionStateIn" {
                // The session belongs to another entity than the other operations.
                let own = ask(server, client, "beginTransaction", json!({})).await;
                body["transaction"] = own["transaction"]["transaction"].clone();
            }
            let allowed = needs.iter().all(|need| {
                let is_for = covers(audience, need.1) || takes_nothing(need.0);
                is_for && is_met(*need, owner, rights)
            });
            let shown = format!("{name} {body} with {token}");
            let answer = ask(server, client, name, body).await.to_string();
            // A list may contain the entities that the token covers.
            let is_list = matches!(needs[0], (Action::List | Action::Overview, ""));
            if is_list && !allowed && !answer.contains("\"Unauthorized\"") {
                let others = ["\"q\"", "\"news\"", "\"sibling\"", "\"steps\""];
                let others = others.map(|it| answer.contains(it));
                assert!(others.iter().filter(|it| **it).count() <= 1, "{shown}: {answer}");
                continue;
            }
            assert_eq!(answer.contains("\"Unauthorized\""), !allowed, "{shown}: {answer}");
            assert!(!answer.contains(KEY), "{shown}: {answer}");
        }
    }
}

/// SEC-01, SEC-03, SEC-05, SEC-07, SEC-09, SEC-14, SEC-15, VIA-02: each request without a valid
/// token, and with a token for each right on its entity, the parent, a sibling and the namespace.
/// Also with a token that has expired, has a wrong signature or a regenerated key, or is for
/// another entity. The broker refuses exactly the requests that the specification refuses, on links
/// that another token has attached. A token that may hold a session can use the session of a link
/// that another token opened.
#[test]
fn every_request_against_every_token() {
    run(async {
        let server = furnished().await;
        let mut client = linked(&server, AT_QUEUE).await;
        let declaration = json!({ "queues": [{ "path": "q", "properties": {} }] });
        let planned = client.ask("planDeclaration", json!({ "declaration": declaration })).await;
        let digest = planned["plan"]["digest"].clone();
        assert!(digest.is_string(), "{planned}");
        let rows = |transaction: &Value, session| {
            let mut rows = on_links(AT_QUEUE, transaction, session);
            rows.extend(of_entities(&digest));
            rows
        };

        let all = rows(&json!(1), SESSION_LINK);
        let mut names: BTreeSet<String> = all.iter().map(|row| row.name.to_owned()).collect();
        names.extend(FREE.map(str::to_owned));
        assert_eq!(names, documented(), "each request of the protocol has a row");
        let asked: BTreeSet<usize> =
            all.iter().flat_map(|row| &row.needs).map(|(action, _)| *action as usize).collect();
        let said = Action::ALL.into_iter().filter(|action| is_asked(*action));
        assert_eq!(asked, said.map(|action| action as usize).collect());
        against(&server, &mut client, AT_QUEUE, rows).await;
        server.stop().await;
    });
}

/// SEC-03, SEC-05, SEC-06, SEC-07, SEC-09, SEC-14, SEC-15, VIA-02: the same on links to a
/// subscription and to its topic. The topic's policies apply to both; a token for the subscription
/// grants nothing on the topic.
#[test]
fn every_request_at_a_subscription_against_every_token() {
    run(async {
        let server = furnished().await;
        let mut client = linked(&server, AT_SUBSCRIPTION).await;
        let rows = |transaction: &Value, session| on_links(AT_SUBSCRIPTION, transaction, session);
        against(&server, &mut client, AT_SUBSCRIPTION, rows).await;
        server.stop().await;
    });
}

/// VIA-02, SEC-07, SEC-15: a link through another entity ends when the token no longer covers the
/// destination, and then sends nothing; with a token that covers both it sends.
#[test]
fn a_link_by_another_entity_ends_with_the_right_at_its_destination() {
    run(async {
        let server = furnished().await;
        let mut client = linked(&server, AT_QUEUE).await;
        let send = || json!({ "link": 3, "messages": [{ "body": "a" }] });
        let stored = async || {
            server.broker.idle_except_store().await;
            server.broker.describe_queue("sibling").await.unwrap().counts.active
        };
        let sent = client.ask("sendBatch", send()).await;
        assert!(!sent.to_string().contains("Unauthorized"), "{sent}");
        let before = stored().await;
        let of_way = sign("Sendq", KEY, "sb://x", Timestamp::NEVER);
        authenticate(&server, &mut client, &of_way).await;
        let refused = ask(&server, &mut client, "sendBatch", send()).await;
        assert!(refused.to_string().contains("\"Unauthorized\""), "{refused}");
        let own = ask(&server, &mut client, "send", json!({ "link": 1, "messages": [{}] })).await;
        assert!(!own.to_string().contains("Unauthorized"), "{own}");
        assert_eq!(stored().await, before);
        let of_all = sign("Send", KEY, "sb://x", Timestamp::NEVER);
        authenticate(&server, &mut client, &of_all).await;
        let sent = ask(&server, &mut client, "sendBatch", send()).await;
        assert!(!sent.to_string().contains("Unauthorized"), "{sent}");
        server.stop().await;
    });
}
