//! Every operation of AMQP against tokens that are signed with keys of policies; what it takes is expected by the
//! specification, and not by the table that the broker decides by.

use std::sync::Arc;

use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::{Attach, SenderSettleMode};
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::contract::{Action, Ceiling, Right, Rights, expected};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::{MessageId, Value};
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::time::Timestamp;

use crate::browsing::browser;
use crate::client::{Client, text};
use crate::request::{list, longs, map, uuids, value};
use crate::server::Server;
use crate::sessions::of_session;
use crate::tokens::{request, status};
use crate::transactions::state;
use crate::websocket;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const LATER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A key that each policy has had.
const RETIRED_KEY: &str = "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
/// The handles of `$cbs`, and of the management node of `orders`.
const CBS: u32 = 0;
const MANAGEMENT: u32 = 2;

/// An entry of the body of a request.
type Entry = (&'static str, Vec<u8>);
/// A request, by the name of its operation.
type Asked<'a> = (&'static str, &'a [Entry]);
/// A link on this handle.
type Link = fn(u32) -> Attach;

/// How an action is carried over AMQP.
enum Carried {
    /// A link is attached for it.
    ByLink(Vec<Link>),
    /// It is asked of a management node.
    ByRequest(Vec<(&'static str, Vec<Entry>)>),
    /// It takes no right, or it is no operation of AMQP.
    Not,
}

fn raw(value: impl Into<Value>) -> Raw {
    Raw::encoded(|bytes| value.into().encode_to(bytes))
}

/// A sender to an entity by way of which messages go to another.
pub fn sender_via(handle: u32, via: &str, destination: &str) -> Attach {
    const DESTINATION: &str = "com.microsoft:transfer-destination-address";
    let properties = Some(Map::of_symbols([(DESTINATION, raw(destination))]));
    Attach { properties, ..Client::sender_of(handle, via) }
}

/// What carries an action out on `orders`.
fn carried(action: Action) -> Carried {
    let requests = |requests: &[Asked<'_>]| {
        let owned = requests.iter().map(|(name, entries)| (*name, entries.to_vec()));
        Carried::ByRequest(owned.collect())
    };
    let of_session_s = ("session-id", value("s"));
    let rule = map(&[("sql-filter", map(&[("expression", value("a = 1"))]))]);
    match action {
        Action::Send => Carried::ByLink(vec![|handle| Client::sender_of(handle, "orders")]),
        Action::SendVia => Carried::ByLink(vec![|handle| sender_via(handle, "orders", "sibling")]),
        Action::BeSentTo => Carried::ByLink(vec![|handle| sender_via(handle, "sibling", "orders")]),
        Action::Receive => {
            Carried::ByLink(vec![|handle| Client::receiver_of(handle, "orders", LOCKED)])
        }
        Action::AcceptSession => {
            Carried::ByLink(vec![|handle| of_session(handle, "orders", raw("s"))])
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
        Action::ChangeRules => requests(&[
            ("add-rule", &[("rule-name", value("r")), ("rule-description", rule)]),
            ("remove-rule", &[("rule-name", value("r"))]),
        ]),
        // Of the JSON API, and of the administration over HTTP.
        Action::Forward
        | Action::DeleteUnlocked
        | Action::DeleteDeferred
        | Action::Create
        | Action::Describe
        | Action::Overview
        | Action::Update
        | Action::Delete
        | Action::List
        | Action::BeForwardedTo
        | Action::ReadPolicies
        | Action::ReadKeys
        | Action::ChangePolicies
        | Action::Plan
        | Action::ReadMetrics
        | Action::Internal => Carried::Not,
        // Asked for what they end and carry out.
        Action::End | Action::Commit => Carried::Not,
    }
}

/// The same for what several operations take, in more than one way.
fn more_links() -> [(Action, Link); 2] {
    [
        (Action::Peek, |handle| browser(handle, "orders")),
        (Action::Receive, |handle| Client::receiver_of(handle, "orders/$DeadLetterQueue", LOCKED)),
    ]
}

fn rights_of(right: Right) -> Rights {
    if right == Right::Manage { Rights::ALL } else { Rights::of(right) }
}

pub fn allows(action: Action, rights: Rights) -> bool {
    expected::allows(action, rights, Ceiling::Admin)
}

/// A listener with queues and policies of each right, of them and of the namespace.
async fn start() -> Server {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    let server = Server::start_with_policies(authorizer, &policies).await;
    for queue in ["orders", "sibling"] {
        server.broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    for owner in ["", "orders", "sibling"] {
        for right in Right::ALL {
            let properties = PolicyUpdate {
                rights: Some(rights_of(right)),
                primary_key: KeyText::parse(KEY).ok(),
                secondary_key: KeyText::parse(RETIRED_KEY).ok(),
            };
            // Of an entity each has a name of its own, so that a name tells where it is.
            let name = format!("{}{owner}", right.name());
            server.broker.create_policy(owner, &name, properties).await.unwrap();
            let which = WhichKey::Secondary;
            server.broker.regenerate_key(owner, &name, which, None).await.unwrap();
        }
    }
    server
}

/// Does something while time passes, for what is refused waits (SEC-26).
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

/// Puts a token for a path; whether it is taken.
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

/// Attaches a link; whether it is refused for want of a right.
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

/// Asks everything of the management node, whose links are there; each is refused where the table says so.
async fn ask_all(server: &Server, client: &mut Client, rights: Rights, token: &str) {
    for action in Action::ALL {
        let Carried::ByRequest(requests) = carried(action) else { continue };
        for (operation, entries) in requests {
            let reply = in_time(server, client.ask(MANAGEMENT, operation, &entries)).await;
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
    let reply = in_time(server, client.ask(MANAGEMENT, "schedule-message", &schedule)).await;
    assert_eq!(reply.status() == 401, !allows(Action::Send, rights), "schedule with {token}");
    // The same within a transaction, each operation of which is asked for by itself.
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[1]))];
    for (operation, entries, action) in [
        ("schedule-message", &schedule[..], Action::Send),
        ("update-disposition", &settle[..], Action::Settle),
    ] {
        let id = client.declare().await;
        let within = Some(state(&id, None));
        let asked = client.ask_with(MANAGEMENT, operation, &[], within, entries);
        let reply = in_time(server, asked).await;
        assert_eq!(reply.status() == 401, !allows(action, rights), "{operation} in {token}");
        client.discharge(&id, true).await;
    }
}

/// AMQP-82: what is asked here is all that can be asked.
#[test]
fn every_operation_of_a_management_node_is_asked() {
    let mut asked: Vec<String> = vec!["com.microsoft:schedule-message".to_owned()];
    for action in Action::ALL {
        if let Carried::ByRequest(requests) = carried(action) {
            asked.extend(requests.iter().map(|(name, _)| format!("com.microsoft:{name}")));
        }
    }
    asked.sort_unstable();
    let mut all: Vec<String> = peeklock_amqp::exercise::operations().collect();
    all.sort_unstable();
    assert_eq!(asked, all);
}

/// SEC-05, SEC-08, SEC-09, SEC-12, SEC-13, SEC-14, AMQP-21, AMQP-25: every operation that AMQP carries, with no token
/// and with one of each right of the entity, of a sibling and of the namespace, with one that has expired, is signed
/// wrongly or by a key that was regenerated, is for something else.
#[tokio::test]
async fn every_operation_against_every_token() {
    let server = start().await;
    for (token, rights) in tokens() {
        let client = client(&server).await;
        against(&server, client, token, rights).await;
    }
    server.stop().await;
}

/// AMQP-17, SEC-05, SEC-08, SEC-09, SEC-12, SEC-13, SEC-14: the same over WebSocket.
#[tokio::test]
async fn every_operation_against_every_token_over_websocket() {
    let server = start().await;
    for (token, rights) in tokens() {
        let client = with_cbs(websocket::client(&server).await).await;
        against(&server, client, token, rights).await;
    }
    server.stop().await;
}

/// What is tried, and what of `orders` it gives.
fn tokens() -> Vec<(Option<String>, Rights)> {
    let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
    let mut tokens = vec![(None, Rights::NONE)];
    for right in Right::ALL {
        for owner in ["orders", "sibling", ""] {
            let name = format!("{}{owner}", right.name());
            let held = if owner == "sibling" { Rights::NONE } else { rights_of(right) };
            tokens.extend([
                (Some(sign(&name, KEY, "sb://x", latest)), held),
                (Some(sign(&name, KEY, "amqp://localhost:5672/Orders/", latest)), held),
                (Some(sign(&name, KEY, "sb://x/sibling", latest)), Rights::NONE),
                (Some(sign(&name, LATER_KEY, "sb://x", latest)), Rights::NONE),
                (Some(sign(&name, RETIRED_KEY, "sb://x", latest)), Rights::NONE),
                (Some(sign(&name, KEY, "sb://x", past)), Rights::NONE),
            ]);
        }
    }
    tokens
}

/// Everything that AMQP carries, by a client who shows that token.
async fn against(server: &Server, mut client: Client, token: Option<String>, rights: Rights) {
    let of_sibling = sign("Managesibling", KEY, "sb://x/sibling", Timestamp::NEVER);
    let is_good = rights != Rights::NONE;
    if let Some(token) = &token {
        assert_eq!(put(server, &mut client, "orders", token).await, is_good, "{token}");
    }
    // What goes by way of the one to the other takes a right on both.
    assert!(put(server, &mut client, "sibling", &of_sibling).await);
    let token = token.unwrap_or_default();
    let mut handle = 10;
    for action in Action::ALL {
        let mut links = match carried(action) {
            Carried::ByLink(links) => links,
            Carried::ByRequest(_) | Carried::Not => Vec::new(),
        };
        let more = more_links().into_iter().filter(|(of, _)| *of == action);
        links.extend(more.map(|(_, link)| link));
        for link in links {
            let refused = is_refused(server, &mut client, link(handle)).await;
            assert_eq!(refused, !allows(action, rights), "{action:?} with {token}");
            handle += 1;
        }
    }
    let management = Client::sender_of(MANAGEMENT, "orders/$management");
    let refused = is_refused(server, &mut client, management).await;
    assert_eq!(refused, !is_good, "{token}");
    if is_good {
        client.receiver(MANAGEMENT + 1, "orders/$management", LOCKED).await.unwrap();
        client.credit(MANAGEMENT + 1, 0, 100, false).await;
        client.coordinator().await;
        ask_all(server, &mut client, rights, &token).await;
    }
}

/// SEC-15, AMQP-26: a newer token counts on links that were there before it, and what it does not give is refused; one
/// that is not good changes nothing, and a key that is regenerated gives nothing any more (SEC-09).
#[tokio::test]
async fn every_request_counts_by_the_newest_token() {
    let server = start().await;
    let token = |name: &str| sign(name, KEY, "sb://x/orders", Timestamp::NEVER);
    let wrong = sign("Manage", LATER_KEY, "sb://x/orders", Timestamp::NEVER);
    let mut cases: Vec<_> = Right::ALL.into_iter().map(|right| (right, rights_of(right))).collect();
    // The last one's key is regenerated.
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
        ask_all(&server, &mut client, rights, &token).await;
    }
    server.stop().await;
}
