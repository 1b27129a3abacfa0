//! Tests of tokens against a broker: rights, duration, and texts of refusals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use peeklock_auth_sas::{ConnectionString, SasAuthorizer, SasConfig, sign};
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Principal, Requirement, Right, Rights};
use peeklock_core::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::management::{Managed, Management, Page};
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, ROOT_POLICY, WhichKey};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker};

/// The key of the published examples for this signature.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

struct World {
    broker: Broker,
    policies: Policies,
    clock: Arc<ManualClock>,
    authorizer: Arc<SasAuthorizer>,
}

impl World {
    /// Starts a broker with the queues `orders` and `other` and the topic `t` with the subscription
    /// `s`.
    async fn new(config: SasConfig) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let policies = Policies::new();
        let authorizer = Arc::new(SasAuthorizer::new(&policies, config));
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .policies(&policies)
            .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
            .start()
            .await
            .unwrap();
        for queue in ["orders", "other"] {
            broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
        }
        broker.create_topic("t", TopicUpdate::default()).await.unwrap();
        let none = SubscriptionUpdate::default();
        broker.create_subscription("t", "s", none, Vec::new()).await.unwrap();
        Self { broker, policies, clock, authorizer }
    }

    /// Adds policies, which ends anonymous access: `all` with all rights for each owner, and one
    /// policy per right for `orders`.
    async fn with_policies() -> Self {
        let world = Self::new(SasConfig::closed()).await;
        for owner in ["", "orders", "other", "t"] {
            world.create(owner, "all", Rights::ALL).await;
        }
        for right in Right::ALL {
            let rights = if right == Right::Manage { Rights::ALL } else { Rights::of(right) };
            world.create("orders", right.name(), rights).await;
        }
        world
    }

    async fn create(&self, owner: &str, name: &str, rights: Rights) {
        let properties = PolicyUpdate { rights: Some(rights), ..PolicyUpdate::default() };
        self.broker.create_policy(owner, name, properties).await.unwrap();
    }

    async fn key(&self, owner: &str, name: &str, which: WhichKey) -> KeyText {
        self.broker.policy_keys(owner, name).await.unwrap().key(which).clone()
    }

    /// Returns a token of a policy's primary key, valid for a minute.
    async fn token(&self, owner: &str, name: &str, audience: &str) -> String {
        let key = self.key(owner, name, WhichKey::Primary).await;
        sign(name, key.reveal(), audience, self.in_seconds(60))
    }

    fn in_seconds(&self, seconds: i64) -> Timestamp {
        self.clock.now().plus(TimeSpan::from_seconds(seconds))
    }

    fn access(&self, token: impl Into<Arc<str>>) -> Access {
        self.broker.access(Principal::anonymous().with_token(token))
    }

    async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// Returns the text of a refusal, or `None` if the action is permitted.
async fn refusal(access: &Access, action: Action, path: &str) -> Option<String> {
    let answer = access.allow(action, path).await;
    let error: BrokerError = answer.err()?;
    assert_eq!(error.condition(), Condition::Unauthorized);
    Some(error.detail().to_owned())
}

/// SEC-10, SEC-11: compares with a signature from another program: HMAC-SHA256 with the text of the
/// key over the encoded resource, a line feed, and the expiry.
#[test]
fn a_token_is_signed_as_others_sign_it() {
    let until = Timestamp::from_unix_ms(1_777_640_460_000);
    let token = sign("all", KEY, "sb://localhost/orders", until);
    // openssl dgst -sha256 -hmac "$KEY" -binary | base64, of "sb%3A%2F%2Flocalhost%2Forders\n1777640460".
    let signature = "Y5wlVXOpwAHQk%2FBvFCNNdGkcUZTKy7n2UTDrx%2FTwTRM%3D";
    let expected = format!(
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig={signature}&se=1777640460&skn=all"
    );
    assert_eq!(token, expected);
}

/// SEC-10, SEC-12: fields may be in any order, percent-encoded in any case. Both keys of a policy
/// sign.
#[tokio::test]
async fn fields_stand_in_any_order() {
    let world = World::with_policies().await;
    for which in WhichKey::ALL {
        let key = world.key("orders", "all", which).await;
        let token = sign("all", key.reveal(), "sb://x/orders", world.in_seconds(60));
        assert_eq!(refusal(&world.access(&*token), Action::Send, "orders").await, None);
        let fields = token.strip_prefix("SharedAccessSignature ").unwrap();
        let mut fields: Vec<&str> = fields.split('&').collect();
        fields.reverse();
        fields.push("extra=1");
        let token = format!("sharedaccesssignature {}", fields.join("&"));
        assert_eq!(refusal(&world.access(token), Action::Send, "orders").await, None);
    }
    // Variants of other clients: a trailing `&`, and no Base64 padding.
    let good = world.token("orders", "all", "sb://x/orders").await;
    let unpadded = good.replace("%3D&", "&");
    assert_ne!(unpadded, good);
    for token in [format!("{good}&"), format!("{unpadded}& "), unpadded] {
        assert_eq!(refusal(&world.access(token), Action::Send, "orders").await, None);
    }
    for token in [format!("{good}&&"), good.replacen("&", "&&", 1)] {
        assert!(refusal(&world.access(token), Action::Send, "orders").await.is_some());
    }
    // Other clients encode in lower case.
    let key = world.key("orders", "all", WhichKey::Primary).await;
    let seconds = world.in_seconds(60).unix_ms() / 1_000;
    let resource = "sb%3a%2f%2fx%2forders";
    let signature = hmac(key.reveal(), &format!("{resource}\n{seconds}"));
    let signature = signature.replace('+', "%2b").replace('/', "%2f").replace('=', "%3d");
    let token = format!("SharedAccessSignature sr={resource}&sig={signature}&se={seconds}&skn=all");
    assert_eq!(refusal(&world.access(token), Action::Send, "orders").await, None);
    world.stop().await;
}

/// Computes a signature independently of the tested code.
fn hmac(key: &str, text: &str) -> String {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes())
}

/// SEC-05, SEC-08, SEC-12, SEC-13, SEC-14: every action with tokens of policies of the entity, its
/// parent, a sibling and the namespace; valid, expired, wrongly signed, with a regenerated key, and
/// for another resource. An absent entity gives the same answers.
#[tokio::test]
async fn every_action_against_every_token() {
    let world = World::with_policies().await;
    let owners = [("orders", "orders"), ("other", "other"), ("", ""), ("t", "t/Subscriptions/s")];
    for (owner, _) in owners {
        for (target, path) in owners {
            for action in Action::ALL {
                if matches!(action.needs(), Requirement::Nothing | Requirement::BrokerItself) {
                    continue;
                }
                // A queue's policy does not apply to other queues or to the namespace.
                let holds = owner.is_empty() || owner == target;
                let good = world.token(owner, "all", "sb://x").await;
                let refused = refusal(&world.access(good), action, path).await;
                assert_eq!(refused.is_none(), holds, "{owner} {path} {action:?} {refused:?}");
                let elsewhere = world.token(owner, "all", "sb://x/elsewhere").await;
                let refused = refusal(&world.access(elsewhere), action, path).await.unwrap();
                assert!(!refused.contains("elsewhere"), "{refused}");
            }
        }
    }
    for right in Right::ALL {
        let rights = if right == Right::Manage { Rights::ALL } else { Rights::of(right) };
        let access = world.access(world.token("orders", right.name(), "sb://x/orders").await);
        let absent = world.access(world.token("", "all", "sb://x/orders").await);
        for action in Action::ALL {
            let suffices = match action.needs() {
                Requirement::OneOf(one_of, _) => one_of.intersects(rights),
                Requirement::AllOf(all, _) => rights.include(all),
                Requirement::Nothing | Requirement::BrokerItself => continue,
            };
            let refused = refusal(&access, action, "orders").await;
            assert_eq!(refused.is_none(), suffices, "{right:?} {action:?}");
            if let Some(text) = refused {
                assert!(text.contains(&format!("`{}`", right.name())), "{text}");
            }
            // SEC-08: a sibling's token does not reveal whether the queue exists.
            let there = refusal(&absent, action, "other").await.unwrap();
            assert_eq!(refusal(&absent, action, "absent").await, Some(there));
        }
    }
    world.stop().await;
}

/// SEC-14: each cause of a refusal has its own text, which reveals no secret; an unknown policy has
/// no text of its own.
#[tokio::test]
async fn each_failure_has_its_text() {
    let world = World::with_policies().await;
    let good = world.token("orders", "all", "sb://x/orders").await;
    let key = world.key("orders", "all", WhichKey::Primary).await;
    let at = |until| sign("all", key.reveal(), "sb://x/orders", until);
    let told = async |token: &str| {
        let text = refusal(&world.access(token), Action::Send, "orders").await.unwrap();
        assert!(!text.contains(key.reveal()), "{text}");
        text
    };
    let nobody = world.broker.access(Principal::anonymous());
    let missing = refusal(&nobody, Action::Send, "orders");
    assert!(missing.await.unwrap().contains("peeklock connection-string"));
    for malformed in [
        "",
        "SharedAccessSignature",
        "SharedAccessSignature ",
        "Basic abc",
        &good.replace("skn=", "name="),
        &good.replace("se=", "se=x"),
        &good.replace("skn=all", "skn=%ff"),
        &good.replace("skn=all", "skn=all&skn=all"),
        &good.replace("skn=all", "skn"),
        &format!("{good}&x={}", "y".repeat(9_000)),
    ] {
        let text = told(malformed).await;
        assert!(text.contains("is not a valid shared access signature: "), "{malformed}: {text}");
    }
    let wrong = good.replace("sig=", "sig=A");
    assert!(told(&wrong).await.contains("matches no key of a policy of that name"));
    let changed = good.replace("orders", "other");
    assert_eq!(told(&changed).await, told(&wrong).await);
    let unknown = good.replace("skn=all", "skn=absent");
    assert_eq!(told(&unknown).await, told(&wrong).await, "nothing tells whether there is one");
    for token in ["Bearer eyJhbGciOi", "bearer x", "eyJhbGciOi.eyJpc3Mi.c2ln"] {
        let text = told(token).await;
        assert!(text.contains("DefaultAzureCredential") && text.contains("connection string"));
    }
    assert!(told(&at(world.in_seconds(0))).await.contains("has expired, at 2026-05-01T12:00:00"));
    assert!(told(&at(world.in_seconds(-60))).await.contains("has expired"));
    let mismatch = world.access(world.token("", "all", "sb://x/other").await);
    let text = refusal(&mismatch, Action::Send, "orders").await.unwrap();
    assert!(text.contains("is for another resource"), "{text}");
    world.stop().await;
}

/// SEC-22, SEC-08: the presented policy name appears in the log only if some policy has that name,
/// and never in the answer. Therefore a key in that field appears in neither.
#[tokio::test]
async fn unknown_policy_names_are_not_repeated() {
    let mut config = SasConfig::closed();
    config.audience_hosts = Some(vec!["x".to_owned()]);
    let world = World::new(config).await;
    world.create("other", "Team", Rights::ALL).await;
    let secret = world.key("other", "Team", WhichKey::Primary).await;
    let secret = secret.reveal();
    let shown = |name: &str| {
        let token = |audience: &str| sign(name, "wrong", audience, world.in_seconds(60));
        let nobody = Principal::anonymous;
        [
            ("signature", nobody().with_token(token("sb://x/orders"))),
            ("signature", nobody().with_token(token("sb://x/other"))),
            ("audience", nobody().with_token(token("sb://elsewhere/orders"))),
            ("key", nobody().with_key(name, "wrong")),
            ("key", nobody().with_key(name, secret.replace('=', "A"))),
        ]
    };
    for (name, expected) in
        [(secret, None), ("nobody", None), ("team", Some("team")), ("Team", Some("Team"))]
    {
        for (cause, principal) in shown(name) {
            let said = format!("{principal:?}");
            let refused = world.broker.access(principal).allow(Action::Send, "orders").await;
            let refused = refused.unwrap_err();
            let denial = refused.rejection().denial().unwrap();
            assert_eq!((denial.cause, denial.policy.as_deref()), (cause, expected), "{name}");
            assert!(
                !refused.to_string().contains(name) && !said.contains(name),
                "{refused} {said}"
            );
        }
    }
    let token = sign(secret, "wrong", "sb://x/orders", world.in_seconds(60));
    let read = format!("{:?}", peeklock_auth_sas::Token::parse(&token));
    assert!(!read.contains(secret), "{read}");
    // A deleted policy's name is no longer logged.
    world.broker.delete_policy("other", "Team").await.unwrap();
    for (cause, principal) in shown("Team") {
        let refused = world.broker.access(principal).allow(Action::Send, "orders").await;
        assert_eq!(refused.unwrap_err().rejection().denial().unwrap().policy, None, "{cause}");
    }
    world.stop().await;
}

/// SEC-12, SEC-15: a token is valid until its expiry, and operations begun with it end at that
/// time.
#[tokio::test]
async fn a_token_ends_at_its_expiry() {
    let world = World::with_policies().await;
    let access = world.access(world.token("orders", "all", "sb://x/orders").await);
    let entity = access.entity("orders", Action::Peek).await.unwrap();
    let from = peeklock_core::ids::SequenceNumber(0);
    let peek = || peeklock_core::command::Command::Peek { from, count_max: 1 };
    world.clock.advance(TimeSpan::from_ms(59_999));
    assert!(entity.call(peek()).await.is_ok());
    world.clock.advance(TimeSpan::from_ms(1));
    assert_eq!(entity.call(peek()).await.unwrap_err().condition(), Condition::Unauthorized);
    assert!(refusal(&access, Action::Peek, "orders").await.unwrap().contains("has expired"));
    // The latest representable expiry, and a later one.
    let key = world.key("orders", "all", WhichKey::Primary).await;
    for seconds in ["253402300799", "99999999999999999999999"] {
        let signature = hmac(key.reveal(), &format!("orders\n{seconds}")).replace('+', "%2B");
        let token = format!("SharedAccessSignature sr=orders&sig={signature}&se={seconds}&skn=all");
        assert_eq!(refusal(&world.access(token), Action::Peek, "orders").await, None, "{seconds}");
    }
    world.stop().await;
}

/// SEC-09: a regenerated key immediately ends its tokens. Tokens of the other key stay valid.
#[tokio::test]
async fn a_regenerated_key_ends_its_tokens() {
    let world = World::with_policies().await;
    let mut held = Vec::new();
    for which in WhichKey::ALL {
        let key = world.key("orders", "all", which).await;
        let token = sign("all", key.reveal(), "sb://x/orders", world.in_seconds(60));
        let access = world.access(&*token);
        assert_eq!(refusal(&access, Action::Send, "orders").await, None);
        held.push((token, access));
    }
    world.broker.regenerate_key("orders", "all", WhichKey::Primary, None).await.unwrap();
    for (place, is_refused) in [(0, true), (1, false)] {
        let (token, access) = &held[place];
        let again = refusal(access, Action::Send, "orders").await;
        assert_eq!(again.is_some(), is_refused, "{again:?}");
        let anew = refusal(&world.access(&**token), Action::Send, "orders").await;
        assert_eq!(anew.is_some(), is_refused, "{anew:?}");
    }
    world.broker.delete_policy("orders", "all").await.unwrap();
    assert!(refusal(&held[1].1, Action::Send, "orders").await.is_some());
    world.stop().await;
}

/// AMQP-08, SEC-09, SEC-12, SEC-14: a key presented without a token gives the rights of its policy
/// where that applies, as long as the key exists. Elsewhere it gives nothing, and refusing a wrong
/// key does not reveal which policies exist.
#[tokio::test]
async fn a_presented_key_has_the_rights_of_its_policy() {
    let world = World::with_policies().await;
    let with_key = |policy: &str, key: &str| {
        let principal = Principal::anonymous().with_key(policy, key);
        world.broker.access(principal)
    };
    for which in WhichKey::ALL {
        let key = world.key("orders", "Listen", which).await;
        let access = with_key("listen", key.reveal());
        assert_eq!(refusal(&access, Action::Receive, "orders").await, None);
        assert!(access.require_valid_credentials().await.is_ok(), "it is somebody's key");
        for (action, path) in [(Action::Send, "orders"), (Action::Receive, "other")] {
            let text = refusal(&access, action, path).await.unwrap();
            assert!(!text.contains(key.reveal()), "{text}");
        }
        let elsewhere: Vec<Arc<str>> = vec!["other".into(), "orders".into()];
        let principal = Principal::anonymous().with_key("Listen", key.reveal());
        let grants = world.authorizer.authorize_all(&principal, &elsewhere).await;
        assert!(grants[0].rights.is_none() && grants[1].rights.contains(Right::Listen));
    }
    let root = world.key("", ROOT_POLICY, WhichKey::Primary).await;
    let access = with_key(ROOT_POLICY, root.reveal());
    assert_eq!(refusal(&access, Action::Create, "absent").await, None);
    let wrong = refusal(&with_key("Listen", root.reveal()), Action::End, "").await.unwrap();
    let absent = refusal(&with_key("absent", root.reveal()), Action::End, "").await.unwrap();
    assert_eq!(wrong, absent);
    assert!(!wrong.contains(root.reveal()), "{wrong}");
    let key = world.key("orders", "Listen", WhichKey::Primary).await;
    let access = with_key("Listen", key.reveal());
    // A client without any operation is known by the key too, and only as long as the key exists.
    let only_known = with_key("Listen", key.reveal());
    assert!(only_known.require_valid_credentials().await.is_ok() && only_known.holds());
    assert_eq!(refusal(&access, Action::Receive, "orders").await, None);
    world.broker.regenerate_key("orders", "Listen", WhichKey::Primary, None).await.unwrap();
    assert!(refusal(&access, Action::Receive, "orders").await.is_some());
    assert!(!only_known.holds());
    // A removed key is immediately unknown everywhere, and its replacement is known.
    assert!(with_key("Listen", key.reveal()).require_valid_credentials().await.is_err());
    let key = world.key("orders", "Listen", WhichKey::Primary).await;
    assert!(with_key("Listen", key.reveal()).require_valid_credentials().await.is_ok());
    world.broker.delete_policy("orders", "Listen").await.unwrap();
    assert!(with_key("Listen", key.reveal()).require_valid_credentials().await.is_err());
    let key = world.key("other", "all", WhichKey::Secondary).await;
    assert!(with_key("ALL", key.reveal()).require_valid_credentials().await.is_ok());
    world.broker.delete_entity("other").await.unwrap();
    assert!(with_key("all", key.reveal()).require_valid_credentials().await.is_err());
    world.stop().await;
}

/// SEC-24: the development key is found like others, but only where it is allowed.
#[tokio::test]
async fn the_development_key_is_presented_as_others_are() {
    let world = World::new(SasConfig::closed()).await;
    let shown = Principal::anonymous().with_key(ROOT_POLICY, KEY);
    let access = world.broker.access(shown.clone());
    assert!(access.require_valid_credentials().await.is_err());
    world.policies.allow_development_key(KEY);
    let access = world.broker.access(shown);
    assert_eq!(refusal(&access, Action::Create, "orders").await, None);
    world.stop().await;
}

/// SEC-26: the answer to a guessed key is delayed.
#[tokio::test]
async fn a_guessed_key_is_answered_with_a_delay() {
    let world = World::with_policies().await;
    let from = Principal::anonymous().from_peer("10.0.0.1:1".parse::<SocketAddr>().ok());
    let access = world.broker.access(from.with_key("all", "guess"));
    let mut asked = pin!(refusal(&access, Action::End, ""));
    let first = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
    assert!(first.is_pending());
    world.clock.advance(TimeSpan::from_ms(50));
    assert!(asked.await.unwrap().contains("belongs to no policy of that name"));
    world.stop().await;
}

/// SEC-13: the host matters only in strict mode.
#[tokio::test]
async fn the_host_matters_in_strict_mode() {
    let mut config = SasConfig::closed();
    config.audience_hosts = Some(vec!["bus.example.com".to_owned()]);
    let strict = World::new(config).await;
    let lenient = World::new(SasConfig::closed()).await;
    for (audience, is_known) in [
        ("sb://bus.example.com:5671/orders", true),
        ("sb://other/orders", false),
        ("orders", false),
    ] {
        let token = strict.token("", ROOT_POLICY, audience).await;
        let refused = refusal(&strict.access(token), Action::Send, "orders").await;
        assert_eq!(refused.is_none(), is_known, "{audience} {refused:?}");
        let token = lenient.token("", ROOT_POLICY, audience).await;
        assert_eq!(refusal(&lenient.access(token), Action::Send, "orders").await, None);
    }
    strict.stop().await;
    lenient.stop().await;
}

/// SEC-17: clients on this machine have anonymous access until a key is first used. Clients on
/// other machines or behind a proxy have it only with `i_know`.
#[tokio::test]
async fn anonymous_access_is_for_this_machine_and_ends() {
    let from = |address: &str| Principal::anonymous().from_peer(address.parse::<SocketAddr>().ok());
    let world = World::new(SasConfig::open_on_loopback()).await;
    assert!(world.broker.allows_anonymous());
    let near = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "none"];
    for address in near {
        let access = world.broker.access(from(address));
        assert_eq!(refusal(&access, Action::Create, "x").await, None, "{address}");
        let access = world.broker.access(from(address).through_proxy());
        assert!(refusal(&access, Action::Create, "x").await.is_some(), "{address} by a proxy");
    }
    for address in ["10.0.0.1:1", "[2001:db8::1]:1"] {
        let access = world.broker.access(from(address));
        assert!(refusal(&access, Action::Send, "orders").await.is_some(), "{address}");
    }
    let open = world.broker.access(from("127.0.0.1:1"));
    let entity = open.entity("orders", Action::Peek).await.unwrap();
    world.create("", "first", Rights::ALL).await;
    assert!(!world.broker.allows_anonymous());
    let from_start = peeklock_core::ids::SequenceNumber(0);
    let peek = peeklock_core::command::Command::Peek { from: from_start, count_max: 1 };
    assert_eq!(entity.call(peek).await.unwrap_err().condition(), Condition::Unauthorized);
    assert!(refusal(&open, Action::Send, "orders").await.is_some());
    world.stop().await;

    let mut confirmed = SasConfig::open_on_loopback();
    confirmed.beyond_loopback = true;
    let world = World::new(confirmed).await;
    let access = world.broker.access(from("10.0.0.1:1"));
    assert_eq!(refusal(&access, Action::Send, "orders").await, None);
    world.stop().await;
    let closed = World::new(SasConfig::closed()).await;
    assert!(!closed.broker.allows_anonymous());
    let access = closed.broker.access(from("127.0.0.1:1"));
    assert!(refusal(&access, Action::Send, "orders").await.is_some());
    closed.stop().await;
}

/// SEC-26: the answer to a failed attempt is delayed; valid tokens, also from the same address, are
/// not.
#[tokio::test]
async fn failed_attempts_wait_and_valid_tokens_do_not() {
    let world = World::with_policies().await;
    let good = world.token("orders", "all", "sb://x/orders").await;
    let bad = good.replace("sig=", "sig=A");
    let expired = {
        let key = world.key("orders", "all", WhichKey::Primary).await;
        sign("all", key.reveal(), "sb://x/orders", world.in_seconds(-1))
    };
    let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let principal = |token: &str| Principal::anonymous().with_token(token).from_peer(peer);
    for (number, token) in [&*bad, "Basic x", "Bearer x", &expired].into_iter().enumerate() {
        let principal_of_it = principal(token);
        let mut asked = pin!(world.authorizer.authorize(&principal_of_it, "orders"));
        let mut is_answered =
            async || poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_ready())).await;
        assert!(!is_answered().await, "{token}");
        let wait = TimeSpan::from_ms(50 * (i64::try_from(number).unwrap() + 1));
        world.clock.advance(TimeSpan::from_ms(wait.as_ms() - 1));
        assert!(!is_answered().await, "{token}");
        // Meanwhile other clients are answered.
        let good = principal(&good);
        let mut asked_well = pin!(world.authorizer.authorize(&good, "orders"));
        let answer = poll_fn(|context| Poll::Ready(asked_well.as_mut().poll(context))).await;
        assert!(matches!(answer, Poll::Ready(Ok(_))));
        world.clock.advance(TimeSpan::from_ms(1));
        assert!(is_answered().await, "{token}");
    }
    // A valid token for another resource or with fewer rights does not wait either.
    let sender = principal(&world.token("orders", "Send", "sb://x/other").await);
    {
        let mut asked = pin!(world.authorizer.authorize(&sender, "orders"));
        let answer = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
        assert!(matches!(answer, Poll::Ready(Err(_))));
    }
    world.stop().await;
}

/// CON-73, SEC-12: a list contains the entities that the token covers, without a lookup of each
/// key.
#[tokio::test]
async fn a_list_contains_the_entities_of_a_token() {
    let world = World::with_policies().await;
    let list = Management::Paths(EntityKind::Queue, Page { skip: 0, top: None });
    for (owner, name, audience, expected) in [
        ("", "all", "sb://x", Some(2)),
        ("orders", "Manage", "sb://x/orders", Some(1)),
        ("orders", "Manage", "sb://x", Some(1)),
        ("orders", "Send", "sb://x", None),
        ("", "all", "sb://x/orders", Some(1)),
        ("", "all", "sb://x/absent", None),
        ("orders", "Send", "sb://x/orders", None),
    ] {
        let access = world.access(world.token(owner, name, audience).await);
        let listed = match access.manage("", list.clone()).await {
            Ok(Managed::Paths(paths)) => Some(paths.len()),
            _ => None,
        };
        assert_eq!(listed, expected, "{name} {audience}");
    }
    let wrong = world.token("", "all", "sb://x").await.replace("sig=", "sig=A");
    assert!(world.access(wrong).manage("", list).await.is_err());
    world.stop().await;
}

/// SEC-19: a token from a connection string gives access to its entity.
#[tokio::test]
async fn a_connection_string_opens_the_door() {
    let world = World::with_policies().await;
    let key = world.policies.root_key().unwrap();
    let text = format!(
        "Endpoint=sb://localhost:5301;SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={};EntityPath=orders",
        key.reveal()
    );
    let read = ConnectionString::parse(&text).unwrap();
    let access = world.access(read.token(world.in_seconds(60)));
    assert_eq!(refusal(&access, Action::Create, "orders").await, None);
    assert!(refusal(&access, Action::Send, "other").await.is_some());
    world.stop().await;
}
