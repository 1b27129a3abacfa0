//! Tests of `$cbs`: tokens that clients put, and the rights that they grant.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_amqp::performative::{End, Performative, SenderSettleMode};
use peeklock_auth_jwt::{JwtAuthorizer, JwtConfig, KeySource, Role};
use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::contract::{AllowAll, Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::{EntityKind, QueueUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::message::{Body, Content, Message, MessageId, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::issuer::{IssuerKey, key_set};
use crate::server::Server;
use crate::types;

/// Accepts only the token `q`, for the queue `q`.
struct OneToken;

#[async_trait]
impl Authorizer for OneToken {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some("q") if resource == "q" => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("token is not good")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// A request that puts a token.
pub fn request(audience: &str, token: &str, id: MessageId) -> Content {
    let mut body = vec![0x00, 0x53, 0x77];
    Value::String(token.into()).encode_to(&mut body);
    let property = |name: &str, value: &str| (name.to_owned(), Value::String(value.into()));
    let request = Message {
        message_id: Some(id),
        body: Body::Value(body.into()),
        application_properties: vec![
            property("operation", "put-token"),
            // The type has no effect: some clients put tokens of either kind with the other name
            // (AMQP-23).
            property("type", if token == "q" { "jwt" } else { "servicebus.windows.net:sastoken" }),
            property("name", audience),
        ],
        ..Message::default()
    };
    request.encode()
}

/// A listener that accepts tokens of an identity provider, which grant Send at `q`, and the token
/// `q`.
struct Issued {
    server: Server,
    good: String,
    /// A token for another audience.
    elsewhere: String,
    file: PathBuf,
}

impl Issued {
    async fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let key = IssuerKey::new("k1");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("peeklock-jwks-amqp-{}-{count}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, key_set([&key])).unwrap();
        let mut config = JwtConfig::new("https://issuer.example", "bus", KeySource::file(&file));
        config.roles = vec![Role::new("sender", Rights::of(Right::Send)).at("q")];
        let noon = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
        let clock = Arc::new(ManualClock::at(noon));
        config.clock = Arc::clone(&clock) as Arc<_>;
        let authorizer = JwtAuthorizer::new(config, Arc::new(OneToken));
        let server = Server::start_for(Arc::new(authorizer)).await;
        let exp = clock.now().unix_ms() / 1_000 + 60;
        let claims = |audience: &str| json!({"iss": "https://issuer.example", "aud": audience, "roles": ["sender"], "exp": exp, "name": "x".repeat(400)});
        let [good, elsewhere] = ["bus", "elsewhere"].map(|audience| key.sign(&claims(audience)));
        Self { server, good, elsewhere, file }
    }
}

/// Puts a token; returns the reply.
pub async fn put(client: &mut Client, audience: &str, token: &str, id: MessageId) -> Content {
    client.send(0, 0, true, request(audience, token, id).as_bytes()).await;
    let (transfer, reply) = client.message().await;
    // AMQP-19: the first transfer has all of these.
    assert!(transfer.delivery_id.is_some() && transfer.delivery_tag.is_some(), "{transfer:?}");
    assert_eq!((transfer.message_format, transfer.settled), (Some(0), Some(true)));
    // AMQP-13, AMQP-21: clients cast these two values.
    types::check(reply.as_bytes());
    let encoded = |name| crate::asking::property(&reply, name)[0];
    assert!(matches!(encoded("status-code"), 0x54 | 0x71));
    assert!(matches!(encoded("status-description"), 0xa1 | 0xb1));
    reply
}

pub fn status(reply: &Content) -> Value {
    reply.application_properties().find(|(name, _)| *name == "status-code").unwrap().1
}

/// AMQP-21: a valid token for a missing entity is answered with 404 and the words of AMQP-90. It is
/// kept, so that a link can be attached once the entity exists. Paths above entities and the
/// namespace are not missing. A token without a right at the path does not reveal which entities
/// exist.
#[tokio::test]
async fn a_token_for_a_missing_entity_is_answered_404() {
    let server = Server::start().await;
    server.broker.create_queue("folder/one", QueueUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    client.passes_flows = true;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 100, false).await;
    let cases = [
        ("amqp://h/none", 404),
        ("amqp://h/none/$management", 404),
        ("amqp://h/none/Subscriptions/one", 404),
        ("amqp://h/q/Subscriptions/one", 404),
        ("amqp://h/q/$DeadLetterQueue", 202),
        ("amqp://h/Q/", 202),
        ("amqp://h/folder", 202),
        ("amqp://h/", 202),
    ];
    for (audience, expected) in cases {
        let reply = put(&mut client, audience, "any", MessageId::Ulong(1)).await;
        assert_eq!(status(&reply), Value::I32(expected), "{audience}");
        let description = reply.application_properties().find(|it| it.0 == "status-description");
        let Some((_, Value::String(text))) = description else { panic!("no text") };
        let words = "could not be found.";
        let is_missing = text.starts_with("The messaging entity '") && text.contains(words);
        assert_eq!(is_missing, expected == 404, "{text}");
    }
    server.stop().await;

    let server = Server::start_for(Arc::new(OneToken)).await;
    let mut client = server.client().await;
    client.passes_flows = true;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 100, false).await;
    let reply = put(&mut client, "amqp://h/none", "q", MessageId::Ulong(1)).await;
    assert_eq!(status(&reply), Value::I32(401));
    server.broker.delete("q", EntityKind::Queue).await.unwrap();
    let reply = put(&mut client, "amqp://h/q", "q", MessageId::Ulong(2)).await;
    assert_eq!(status(&reply), Value::I32(404));
    server.broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    client.sender(2, "q").await.unwrap();
    server.stop().await;
}

/// AMQP-27: tokens that no link depends on make room for others, for any number of entities.
#[tokio::test]
async fn tokens_make_room_for_others() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 1_000, false).await;
    for number in 0..600_u64 {
        let audience = format!("amqp://h:1/of-{number}");
        let put = request(&audience, "any", MessageId::Ulong(number));
        client.send(0, 0, true, put.as_bytes()).await;
        // Flows with credit may come first.
        let reply = loop {
            if let (Performative::Transfer(_), reply) = client.next_frame().await {
                break Content::parse(reply).unwrap();
            }
        };
        assert_eq!(status(&reply), Value::I32(404), "{number}");
    }
    server.stop().await;
}

/// AMQP-21, AMQP-27: tokens that links depend on, and tokens that were put less than 10 s ago, are
/// kept. Above 256 tokens and 128 KiB, or the shared pool, another token is refused with 403. A
/// newer token for the same path is accepted.
#[tokio::test]
async fn tokens_that_are_needed_make_no_room() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.shared_link_count_max = 0;
    })
    .await;
    for (linked, free, length) in [(254_u32, 2, 9), (6, 1, 16 << 10)] {
        let mut client = server.client().await;
        client.sender(0, "$cbs").await.unwrap();
        client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
        client.credit(1, 0, 1_000, false).await;
        let name = |number: u32| format!("of-{number}-{length}");
        for number in 0..linked {
            server.broker.create_queue(&name(number), QueueUpdate::default()).await.unwrap();
            client.sender(2 + number, &name(number)).await.unwrap();
        }
        client.passes_flows = true;
        let mut puts: Vec<_> = (0..linked).map(|number| (name(number), 202)).collect();
        puts.extend((linked..linked + free).map(|number| (name(number), 404)));
        puts.extend([("other".to_owned(), 403), (name(1), 202)]);
        let mut put_all = async |puts: &[(String, i32)]| {
            for (path, expected) in puts {
                let token = format!("{path}{}", "t".repeat(length - path.len().min(length)));
                let reply = put(&mut client, path, &token, MessageId::Ulong(1)).await;
                assert_eq!(status(&reply), Value::I32(*expected), "{path}");
            }
        };
        put_all(&puts).await;
        server.clock.advance(TimeSpan::from_seconds(10));
        // Tokens without links make room.
        let more: Vec<_> = (0..free).map(|number| (format!("more-{number}"), 404)).collect();
        put_all(&more).await;
        put_all(&[("again".to_owned(), 403)]).await;
    }
    server.stop().await;
}

/// AMQP-27: a long token for many entities is stored once.
#[tokio::test]
async fn a_token_for_many_entities_is_kept_once() {
    let server = Server::start_with(Arc::new(AllowAll), |config| {
        config.shared_link_count_max = 0;
    })
    .await;
    let mut client = server.client().await;
    client.passes_flows = true;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 1_000, false).await;
    let token = "t".repeat(15 << 10);
    for number in 0..100 {
        let audience = format!("amqp://h/of-{number}");
        let reply = put(&mut client, &audience, &token, MessageId::Ulong(number)).await;
        assert_eq!(status(&reply), Value::I32(404), "{number}");
    }
    server.stop().await;
}

/// AMQP-27: a token that only requests depend on is kept.
#[tokio::test]
async fn a_token_that_is_asked_by_is_kept() {
    let begin = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let server = Server::start_for(Arc::new(Minutes(begin))).await;
    let mut client = server.client().await;
    client.passes_flows = true;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 1_000, false).await;
    let reply = put(&mut client, "amqp://h/q", "9", MessageId::Ulong(1)).await;
    assert_eq!(status(&reply), Value::I32(202));
    client.manager(2, "q").await;
    for number in 0..300 {
        let audience = format!("amqp://h/of-{number}");
        let reply = put(&mut client, &audience, "9", MessageId::Ulong(number)).await;
        assert_eq!(status(&reply), Value::I32(404), "{number}");
    }
    let peeked = client.ask(2, "peek-message", &[]).await;
    assert_eq!(peeked.status(), 204);
    server.stop().await;
}

/// AMQP-20, AMQP-21, AMQP-25, AMQ-03: a link needs a token, which is put to `$cbs`. The reply keeps
/// the type of the message-id.
#[tokio::test]
async fn a_link_takes_a_token() {
    let server = Server::start_for(Arc::new(OneToken)).await;
    let mut client = server.client().await;
    let refused = Err("amqp:unauthorized-access".to_owned());
    assert_eq!(client.sender(5, "q").await, refused);
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let bad = put(&mut client, "amqp://h:1/q", "x", MessageId::Uuid(7)).await;
    assert_eq!(status(&bad), Value::I32(401));
    assert_eq!(client.sender(6, "q").await, refused);
    let good = put(&mut client, "amqps://h/q/$management", "q", MessageId::Ulong(7)).await;
    assert_eq!(status(&good), Value::I32(202));
    let message = good.decode().unwrap();
    assert_eq!(message.correlation_id, Some(MessageId::Ulong(7)));
    client.sender(7, "q").await.unwrap();
    assert_eq!(client.sender(8, "other").await, refused);
    server.stop().await;
}

/// A token grants everything for its number of minutes from the start.
struct Minutes(Timestamp);

#[async_trait]
impl Authorizer for Minutes {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        let minutes = principal.token.as_deref().and_then(|token| token.parse().ok());
        let unauthorized = || Rejection::unauthorized("token is not good");
        let minutes = minutes.ok_or_else(unauthorized)?;
        Ok(Grant::everything().with_end(self.0.plus(TimeSpan::from_minutes(minutes))))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-15, SEC-16: a connection whose last token has expired is closed like one without a token. A
/// connection with a newer token is kept, with or without a link. The same holds for a client that
/// logged in with a token.
#[tokio::test]
async fn connection_with_expired_token_is_closed() {
    let begin = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let server = Server::start_with(Arc::new(Minutes(begin)), |config| {
        config.opening_timeout = Duration::from_millis(300);
    })
    .await;
    // The kept ones are older, and are checked first.
    let mut kept = Vec::new();
    for tokens in [&["2"][..], &["1", "2"]] {
        let mut client = server.client().await;
        client.sender(0, "$cbs").await.unwrap();
        client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
        client.credit(1, 0, 10, false).await;
        for token in tokens {
            let reply = put(&mut client, "amqp://h/q", token, MessageId::Ulong(1)).await;
            assert_eq!(status(&reply), Value::I32(202));
        }
        kept.push(client);
    }
    let mut lapsing = Vec::new();
    for by_login in [false, true] {
        let (mechanism, response) =
            if by_login { ("PLAIN", &b"\0$jwt\x001"[..]) } else { ("ANONYMOUS", &b""[..]) };
        let (mut client, code) = Client::log_in(server.address, mechanism, response).await;
        assert_eq!(code, 0);
        client.begin().await;
        if !by_login {
            client.sender(0, "$cbs").await.unwrap();
            client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
            client.credit(1, 0, 10, false).await;
            let reply = put(&mut client, "amqp://h/q", "1", MessageId::Ulong(1)).await;
            assert_eq!(status(&reply), Value::I32(202));
        }
        lapsing.push(client);
    }
    server.clock.advance(TimeSpan::from_minutes(1));
    for mut client in lapsing {
        let (Performative::Close(close), _) = client.next_frame().await else { panic!("no close") };
        assert_eq!(close.error.unwrap().condition(), "amqp:unauthorized-access");
    }
    for mut client in kept {
        client.sender(2, "q").await.unwrap();
    }
    server.stop().await;
}

/// AMQP-21: the size of tokens and audiences is limited, since they are kept for the life of the
/// connection.
#[tokio::test]
async fn cbs_rejects_tokens_and_audiences_over_the_limit() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let long = ["x".repeat(4 << 10), "x".repeat((4 << 10) + 1), "x".repeat((16 << 10) + 1)];
    let cases = [(&*long[0], &*long[1], 404), (&long[1], "t", 400), ("q", &long[2], 400)];
    for (audience, token, expected) in cases {
        let reply = put(&mut client, audience, token, MessageId::Ulong(1)).await;
        assert_eq!(status(&reply), Value::I32(expected));
    }
    server.stop().await;
}

/// SEC-27, AMQP-23: a token of an identity provider is put to `$cbs` like any other; tokens of
/// other kinds apply at the same time.
#[tokio::test]
async fn a_link_takes_a_token_of_an_identity_provider() {
    let Issued { server, good, elsewhere, file } = Issued::start().await;
    let mut client = server.client().await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let refused = Err("amqp:unauthorized-access".to_owned());
    let bad = put(&mut client, "amqps://h/q", &elsewhere, MessageId::Ulong(1)).await;
    assert_eq!(status(&bad), Value::I32(401));
    assert_eq!(client.sender(5, "q").await, refused);
    let taken = put(&mut client, "amqps://h/q", &good, MessageId::Ulong(2)).await;
    assert_eq!(status(&taken), Value::I32(202));
    client.sender(6, "q").await.unwrap();
    let settled = SenderSettleMode::Unsettled;
    assert_eq!(client.receiver(7, "q", settled).await, refused, "it gives Send alone");
    let other = put(&mut client, "amqps://h/q", "q", MessageId::Ulong(3)).await;
    assert_eq!(status(&other), Value::I32(202));
    client.receiver(8, "q", settled).await.unwrap();
    server.stop().await;
    std::fs::remove_file(&file).unwrap();
}

/// SEC-27, AMQP-08: such a token works as the password of `$jwt` with the same rights, without
/// `$cbs`. With another user it is an unknown key, and an invalid token ends the connection.
/// Without a known issuer, all such tokens are invalid.
#[tokio::test]
async fn a_token_of_an_identity_provider_is_a_password() {
    let Issued { server, good, elsewhere, file } = Issued::start().await;
    let plain = |user: &str, token: &str| format!("\0{user}\0{token}").into_bytes();
    assert!(good.len() > 255, "more than a short binary holds");
    for wrong in [plain("$jwt", &elsewhere), plain("sender", &good), plain("$jwt", &good[1..])] {
        let (mut client, code) = Client::log_in(server.address, "PLAIN", &wrong).await;
        assert_eq!(code, 1);
        assert!(client.is_closed().await);
    }
    let (mut client, code) = Client::log_in(server.address, "PLAIN", &plain("$jwt", &good)).await;
    assert_eq!(code, 0);
    client.begin().await;
    client.sender(0, "q").await.unwrap();
    let refused = Err("amqp:unauthorized-access".to_owned());
    assert_eq!(client.receiver(1, "q", SenderSettleMode::Unsettled).await, refused);
    assert_eq!(client.sender(2, "other").await, refused);
    server.stop().await;
    std::fs::remove_file(&file).unwrap();

    let server = Server::start_for(Arc::new(OneToken)).await;
    let (_, code) = Client::log_in(server.address, "PLAIN", &plain("$jwt", &good)).await;
    assert_eq!(code, 1);
    server.stop().await;
}

/// AMQP-27: a session with links at `$cbs` for each token that is ended without detaching leaves
/// nothing: no links, and no untaken replies.
#[tokio::test]
async fn sessions_that_end_at_cbs_leave_nothing() {
    let server = Server::start_with(Arc::new(OneToken), |config| {
        config.link_count_max = 4;
        config.outbound_bytes_max = 4 << 10;
    })
    .await;
    let mut client = server.client().await;
    for round in 0..200 {
        client.begin_on(1).await;
        client.restart_deliveries();
        client.sender(0, "$cbs").await.unwrap();
        client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
        if round % 50 == 0 {
            client.credit(1, 0, 10, false).await;
            let good = put(&mut client, "amqps://h/q", "q", MessageId::Ulong(7)).await;
            assert_eq!(status(&good), Value::I32(202));
        } else {
            client
                .send(0, 0, true, request("amqps://h/q", "q", MessageId::Ulong(7)).as_bytes())
                .await;
        }
        client.send_frame(&Performative::End(End::default())).await;
        assert!(matches!(client.next_frame().await, (Performative::End(_), _)));
    }
    // There is still room for messages.
    client.on(0);
    let texts = ["x".repeat(3_000), "y".repeat(3_000)];
    server.put(&[&texts[0], &texts[1]]).await;
    client.receiver(0, "q", SenderSettleMode::Settled).await.unwrap();
    client.credit(0, 0, 2, false).await;
    for text in texts {
        assert_eq!(client.message().await.1.body_bytes(), text);
    }
    server.stop().await;
}

/// AMQP-24: a token covers everything below its path, even where a nearer token has expired.
#[tokio::test]
async fn an_expired_token_hides_no_other() {
    let begin = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let server = Server::start_for(Arc::new(Minutes(begin))).await;
    let mut client = server.client().await;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    for (audience, token) in [("amqp://h/", "2"), ("amqp://h/q", "1")] {
        let reply = put(&mut client, audience, token, MessageId::Ulong(1)).await;
        assert_eq!(status(&reply), Value::I32(202));
    }
    server.clock.advance(TimeSpan::from_seconds(90));
    client.sender(2, "q").await.unwrap();
    server.clock.advance(TimeSpan::from_seconds(40));
    let refused = Err("amqp:unauthorized-access".to_owned());
    // The link that depends on it is detached.
    assert_eq!(client.detached().await, "amqp:link:detach-forced");
    assert_eq!(client.sender(3, "q").await, refused);
    server.stop().await;
}
