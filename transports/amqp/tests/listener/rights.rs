//! Tests of each AMQP operation against tokens that are signed with keys of policies. The expected
//! rights come from the specification, not from the broker's own table.

use std::sync::Arc;

use peeklock_amqp::codec::value::Map;
use peeklock_amqp::performative::{Attach, SenderSettleMode};
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Action, Ceiling, Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{MessageId, Value};
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;

use crate::browsing::browser;
use crate::client::{Client, text};
use crate::expected;
use crate::request::{list, longs, map, uuids, value};
use crate::server::Server;
use crate::sessions::{of_session, raw};
use crate::tokens::{request, status};
use crate::transactions::state;
use crate::websocket;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const LATER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A former key of each policy.
const RETIRED_KEY: &str = "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
/// Handles of `$cbs` and of the first management node.
const CBS: u32 = 0;
const MANAGEMENT: u32 = 2;

/// A place for requests: the entity with policies, which also takes sends, and the entity to
/// receive from.
#[derive(Clone, Copy)]
struct Place {
    owner: &'static str,
    path: &'static str,
}

impl Place {
    /// Entities whose management nodes get all requests, supported or not.
    fn nodes(self) -> Vec<&'static str> {
        let mut nodes = vec![self.path, self.owner];
        nodes.dedup();
        nodes
    }
}

const QUEUE: Place = Place { owner: "orders", path: "orders" };
/// A subscription has no policies; its topic's policies apply.
const SUBSCRIPTION: Place = Place { owner: "news", path: "news/Subscriptions/audit" };

/// An entry of the body of a request.
type Entry = (&'static str, Vec<u8>);
/// Requests, by the name of their operation.
type Asked<'a> = (&'static str, &'a [Entry]);
/// A link on this handle.
type Link = fn(u32, Place) -> Attach;

/// AMQP form of an action.
enum Carried {
    /// A link is attached.
    ByLink(Vec<Link>),
    /// A request is sent to a management node.
    ByRequest(Vec<(&'static str, Vec<Entry>)>),
    /// The action needs no right, or is no operation of AMQP.
    Not,
}

/// A sender to an entity through which messages go to another.
pub fn sender_via(handle: u32, via: &str, destination: &str) -> Attach {
    const DESTINATION: &str = "com.microsoft:transfer-destination-address";
    let properties = Some(Map::of_symbols([(DESTINATION, raw(destination))]));
    Attach { properties, ..Client::sender_of(handle, via) }
}

/// Returns the AMQP form of an action.
fn carried(action: Action) -> Carried {
    let requests = |requests: &[Asked<'_>]| {
        let owned = requests.iter().map(|(name, entries)| (*name, entries.to_vec()));
        Carried::ByRequest(owned.collect())
    };
    let of_session_s = ("session-id", value("s"));
    let rule = map(&[("sql-filter", map(&[("expression", value("a = 1"))]))]);
    match action {
        Action::Send => {
            Carried::ByLink(vec![|handle, at: Place| Client::sender_of(handle, at.owner)])
        }
        Action::SendVia => {
            Carried::ByLink(vec![|handle, at: Place| sender_via(handle, at.owner, "sibling")])
        }
        Action::BeSentTo => {
            Carried::ByLink(vec![|handle, at: Place| sender_via(handle, "sibling", at.owner)])
        }
        Action::Receive => {
            Carried::ByLink(vec![|handle, at: Place| Client::receiver_of(handle, at.path, LOCKED)])
        }
        Action::AcceptSession => {
            Carried::ByLink(vec![|handle, at: Place| of_session(handle, at.path, raw("s"))])
        }
        Action::CancelScheduled => {
            requests(&[("cancel-scheduled-message", &[("sequence-numbers", longs(&[99]))])])
        }
        Action::ReceiveDeferred => {
            requests(&[("receive-by-sequence-number", &[("sequence-numbers", longs(&[99]))])])
        }
        Action::Settle => {
            let completed = ("disposition-status", value("completed"));
            requests(&[("update-disposition", &[completed, ("lock-tokens", uuids(&[1]))])])
        }
        Action::RenewLock => requests(&[("renew-lock", &[("lock-tokens", uuids(&[1]))])]),
        Action::Peek => requests(&[(
            "peek-message",
            &[("from-sequence-number", value(0_i64)), ("message-count", value(1_i32))],
        )]),
        Action::HoldSession => requests(&[
            ("renew-session-lock", std::slice::from_ref(&of_session_s)),
            ("get-session-state", std::slice::from_ref(&of_session_s)),
            ("set-session-state", &[of_session_s.clone(), ("session-state", value(Value::Null))]),
        ]),
        Action::ListSessions => {
            requests(&[("get-message-sessions", &[("top", value(1_i32)), ("skip", value(0_i32))])])
        }
        Action::DeleteBatch => {
            requests(&[("batch-delete-messages", &[("message-count", value(1_i32))])])
        }
        Action::ReadRules => {
            requests(&[("enumerate-rules", &[("top", value(1_i32)), ("skip", value(0_i32))])])
        }
        Action::ChangeOwnRules => requests(&[
            ("add-rule", &[("rule-name", value("r")), ("rule-description", rule)]),
            ("remove-rule", &[("rule-name", value("r"))]),
        ]),
        // Actions of the JSON API, and of the administration over HTTP.
        Action::Forward
        | Action::Inspect
        | Action::DeleteUnlocked
        | Action::DeleteDeferred
        | Action::Create
        | Action::Describe
        | Action::Overview
        | Action::Update
        | Action::Delete
        | Action::List
        | Action::BeForwardedTo
        | Action::ChangeRules
        | Action::ReadPolicies
        | Action::ReadKeys
        | Action::ChangePolicies
        | Action::Operate
        | Action::CloseClients
        | Action::ReadAudit
        | Action::Plan
        | Action::ReadMetrics
        | Action::Internal => Carried::Not,
        // Checked with the actions that they end or carry out.
        Action::End | Action::Commit => Carried::Not,
    }
}

/// Further links for actions that have several forms.
fn more_links() -> [(Action, Link); 2] {
    [
        (Action::Peek, |handle, at: Place| browser(handle, at.path)),
        (Action::Receive, |handle, at: Place| {
            let dead_letters = format!("{}/$DeadLetterQueue", at.path);
            Client::receiver_of(handle, &dead_letters, LOCKED)
        }),
    ]
}

fn rights_of(right: Right) -> Rights {
    if right == Right::Manage { Rights::ALL } else { Rights::of(right) }
}

fn allows(action: Action, rights: Rights) -> bool {
    expected::allows(action, rights, Ceiling::Admin)
}

/// A listener with two queues, a topic and its subscription. Each entity that can have policies has
/// one for each right.
pub async fn start() -> Server {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    let server = Server::start_with_policies(authorizer, &policies).await;
    for queue in ["orders", "sibling"] {
        server.broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    server.broker.create_topic("news", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("news", "audit", properties, Vec::new()).await.unwrap();
    for owner in ["", "orders", "sibling", "news"] {
        for right in Right::ALL {
            let properties = PolicyUpdate::of(rights_of(right))
                .with_keys(KeyText::parse(KEY).ok(), KeyText::parse(RETIRED_KEY).ok());
            // Names are unique to an entity, so that a name shows its owner.
            let name = format!("{}{owner}", right.name());
            server.broker.create_policy(owner, &name, properties).await.unwrap();
            let which = WhichKey::Secondary;
            server.broker.regenerate_key(owner, &name, which, None).await.unwrap();
        }
    }
    server
}

/// Runs a future while time passes, since a refusal is delayed (SEC-26).
pub async fn in_time<T>(server: &Server, what: impl Future<Output = T>) -> T {
    server.clock.while_short_waits_pass(what).await
}

/// A client with both links of `$cbs`.
pub async fn client(server: &Server) -> Client {
    with_cbs(server.client().await).await
}

async fn with_cbs(mut client: Client) -> Client {
    client.sender(CBS, "$cbs").await.unwrap();
    client.receiver(CBS + 1, "$cbs", LOCKED).await.unwrap();
    client.credit(CBS + 1, 0, 100, false).await;
    client
}

/// Puts a token for a path; returns whether it is accepted.
pub async fn put(server: &Server, client: &mut Client, path: &str, token: &str) -> bool {
    let audience = format!("amqp://h:1/{path}");
    let request = request(&audience, token, MessageId::Ulong(1));
    let reply = in_time(server, async {
        client.send(CBS, 0, true, request.as_bytes()).await;
        client.message().await.1
    });
    match status(&reply.await) {
        Value::I32(202) => true,
        Value::I32(401) => false,
        other => panic!("{other:?}"),
    }
}

/// Attaches a link; returns whether it is refused because a right is missing.
pub async fn is_refused(server: &Server, client: &mut Client, attach: Attach) -> bool {
    let is_sender = attach.target.as_ref().and_then(|target| target.address()) != Some("client");
    let answer = in_time(server, async {
        match is_sender {
            true => client.attach_sender(attach).await,
            false => client.attach_receiver(attach).await,
        }
    });
    matches!(answer.await, Err(condition) if condition == UNAUTHORIZED)
}

/// Sends all requests to a management node whose links are attached; each must be refused according
/// to the table.
async fn ask_all(server: &Server, client: &mut Client, node: u32, rights: Rights, token: &str) {
    for action in Action::ALL {
        let Carried::ByRequest(requests) = carried(action) else { continue };
        for (operation, entries) in requests {
            let reply = in_time(server, client.ask(node, operation, &entries)).await;
            assert_eq!(
                reply.status() == 401,
                !allows(action, rights),
                "{operation} with {token}: {}",
                reply.status()
            );
            if reply.status() == 401 {
                assert_eq!(reply.condition(), UNAUTHORIZED);
            }
        }
    }
    let message = map(&[("message", value(Value::Binary(text("b"))))]);
    let schedule = [("messages", list(&[message]))];
    let reply = in_time(server, client.ask(node, "schedule-message", &schedule)).await;
    assert_eq!(reply.status() == 401, !allows(Action::Send, rights), "schedule with {token}");
    // The same in a transaction, whose operations are authorized one by one.
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[1]))];
    for (operation, entries, action) in [
        ("schedule-message", &schedule[..], Action::Send),
        ("update-disposition", &settle[..], Action::Settle),
    ] {
        let id = client.declare().await;
        let within = Some(state(&id, None));
        let asked = client.ask_with(node, operation, &[], within, entries);
        let reply = in_time(server, asked).await;
        assert_eq!(reply.status() == 401, !allows(action, rights), "{operation} in {token}");
        client.discharge(&id, true).await;
    }
}

/// AMQP-82: the requests of these tests cover all operations.
#[test]
fn every_operation_of_a_management_node_is_asked() {
    let mut asked: Vec<String> = vec!["com.microsoft:schedule-message".to_owned()];
    for action in Action::ALL {
        if let Carried::ByRequest(requests) = carried(action) {
            asked.extend(requests.iter().map(|(name, _)| format!("com.microsoft:{name}")));
        }
    }
    asked.sort_unstable();
    let mut all: Vec<String> = peeklock_amqp_testing::exercise::operations().collect();
    all.sort_unstable();
    assert_eq!(asked, all);
}

/// SEC-03, SEC-05, SEC-06, SEC-07, SEC-08, SEC-09, SEC-12, SEC-13, SEC-14, AMQP-21, AMQP-25: each
/// AMQP operation, at a queue and at a subscription with its topic, against each token: none; a
/// token for each right of the entity or its parent, of a sibling, and of the namespace; tokens
/// that have expired, are signed wrongly, are signed with a regenerated key, or are for another
/// entity.
#[tokio::test]
async fn every_operation_against_every_token() {
    let server = start().await;
    for place in [QUEUE, SUBSCRIPTION] {
        for shown in tokens(place) {
            let client = client(&server).await;
            against(&server, client, place, shown).await;
        }
    }
    server.stop().await;
}

/// AMQP-17, SEC-03, SEC-05, SEC-06, SEC-07, SEC-08, SEC-09, SEC-12, SEC-13, SEC-14: the same over
/// WebSocket.
#[tokio::test]
async fn every_operation_against_every_token_over_websocket() {
    let server = start().await;
    for place in [QUEUE, SUBSCRIPTION] {
        for shown in tokens(place) {
            let client = with_cbs(websocket::client(&server).await).await;
            against(&server, client, place, shown).await;
        }
    }
    server.stop().await;
}

/// A token that is put for a path, and the rights that it grants there and below.
struct Shown {
    audience: &'static str,
    token: Option<String>,
    rights: Rights,
}

/// Returns all tokens for a place.
fn tokens(place: Place) -> Vec<Shown> {
    let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
    let Place { owner, path } = place;
    let exactly = format!("amqp://localhost:5672/{}/", owner.to_uppercase());
    let mut tokens = vec![Shown { audience: owner, token: None, rights: Rights::NONE }];
    for right in Right::ALL {
        for of in [owner, "sibling", ""] {
            let name = format!("{}{of}", right.name());
            let held = if of == "sibling" { Rights::NONE } else { rights_of(right) };
            let put = [
                (sign(&name, KEY, "sb://x", latest), held),
                (sign(&name, KEY, &exactly, latest), held),
                (sign(&name, KEY, "sb://x/sibling", latest), Rights::NONE),
                (sign(&name, LATER_KEY, "sb://x", latest), Rights::NONE),
                (sign(&name, RETIRED_KEY, "sb://x", latest), Rights::NONE),
                (sign(&name, KEY, "sb://x", past), Rights::NONE),
            ];
            let put = put.map(|(token, rights)| (owner, token, rights));
            // A token for a subscription does not apply to its topic.
            let below = sign(&name, KEY, &format!("amqps://h:5671/{path}"), latest);
            let below = Some((path, below, held)).filter(|_| path != owner);
            tokens.extend(put.into_iter().chain(below).map(|(audience, token, rights)| Shown {
                audience,
                token: Some(token),
                rights,
            }));
        }
    }
    tokens
}

/// Runs all AMQP operations with a client that has put this token.
async fn against(server: &Server, mut client: Client, place: Place, shown: Shown) {
    let Shown { audience, token, rights } = shown;
    let of_sibling = sign("Managesibling", KEY, "sb://x/sibling", Timestamp::NEVER);
    let is_good = rights != Rights::NONE;
    if let Some(token) = &token {
        assert_eq!(put(server, &mut client, audience, token).await, is_good, "{token}");
    }
    // A send through an entity to another one needs a right on both.
    assert!(put(server, &mut client, "sibling", &of_sibling).await);
    let token = token.unwrap_or_default();
    let rights_at = |path: &str| if path.starts_with(audience) { rights } else { Rights::NONE };
    let mut handle = 10;
    for action in Action::ALL {
        let mut links = match carried(action) {
            Carried::ByLink(links) => links,
            Carried::ByRequest(_) | Carried::Not => Vec::new(),
        };
        let more = more_links().into_iter().filter(|(of, _)| *of == action);
        links.extend(more.map(|(_, link)| link));
        let is_sent = matches!(action, Action::Send | Action::SendVia | Action::BeSentTo);
        let at = if is_sent { place.owner } else { place.path };
        for link in links {
            let refused = is_refused(server, &mut client, link(handle, place)).await;
            assert_eq!(refused, !allows(action, rights_at(at)), "{action:?} at {at} with {token}");
            handle += 1;
        }
    }
    if is_good {
        client.coordinator().await;
    }
    for (node, path) in (MANAGEMENT..).step_by(2).zip(place.nodes()) {
        let (address, rights) = (format!("{path}/$management"), rights_at(path));
        let refused = is_refused(server, &mut client, Client::sender_of(node, &address)).await;
        assert_eq!(refused, rights == Rights::NONE, "{path} with {token}");
        if !refused {
            client.receiver(node + 1, &address, LOCKED).await.unwrap();
            client.credit(node + 1, 0, 100, false).await;
            ask_all(server, &mut client, node, rights, &token).await;
        }
    }
}

/// SEC-15, AMQP-26: a newer token applies to links that were attached before, and requests beyond
/// its rights are refused. An invalid token changes nothing, and a regenerated key grants nothing
/// any more (SEC-09).
#[tokio::test]
async fn every_request_counts_by_the_newest_token() {
    let server = start().await;
    let token = |name: &str| sign(name, KEY, "sb://x/orders", Timestamp::NEVER);
    let wrong = sign("Manage", LATER_KEY, "sb://x/orders", Timestamp::NEVER);
    let mut cases: Vec<_> = Right::ALL.into_iter().map(|right| (right, rights_of(right))).collect();
    // The key of the last one is regenerated.
    cases.push((Right::Send, Rights::NONE));
    for (right, rights) in cases {
        let mut client = client(&server).await;
        assert!(put(&server, &mut client, "orders", &token("Manage")).await);
        client.manager(MANAGEMENT, "orders").await;
        client.coordinator().await;
        let token = token(right.name());
        assert!(put(&server, &mut client, "orders", &token).await);
        assert!(!put(&server, &mut client, "orders", &wrong).await);
        if rights == Rights::NONE {
            let which = WhichKey::Primary;
            server.broker.regenerate_key("", right.name(), which, None).await.unwrap();
        }
        ask_all(&server, &mut client, MANAGEMENT, rights, &token).await;
    }
    server.stop().await;
}
