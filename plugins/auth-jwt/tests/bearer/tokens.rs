//! Tests of valid tokens, their rights, and the texts of refusals.

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_auth_jwt::Algorithm;
use peeklock_auth_sas::sign;
use peeklock_core::command::Command;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Principal, Rights};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::policies::{PolicyUpdate, ROOT_POLICY};
use peeklock_core::time::TimeSpan;
use ring::hmac;
use serde_json::{Value, json};

use crate::issuer::{IssuerKey, unsigned};
use crate::rsa;
use crate::world::{AUDIENCE, KeyFile, World, config, refusal, with};

/// SEC-27, SEC-28, SEC-30: a token of the issuer gives exactly the rights of its roles, with and
/// without the scheme `Bearer`.
#[tokio::test]
async fn a_token_gives_the_rights_of_its_roles() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("roles", &[&key]);
    let world = World::new(config(file.source())).await;
    let both = key.sign(&world.claims(&["sender", "orders.reader", "unknown"]));
    for token in [both.clone(), format!("Bearer {both}"), format!(" bearer  {both} ")] {
        for (action, path, is_granted) in [
            (Action::Send, "orders", true),
            (Action::Send, "other", true),
            (Action::Receive, "Orders", true),
            (Action::Receive, "orders/$DeadLetterQueue", true),
            (Action::Receive, "other", false),
            (Action::Create, "orders", false),
        ] {
            let refused = world.refusal(&token, action, path).await;
            assert_eq!(refused.is_none(), is_granted, "{action:?} {path} {refused:?}");
        }
    }
    let all = key.sign(&world.claims(&["all"]));
    assert_eq!(world.refusal(&all, Action::Create, "absent").await, None);
    // A token whose role has no rights is valid but gives nothing.
    for roles in [&["unknown"][..], &[], &["SENDER"]] {
        let token = key.sign(&world.claims(roles));
        let told = world.refusal(&token, Action::Send, "orders").await.unwrap();
        assert!(told.contains("was not granted"), "{told}");
        // SEC-08: the answer is the same for an absent entity.
        assert_eq!(world.refusal(&token, Action::Send, "absent").await, Some(told));
    }
    world.stop().await;
}

/// SEC-30: roles are a text, a list, a list separated by spaces in scope claims, or a member of an
/// object.
#[tokio::test]
async fn roles_are_read_from_the_configured_claims() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("claims", &[&key]);
    let mut config = config(file.source());
    config.role_claims =
        ["scp", "oid", "realm.access.roles", "https://x.example/roles"].map(str::to_owned).into();
    let world = World::new(config).await;
    for (name, value, is_granted) in [
        ("scp", json!("openid  sender"), true),
        ("oid", json!("sender"), true),
        ("oid", json!("openid sender"), false),
        ("realm", json!({"access": {"roles": ["x", 7, "sender"]}}), true),
        ("https://x.example/roles", json!(["sender"]), true),
        ("realm", json!({"access": "sender"}), false),
        ("realm", json!(["sender"]), false),
        ("roles", json!(["sender"]), false),
        ("oid", json!({"sender": true}), false),
        ("oid", json!(7), false),
    ] {
        let claims = with(world.claims(&[]), name, value.clone());
        let refused = world.refusal(&key.sign(&claims), Action::Send, "orders").await;
        assert_eq!(refused.is_none(), is_granted, "{name} {value} {refused:?}");
    }
    world.stop().await;
}

/// SEC-28: Entra signs with RSA and names no algorithm in its keys; only configured algorithms are
/// accepted.
#[tokio::test]
async fn rsa_signs_by_the_algorithms_that_are_named() {
    let file = KeyFile::new("rsa", &[]);
    file.write(&json!({"keys": [rsa::jwk("r")]}).to_string());
    let world = World::new(config(file.source())).await;
    let claims = world.claims(&["all"]);
    let token = rsa::sign("r", "RS256", &claims);
    assert_eq!(world.refusal(&token, Action::Send, "orders").await, None);
    let other = rsa::sign("r", "PS256", &claims);
    let told = world.refusal(&other, Action::Send, "orders").await.unwrap();
    assert!(told.contains("security.jwt.algorithms"), "{told}");
    world.stop().await;
    let mut wider = config(file.source());
    wider.algorithms = vec![Algorithm::Ps256];
    let world = World::new(wider).await;
    assert_eq!(world.refusal(&other, Action::Send, "orders").await, None);
    assert!(world.refusal(&token, Action::Send, "orders").await.is_some());
    world.stop().await;
}

/// SEC-14, SEC-22, SEC-28, SEC-31: each cause of a refusal has its own text, which repeats nothing
/// of the token.
#[tokio::test]
async fn each_failure_has_its_text() {
    let (key, stranger) = (IssuerKey::new("k1"), IssuerKey::new("k1"));
    let file = KeyFile::new("failures", &[&key]);
    let world = World::new(config(file.source())).await;
    let claims = world.claims(&["all"]);
    let good = key.sign(&claims);
    let changed = |name: &str, value: Value| key.sign(&with(claims.clone(), name, value));
    let header = |value: Value| key.sign_as(&value, &claims);
    // A known attack: the public key as an HMAC secret.
    let secret = |bytes: &[u8]| {
        let message = unsigned(&json!({"alg": "HS256", "kid": "k1"}), &claims);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, bytes), message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let none = unsigned(&json!({"alg": "none", "kid": "k1"}), &claims);
    let [body, signature] = ["e30", "AAAA"];
    let mut parts: Vec<&str> = good.split('.').collect();
    parts[1] = body;
    let other_body = parts.join(".");
    let not_json = format!("{}.bm8.{}", parts[0], parts[2]);
    let (start, _) = good.rsplit_once('.').unwrap();
    for (token, text) in [
        (changed("iss", json!("https://issuer.example/tenant")), "another issuer"),
        (changed("iss", Value::Null), "another issuer"),
        (changed("iss", json!([crate::world::ISSUER])), "another issuer"),
        (changed("aud", json!("https://bus.example.evil")), "none of security.jwt.audiences"),
        (changed("aud", json!(["x", "y"])), "none of security.jwt.audiences"),
        (changed("aud", Value::Null), "none of security.jwt.audiences"),
        (changed("exp", Value::Null), "has no claim `exp`"),
        (changed("exp", json!("soon")), "must be numbers of seconds"),
        (changed("exp", json!(-1)), "must be numbers of seconds"),
        (changed("nbf", json!(true)), "must be numbers of seconds"),
        (changed("exp", json!(world.seconds(-60))), "has expired, at 2026-05-01T11:59:00"),
        (changed("nbf", json!(world.seconds(61))), "is not valid before 2026-05-01T12:01:01"),
        (format!("{none}."), "algorithm"),
        (format!("{none}.{signature}"), "algorithm"),
        (secret(key.public()), "algorithm"),
        (secret(b""), "algorithm"),
        (header(json!({"alg": "ES384", "kid": "k1"})), "algorithm"),
        (header(json!({"alg": "RS256", "kid": "k1"})), "does not publish"),
        (header(json!({"alg": "ES256", "kid": "k2"})), "does not publish"),
        (header(json!({"alg": "ES256", "kid": "k1", "crit": ["b64"], "b64": false})), "`crit`"),
        (header(json!({"kid": "k1"})), "must be a JSON object with `alg`"),
        (header(json!({"alg": "ES256", "kid": "k1", "typ": "logout+jwt"})), "not an access token"),
        (header(json!({"alg": "ES256", "kid": "k1", "typ": "id+jwt"})), "not an access token"),
        (
            header(json!({"alg": "ES256", "kid": "k1", "typ": 1})),
            "must be a JSON object with `alg`",
        ),
        (changed("typ", json!("ID")), "not an access token"),
        (changed("typ", json!("Refresh")), "not an access token"),
        (stranger.sign(&claims), "signature of the bearer token is wrong"),
        (stranger.sign_as(&json!({"alg": "ES256", "jwk": stranger.jwk()}), &claims), "is wrong"),
        (other_body, "is wrong"),
        (format!("{start}."), "is wrong"),
        (format!("{start}.{signature}"), "is wrong"),
        (not_json, "is wrong"),
        ("Bearer".to_owned(), "three parts"),
        ("Bearer x".to_owned(), "three parts"),
        (format!("Bearer {good}.x"), "three parts"),
        (format!("Bearer x.{good}"), "three parts"),
        ("Bearer %.e30.AAAA".to_owned(), "Base64 for URLs"),
        (format!("{good}="), "Base64 for URLs"),
        ("eyJ9.e30.AAAA".to_owned(), "its header"),
        (changed("padding", json!("x".repeat(12_300))), "longer than 16 KiB"),
    ] {
        let told = world.refusal(&token, Action::Send, "orders").await;
        let told = told.unwrap_or_else(|| panic!("{text}: {token}"));
        assert!(told.contains(text), "{token}: {told}");
        for secret in ["a-secret-subject", "\"", parts[0], signature] {
            assert!(!told.contains(secret), "{told}");
        }
    }
    // Valid variants.
    for token in [
        changed("aud", json!(["x", AUDIENCE])),
        changed("exp", json!(world.seconds(-59))),
        changed("nbf", json!(world.seconds(60))),
        changed("nbf", Value::Null),
        changed("exp", json!(1e15)),
        header(json!({"alg": "ES256"})),
        header(json!({"alg": "ES256", "kid": "k1", "typ": "at+jwt"})),
        header(json!({"alg": "ES256", "kid": "k1", "typ": "application/AT+JWT"})),
        header(json!({"alg": "ES256", "kid": "k1", "typ": "jwt"})),
        changed("typ", json!("Bearer")),
        changed("padding", json!("x".repeat(11_900))),
    ] {
        assert_eq!(world.refusal(&token, Action::Send, "orders").await, None, "{token}");
    }
    world.stop().await;
}

/// SEC-15, SEC-31: a token is valid until its expiry plus the clock skew. Operations begun with it
/// end at that time.
#[tokio::test]
async fn a_token_ends_at_its_expiry() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("ends", &[&key]);
    let world = World::new(config(file.source())).await;
    let end = f64::from(u32::try_from(world.seconds(60)).unwrap()) + 0.5;
    let token = key.sign(&with(world.claims(&["all"]), "exp", json!(end)));
    let access = world.access(&*token);
    let entity = access.entity("orders", Action::Peek).await.unwrap();
    let peek = || Command::Peek { from: SequenceNumber(0), count_max: 1 };
    world.clock.advance(TimeSpan::from_ms(120_499));
    assert!(entity.call(peek()).await.is_ok());
    assert_eq!(world.refusal(&token, Action::Peek, "orders").await, None);
    world.clock.advance(TimeSpan::from_ms(1));
    assert_eq!(entity.call(peek()).await.unwrap_err().condition(), Condition::Unauthorized);
    let told = refusal(&access, Action::Peek, "orders").await.unwrap();
    assert!(told.contains("has expired, at 2026-05-01T12:01:00.5"), "{told}");
    world.stop().await;
}

/// SEC-17, SEC-27: clients without a bearer token are authorized as before: with a shared access
/// signature, a key, or anonymously. An invalid bearer token does not count as anonymous.
#[tokio::test]
async fn policies_apply_without_bearer_tokens() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("beside", &[&key]);
    let world = World::new(config(file.source())).await;
    let nobody = world.broker.access(Principal::anonymous());
    assert!(world.broker.allows_anonymous());
    assert_eq!(refusal(&nobody, Action::Create, "orders").await, None);
    assert!(world.refusal("Bearer x", Action::Send, "orders").await.is_some());

    let root = world.policies.root_key().unwrap();
    let until = world.in_seconds(60);
    let signed = sign(ROOT_POLICY, root.reveal(), "sb://x", until);
    assert_eq!(world.refusal(&signed, Action::Create, "orders").await, None);
    let wrong = signed.replace("sig=", "sig=A");
    let told = world.refusal(&wrong, Action::Create, "orders").await.unwrap();
    assert!(told.contains("matches no key of a policy"), "{told}");
    let with_key = Principal::anonymous().with_key(ROOT_POLICY, root.reveal());
    let access = world.broker.access(with_key);
    assert_eq!(refusal(&access, Action::Create, "orders").await, None);
    // Anonymous access ends when the first policy exists.
    let update = PolicyUpdate { rights: Some(Rights::ALL), ..PolicyUpdate::default() };
    world.broker.create_policy("", "first", update).await.unwrap();
    assert!(!world.broker.allows_anonymous());
    let good = key.sign(&world.claims(&["all"]));
    assert_eq!(world.refusal(&good, Action::Create, "orders").await, None);
    world.stop().await;
}

/// SEC-26: the answer to a failed attempt is delayed. Valid tokens, also from the same address, and
/// tokens that are valid elsewhere are not.
#[tokio::test]
async fn failed_attempts_wait_and_good_tokens_do_not() {
    let (key, stranger) = (IssuerKey::new("k1"), IssuerKey::new("k1"));
    let file = KeyFile::new("attempts", &[&key]);
    let world = World::new(config(file.source())).await;
    let claims = world.claims(&["all"]);
    let good = key.sign(&claims);
    // The keys have been read, so no answer waits for them.
    assert_eq!(world.refusal(&good, Action::Send, "orders").await, None);
    let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let principal = |token: &str| Principal::anonymous().with_token(token).from_peer(peer);
    let none = format!("{}.", unsigned(&json!({"alg": "none"}), &claims));
    let expired = key.sign(&with(claims.clone(), "exp", json!(1)));
    for (number, token) in
        [&*stranger.sign(&claims), &none, &expired, "Bearer x"].iter().enumerate()
    {
        let bad = principal(token);
        let mut asked = pin!(world.authorizer.authorize(&bad, "orders"));
        let mut is_answered =
            async || poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_ready())).await;
        let wait = 50 * (i64::try_from(number).unwrap() + 1);
        assert!(!is_answered().await, "{token}");
        world.clock.advance(TimeSpan::from_ms(wait - 1));
        assert!(!is_answered().await, "{token}");
        let elsewhere = key.sign(&with(claims.clone(), "aud", json!("elsewhere")));
        for (other, is_good) in [(&good, true), (&elsewhere, false)] {
            let other = principal(other);
            let mut asked = pin!(world.authorizer.authorize(&other, "orders"));
            let answer = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
            assert!(matches!(answer, Poll::Ready(answer) if answer.is_ok() == is_good));
        }
        world.clock.advance(TimeSpan::from_ms(1));
        assert!(is_answered().await, "{token}");
    }
    world.stop().await;
}

/// CON-73, SEC-30: a list contains the entities that the roles cover.
#[tokio::test]
async fn a_list_contains_the_entities_of_the_roles() {
    let key = IssuerKey::new("k1");
    let file = KeyFile::new("lists", &[&key]);
    let world = World::new(config(file.source())).await;
    let resources: Vec<Arc<str>> =
        ["orders", "other", "orders/$DeadLetterQueue"].map(Arc::from).into();
    for (token, expected) in [
        (key.sign(&world.claims(&["orders.reader"])), [true, false, true]),
        (key.sign(&world.claims(&["sender"])), [true; 3]),
        ("Bearer x".to_owned(), [false; 3]),
    ] {
        let principal = Principal::anonymous().with_token(token);
        let grants = world.authorizer.authorize_all(&principal, &resources).await;
        let has_rights: Vec<bool> = grants.iter().map(|grant| !grant.rights.is_none()).collect();
        assert_eq!(has_rights, expected);
    }
    world.stop().await;
}
