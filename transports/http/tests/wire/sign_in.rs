//! Console tokens, their roles, and the addresses of downloads.

use peeklock_auth_sas::{SasConfig, sign};
use peeklock_core::contract::{Ceiling, Right};
use peeklock_core::policies::WhichKey;
use peeklock_core::time::{TimeSpan, Timestamp};
use serde_json::{Value, json};

use super::client::Answer;
use super::expected::allows;
use super::matrix::{arrange, json_rows, policy};
use super::server::{Plan, Server};
use super::signed::{KEY, ask, rights_of, start, start_plan};
use super::watch::Stream;

const SIGN_IN: &str = "/$api/v1/sign-in";
const HEADS: &str = "GET /$api/v1/queues/orders/heads";

/// Returns a signed token for the namespace.
fn signed(right: Right) -> String {
    sign(&policy(right, ""), KEY, "sb://x", Timestamp::NEVER)
}

async fn with(server: &Server, head: &str, token: &str, body: &str) -> Answer {
    ask(server, &format!("{head}\nAuthorization: {token}"), body).await
}

async fn sign_in(server: &Server, credentials: &str, body: Value) -> Answer {
    with(server, &format!("POST {SIGN_IN}"), credentials, &body.to_string()).await
}

/// Signs in and returns the console token.
async fn token(server: &Server, credentials: &str, body: Value) -> String {
    let answer = sign_in(server, credentials, body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["token"].as_str().unwrap().to_owned()
}

async fn arranged() -> Server {
    let server = start(SasConfig::closed()).await;
    arrange(&server).await;
    server
}

/// CON-71, CON-72: credentials are exchanged for a token of 256 bits with the highest role that
/// their rights allow, or a lower one; sign-out ends it, and no console token is exchanged again.
#[tokio::test]
async fn credentials_are_exchanged_for_a_console_token() {
    let server = arranged().await;
    for (right, role) in [(Right::Listen, "viewer"), (Right::Manage, "admin")] {
        let answer = sign_in(&server, &signed(right), json!({})).await;
        let view = answer.json();
        assert_eq!((answer.status, &view["role"]), (201, &json!(role)), "{}", answer.text());
        assert_eq!(view["policy"], policy(right, ""));
        let instant = |name: &str| Timestamp::parse(view[name].as_str().unwrap()).unwrap();
        assert_eq!(instant("endsAtUtc").since(instant("nowUtc")), TimeSpan::from_minutes(480));
        let random = view["token"].as_str().unwrap().strip_prefix("Console ").unwrap();
        assert_eq!(random.len(), 43, "256 bits in Base64");
        assert!(!answer.text().contains("sig="), "{}", answer.text());
    }
    let refused = sign_in(&server, &signed(Right::Send), json!({})).await;
    assert_eq!(refused.error(), (401, "Unauthorized".to_owned()));
    let refused = sign_in(&server, &signed(Right::Listen), json!({ "role": "operator" })).await;
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("allow the role viewer, not operator"), "{}", refused.text());
    // The policy of an entity has its role there.
    let narrow = sign(&policy(Right::Listen, "orders"), KEY, "sb://x/orders", Timestamp::NEVER);
    assert_eq!(sign_in(&server, &narrow, json!({})).await.status, 401);
    let narrow = token(&server, &narrow, json!({ "path": "orders" })).await;
    assert_eq!(with(&server, HEADS, &narrow, "").await.status, 200);
    let sibling = "GET /$api/v1/queues/sibling/heads";
    assert_eq!(with(&server, sibling, &narrow, "").await.status, 401);

    let first = token(&server, &signed(Right::Manage), json!({ "role": "viewer" })).await;
    let second = token(&server, &signed(Right::Manage), json!({})).await;
    assert_ne!(first, second);
    let standing = with(&server, &format!("GET {SIGN_IN}"), &first, "").await.json();
    assert_eq!((&standing["role"], &standing["isSignedIn"]), (&json!("viewer"), &json!(true)));
    let again = sign_in(&server, &first, json!({})).await;
    assert_eq!(again.error(), (400, "InvalidOperation".to_owned()), "{}", again.text());
    assert_eq!(with(&server, &format!("DELETE {SIGN_IN}"), &first, "").await.status, 204);
    for (token, status) in [(&first, 401), (&second, 200)] {
        assert_eq!(with(&server, HEADS, token, "").await.status, status);
    }
    // The probes know console tokens, other interfaces do not.
    let health = with(&server, "GET /health", &second, "").await.json();
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"), "{health}");
    assert_eq!(with(&server, "POST /orders/messages", &second, "a").await.status, 401);
    server.stop().await;
}

/// CON-71: a token ends after 30 minutes without use, after 8 hours, with the exchanged credentials,
/// and when the key is regenerated.
#[tokio::test]
async fn console_token_ends_in_time_and_with_its_key() {
    let server = arranged().await;
    let advance = |minutes| server.clock.advance(TimeSpan::from_minutes(minutes));
    let used = token(&server, &signed(Right::Listen), json!({})).await;
    let unused = token(&server, &signed(Right::Listen), json!({})).await;
    let soon = server.broker.now().plus(TimeSpan::from_minutes(10));
    let short = sign(&policy(Right::Listen, ""), KEY, "sb://x", soon);
    let short = token(&server, &short, json!({})).await;
    advance(9);
    assert_eq!(with(&server, HEADS, &short, "").await.status, 200);
    advance(1);
    assert_eq!(with(&server, HEADS, &short, "").await.status, 401);
    advance(19);
    assert_eq!(with(&server, HEADS, &used, "").await.status, 200);
    advance(1);
    assert_eq!(with(&server, HEADS, &unused, "").await.status, 401);
    assert_eq!(with(&server, HEADS, &used, "").await.status, 200);
    for _ in 0..15 {
        advance(29);
        assert_eq!(with(&server, HEADS, &used, "").await.status, 200, "{}", server.broker.now());
    }
    advance(14);
    assert_eq!(with(&server, HEADS, &used, "").await.status, 200, "7 h 59 min");
    advance(1);
    let ended = with(&server, HEADS, &used, "").await;
    assert_eq!(ended.status, 401);
    assert!(ended.text().contains("sign in again"), "{}", ended.text());

    let token = token(&server, &signed(Right::Manage), json!({})).await;
    assert_eq!(with(&server, HEADS, &token, "").await.status, 200);
    let name = policy(Right::Manage, "");
    server.broker.regenerate_key("", &name, WhichKey::Primary, None).await.unwrap();
    assert_eq!(with(&server, HEADS, &token, "").await.status, 401);
    server.stop().await;
}

/// CON-71: an open stream ends with its console token.
#[tokio::test]
async fn stream_ends_with_its_console_token() {
    let server = arranged().await;
    let subjects = || json!([{ "name": "entities" }]);
    let name = policy(Right::Listen, "");
    let (first, second) = (
        token(&server, &signed(Right::Listen), json!({})).await,
        token(&server, &signed(Right::Listen), json!({})).await,
    );
    let (status, mut ended) = Stream::open_with(&server, subjects(), &first).await;
    assert_eq!(status, 200);
    let (_, mut other) = Stream::open_with(&server, subjects(), &second).await;
    ended.event("state").await;
    other.event("state").await;
    assert_eq!(with(&server, &format!("DELETE {SIGN_IN}"), &first, "").await.status, 204);
    assert_eq!(ended.event("end").await["code"], "Unauthorized");
    other.event("clock").await;
    server.broker.regenerate_key("", &name, WhichKey::Primary, None).await.unwrap();
    let end = server.clock.while_short_waits_pass(other.event("end")).await;
    assert_eq!(end["code"], "Unauthorized");
    server.stop().await;
}

/// CON-71: sign-in needs TLS or loopback; a proxy in front of the broker counts if the public URL
/// begins with https.
#[tokio::test]
async fn sign_in_needs_a_confidential_connection() {
    for (public_url, status) in [
        (None, 400),
        (Some("http://bus.example"), 400),
        (Some("https://bus.example"), 201),
        (Some("HTTPS://bus.example"), 201),
    ] {
        let mut plan = Plan::new();
        plan.config.public_url = public_url.map(str::to_owned);
        let server = start_plan(plan, SasConfig::closed()).await;
        arrange(&server).await;
        let head = format!("POST {SIGN_IN}\nX-Forwarded-For: 10.0.0.1");
        let answer = with(&server, &head, &signed(Right::Listen), "{}").await;
        assert_eq!(answer.status, status, "{public_url:?} {}", answer.text());
        let local = sign_in(&server, &signed(Right::Listen), json!({})).await;
        assert_eq!(local.status, 201, "{}", local.text());
        server.stop().await;
    }
}

/// CON-71, SEC-26: unknown console tokens and wrong signatures are answered later, valid ones at
/// once.
#[tokio::test]
async fn failed_sign_ins_are_slowed() {
    let server = arranged().await;
    let valid = token(&server, &signed(Right::Listen), json!({})).await;
    let unknown = format!("Console {}", "A".repeat(43));
    let wrong = signed(Right::Listen).replace("sig=", "sig=A");
    for head in [
        format!("{HEADS}\nAuthorization: {unknown}"),
        format!("POST {SIGN_IN}\nAuthorization: {unknown}"),
        format!("POST {SIGN_IN}\nAuthorization: {wrong}"),
    ] {
        let mut asked = Box::pin(server.ask(&head, ""));
        for _ in 0..200 {
            assert!(futures_util::poll!(&mut asked).is_pending(), "{head}");
            tokio::task::yield_now().await;
        }
        // The clock stands still for it, and others are served.
        assert_eq!(server.ask(&format!("{HEADS}\nAuthorization: {valid}"), "").await.status, 200);
        let answer = server.clock.while_short_waits_pass(asked).await;
        assert_eq!(answer.status, 401, "{head}");
    }
    server.stop().await;
}

/// CON-71: a further console token of a policy ends the token that is unused longest.
#[tokio::test]
async fn console_tokens_of_a_policy_are_bounded() {
    let server = arranged().await;
    let first = token(&server, &signed(Right::Listen), json!({})).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    let second = token(&server, &signed(Right::Listen), json!({})).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    for _ in 2..64 {
        token(&server, &signed(Right::Listen), json!({})).await;
    }
    server.clock.advance(TimeSpan::from_seconds(1));
    assert_eq!(with(&server, HEADS, &first, "").await.status, 200, "64 are kept");
    token(&server, &signed(Right::Listen), json!({})).await;
    assert_eq!(with(&server, HEADS, &second, "").await.status, 401);
    assert_eq!(with(&server, HEADS, &first, "").await.status, 200);
    server.stop().await;
}

/// CON-72, CON-80: every operation of the JSON API with each role of each policy is refused exactly
/// where the rights or the role do not allow it.
#[tokio::test]
async fn every_operation_against_every_role() {
    let server = arranged().await;
    let rows = json_rows(&server).await;
    let roles =
        [("viewer", Ceiling::Viewer), ("operator", Ceiling::Operator), ("admin", Ceiling::Admin)];
    for (right, highest) in [(Right::Listen, Ceiling::Viewer), (Right::Manage, Ceiling::Admin)] {
        for (role, ceiling) in roles {
            let answer = sign_in(&server, &signed(right), json!({ "role": role })).await;
            if ceiling > highest {
                assert_eq!(answer.status, 401, "{right:?} as {role}");
                continue;
            }
            let token = answer.json()["token"].as_str().unwrap().to_owned();
            for row in &rows {
                let allowed_as = |ceiling| {
                    row.needs.iter().all(|(action, _)| allows(*action, rights_of(right), ceiling))
                };
                let allowed = allowed_as(ceiling);
                let answer = with(&server, &row.head, &token, &row.body).await;
                let shown = || format!("{} as {role}: {}", row.head, answer.text());
                assert_eq!(answer.status == 401, !allowed, "{}", shown());
                if !allowed && allowed_as(Ceiling::Admin) {
                    assert!(answer.text().contains("requires the role"), "{}", shown());
                }
                if !row.head.starts_with("GET") && answer.status < 300 {
                    arrange(&server).await;
                }
            }
        }
    }
    server.stop().await;
}

/// CON-73: with `console.unlock` the token of an admin has the role viewer until it is
/// unlocked, for 15 minutes or until it is locked again. Signed tokens keep their rights, and a
/// client without credentials is never admin.
#[tokio::test]
async fn an_admin_looks_until_it_unlocks() {
    const UNLOCK: &str = "/$api/v1/sign-in/unlock";
    let mut plan = Plan::new();
    plan.config.needs_unlock = true;
    let server = start_plan(plan, SasConfig::closed()).await;
    arrange(&server).await;
    let admin = token(&server, &signed(Right::Manage), json!({})).await;
    let viewer = token(&server, &signed(Right::Listen), json!({})).await;
    let change = async |credentials: &str, name: &str| {
        with(&server, &format!("PUT /$api/v1/queues/{name}"), credentials, "{}").await.status
    };
    let unlock =
        async |credentials: &str| with(&server, &format!("POST {UNLOCK}"), credentials, "").await;
    let standing = async || with(&server, &format!("GET {SIGN_IN}"), &admin, "").await.json();
    assert_eq!(with(&server, HEADS, &admin, "").await.status, 200);
    assert_eq!(change(&admin, "a").await, 401);
    assert_eq!(change(&signed(Right::Manage), "a").await, 201);
    let before = standing().await;
    assert_eq!((&before["role"], &before["isLocked"]), (&json!("viewer"), &json!(true)));

    let unlocked = unlock(&admin).await;
    assert_eq!(unlocked.status, 200, "{}", unlocked.text());
    let unlocked = unlocked.json();
    assert_eq!((&unlocked["role"], &unlocked["isLocked"]), (&json!("admin"), &json!(false)));
    assert_eq!(change(&admin, "b").await, 201);
    server.clock.advance(TimeSpan::from_ms(15 * 60_000 - 1));
    assert_eq!(change(&admin, "c").await, 201);
    server.clock.advance(TimeSpan::from_ms(1));
    assert_eq!(change(&admin, "d").await, 401);
    assert_eq!(standing().await["isLocked"], true);

    assert_eq!(unlock(&admin).await.status, 200);
    assert_eq!(change(&admin, "d").await, 201);
    assert_eq!(with(&server, &format!("DELETE {UNLOCK}"), &admin, "").await.status, 204);
    assert_eq!(change(&admin, "e").await, 401);

    for (credentials, status) in [(viewer, 400), (signed(Right::Manage), 400)] {
        assert_eq!(unlock(&credentials).await.status, status);
    }
    let other = arranged().await;
    let admin = token(&other, &signed(Right::Manage), json!({})).await;
    let refused = with(&other, &format!("POST {UNLOCK}"), &admin, "").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("console.unlock"), "{}", refused.text());
    other.stop().await;
    server.stop().await;

    let mut plan = Plan::new();
    plan.config.needs_unlock = true;
    let open = plan.start().await;
    let standing = open.ask(&format!("GET {SIGN_IN}"), "").await.json();
    assert_eq!((&standing["role"], &standing["isLocked"]), (&json!("viewer"), &json!(false)));
    open.stop().await;
}

/// CON-73: without credentials a client is admin on loopback and viewer elsewhere, or has the role
/// of the setting; read_only makes everybody a viewer of the JSON API, and of nothing else.
#[tokio::test]
async fn settings_limit_roles() {
    const LOCAL: &str = "";
    const ELSEWHERE: &str = "\nX-Forwarded-For: 10.0.0.1";
    for (anonymous, role_max, from, role) in [
        (None, Ceiling::Admin, LOCAL, "admin"),
        (None, Ceiling::Admin, ELSEWHERE, "viewer"),
        (Some(Ceiling::Operator), Ceiling::Admin, LOCAL, "operator"),
        (Some(Ceiling::Admin), Ceiling::Admin, ELSEWHERE, "admin"),
        (Some(Ceiling::Admin), Ceiling::Viewer, LOCAL, "viewer"),
    ] {
        let mut plan = Plan::new();
        (plan.config.anonymous_role, plan.config.role_max) = (anonymous, role_max);
        let server = plan.start().await;
        let standing = server.ask(&format!("GET {SIGN_IN}{from}"), "").await.json();
        assert_eq!(standing["role"], role, "{anonymous:?} {role_max:?} {from}");
        assert_eq!(standing["isSignedIn"], false);
        for (head, least) in [
            ("GET /$api/v1/queues/q/heads", "viewer"),
            ("POST /$api/v1/queues/q/messages/receive", "operator"),
            ("PUT /$api/v1/queues/fresh", "admin"),
        ] {
            let answer = server.ask(&format!("{head}{from}"), "{}").await;
            let allowed = Ceiling::named(role) >= Ceiling::named(least);
            assert_eq!(answer.status < 300, allowed, "{head} as {role}: {}", answer.text());
            assert_eq!(answer.status == 401, !allowed, "{head} as {role}: {}", answer.text());
        }
        assert_eq!(server.ask(&format!("POST /q/messages{from}"), "a").await.status, 201);
        server.stop().await;
    }
    let mut plan = Plan::new();
    plan.config.role_max = Ceiling::Viewer;
    let server = start_plan(plan, SasConfig::closed()).await;
    arrange(&server).await;
    let send = "POST /$api/v1/queues/orders/messages";
    for credentials in
        [signed(Right::Manage), token(&server, &signed(Right::Manage), json!({})).await]
    {
        assert_eq!(with(&server, HEADS, &credentials, "").await.status, 200);
        assert_eq!(with(&server, send, &credentials, "{}").await.status, 401);
    }
    let rest = with(&server, "POST /orders/messages", &signed(Right::Manage), "a").await;
    assert_eq!(rest.status, 201);
    server.stop().await;
}

/// CON-69, CON-71: the address of a download serves one body once, within 60 s, with the rights of
/// the client that made it.
#[tokio::test]
async fn download_address_is_for_one_use() {
    let server = arranged().await;
    let post = "POST /$api/v1/queues/orders/messages";
    let sent = with(&server, post, &signed(Right::Manage), r#"{"body": "<b>hi</b>"}"#).await;
    assert_eq!(sent.status, 201, "{}", sent.text());
    let viewer = token(&server, &signed(Right::Listen), json!({})).await;
    let address = async |path: &str, token: &str| {
        let body = json!({ "path": path }).to_string();
        with(&server, "POST /$api/v1/downloads", token, &body).await
    };
    let fetch = async |made: &Answer| {
        let path = made.json()["path"].as_str().unwrap().to_owned();
        ask(&server, &format!("GET /$api/v1/{path}"), "").await
    };
    const BODY: &str = "queues/orders/messages/1/body";
    let made = address(BODY, &viewer).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let body = fetch(&made).await;
    assert_eq!((body.status, body.text()), (200, "<b>hi</b>"));
    assert_eq!(body.header("content-type"), Some("application/octet-stream"));
    assert_eq!(body.header("content-disposition"), Some("attachment"));
    assert_eq!(fetch(&made).await.status, 404, "it was used");
    let made = address(BODY, &viewer).await;
    server.clock.advance(TimeSpan::from_seconds(59));
    assert_eq!(fetch(&made).await.status, 200);
    let made = address(BODY, &viewer).await;
    server.clock.advance(TimeSpan::from_seconds(60));
    assert_eq!(fetch(&made).await.status, 404, "it is too late");
    let made = address(BODY, &viewer).await;
    with(&server, &format!("DELETE {SIGN_IN}"), &viewer, "").await;
    assert_eq!(fetch(&made).await.status, 401, "the token has ended");
    assert_eq!(address(BODY, &viewer).await.status, 401);
    assert_eq!(address(BODY, &signed(Right::Send)).await.status, 401);
    for path in ["queues/orders", "queues/orders/heads", "policies/p/keys", "../health", ""] {
        assert_eq!(address(path, &signed(Right::Manage)).await.status, 400, "{path}");
    }
    let address = ask(&server, "GET /$api/v1/downloads/none", "").await;
    assert_eq!(address.status, 404);
    server.stop().await;
}
