//! Tests of when keys are read, and of their validity when reads fail.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use peeklock_auth_jwt::{KeySource, certificates};
use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::issuer::IssuerKey;
use crate::publisher::Publisher;
use crate::world::{KeyFile, World, config, refusal, with};

const TIME: Duration = Duration::from_secs(5);

/// Returns a token with all rights that never expires.
fn token(world: &World, key: &IssuerKey) -> String {
    key.sign(&with(world.claims(&["all"]), "exp", json!(1e15)))
}

async fn is_good(world: &World, token: &str) -> bool {
    world.refusal(token, Action::Send, "orders").await.is_none()
}

/// SEC-29: keys are read for the first token and again for an unknown key, at most every ten
/// seconds regardless of the key ids in tokens.
#[tokio::test]
async fn an_unknown_key_causes_reads_at_a_limited_rate() {
    let [first, second, made_up] = ["k1", "k2", "made up"].map(IssuerKey::new);
    let publisher = Publisher::new(&[&first]).await;
    let world = World::new(config(publisher.source())).await;
    let [first_token, second_token, unknown] =
        [&first, &second, &made_up].map(|key| token(&world, key));
    assert_eq!(publisher.count(), 0);
    assert!(is_good(&world, &first_token).await);
    assert!(!is_good(&world, &second_token).await);
    assert_eq!(publisher.count(), 1, "they were read just now");
    world.clock.advance(TimeSpan::from_seconds(10));
    for _ in 0..10 {
        assert!(!is_good(&world, &unknown).await);
    }
    assert_eq!(publisher.count(), 2);
    publisher.publish(&[&first, &second]);
    world.clock.advance(TimeSpan::from_ms(9_999));
    let told = world.refusal(&second_token, Action::Send, "orders").await.unwrap();
    assert!(told.contains("does not publish"), "{told}");
    world.clock.advance(TimeSpan::from_ms(1));
    assert!(is_good(&world, &second_token).await);
    assert!(is_good(&world, &first_token).await);
    assert_eq!(publisher.count(), 3);
    world.stop().await;
}

/// SEC-29: tokens of a withdrawn key are refused and its grants end. Grants of other keys continue.
#[tokio::test]
async fn a_withdrawn_key_ends_open_handles() {
    let [old, kept, new] = ["old", "kept", "new"].map(IssuerKey::new);
    let publisher = Publisher::new(&[&old, &kept]).await;
    let world = World::new(config(publisher.source())).await;
    let tokens = [&old, &kept, &new].map(|key| token(&world, key));
    let mut opened = Vec::new();
    for token in &tokens[..2] {
        opened.push(world.access(&**token).entity("orders", Action::Peek).await.unwrap());
    }
    publisher.publish(&[&kept, &new]);
    world.clock.advance(TimeSpan::from_seconds(10));
    let peek = || Command::Peek { from: SequenceNumber(0), count_max: 1 };
    assert!(opened[0].call(peek()).await.is_ok(), "nobody has looked yet");
    assert!(is_good(&world, &tokens[2]).await);
    let refused = opened[0].call(peek()).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::Unauthorized);
    assert!(opened[1].call(peek()).await.is_ok());
    assert!(!is_good(&world, &tokens[0]).await);
    assert!(is_good(&world, &tokens[1]).await);
    world.stop().await;
}

/// SEC-29: grants of a withdrawn key end within an hour even if no token arrives. All grants end a
/// day after the last successful read. Without open grants the issuer is not contacted.
#[tokio::test]
async fn a_withdrawn_key_ends_open_handles_without_new_tokens() {
    for is_withdrawn in [true, false] {
        let [old, kept] = ["old", "kept"].map(IssuerKey::new);
        let publisher = Publisher::new(&[&old, &kept]).await;
        let world = World::new(config(publisher.source())).await;
        let open = async |key: &IssuerKey| {
            let access = world.access(token(&world, key));
            access.entity("orders", Action::Receive).await.unwrap()
        };
        let (by_old, by_kept) = (open(&old).await, open(&kept).await);
        // A receive waits for at most a day and would otherwise end together with the keys.
        world.clock.advance(TimeSpan::from_minutes(1));
        let wait = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: 1,
            bytes_max: 1_000,
            wait: TimeSpan::from_days(2),
            holder: None,
        };
        let mut waiting = Box::pin(by_old.call(wait));
        let answer = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
        assert!(answer.is_pending());
        let peek = || Command::Peek { from: SequenceNumber(0), count_max: 1 };
        if is_withdrawn {
            publisher.publish(&[&kept]);
            world.clock.advance(TimeSpan::from_minutes(60));
        } else {
            publisher.answer("503 Service Unavailable", "");
            world.clock.advance(TimeSpan::from_minutes(24 * 60 - 1));
        }
        assert_eq!(waiting.await.unwrap_err().condition(), Condition::Unauthorized);
        assert_eq!(by_kept.call(peek()).await.is_ok(), is_withdrawn);
        let count = publisher.count();
        drop((by_old, by_kept));
        world.clock.advance(TimeSpan::from_days(1));
        // A new token causes a read, which comes after any read by a keeper.
        publisher.publish(&[&kept]);
        assert!(is_good(&world, &token(&world, &kept)).await);
        assert_eq!(publisher.count(), count + 1, "nothing was open");
        world.stop().await;
    }
}

/// SEC-29: grants of a withdrawn key end even if the runtime of the first client has ended: the
/// next lookup starts a new keeper.
#[tokio::test]
async fn keys_are_read_after_the_first_runtime_has_ended() {
    let [old, kept] = ["old", "kept"].map(IssuerKey::new);
    let publisher = Publisher::new(&[&old, &kept]).await;
    let world = World::new(config(publisher.source())).await;
    let first = world.access(token(&world, &old));
    let opened = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(first.entity("orders", Action::Receive)).unwrap()
    });
    // The grant is in use, so the keeper has not ended by itself.
    let by_first = opened.await.unwrap();
    let by_next =
        world.access(token(&world, &old)).entity("orders", Action::Receive).await.unwrap();
    world.clock.advance(TimeSpan::from_minutes(1));
    let wait = Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: 1_000,
        wait: TimeSpan::from_days(2),
        holder: None,
    };
    let mut waiting = Box::pin(by_next.call(wait));
    let answer = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
    assert!(answer.is_pending());
    publisher.publish(&[&kept]);
    world.clock.advance(TimeSpan::from_minutes(60));
    let refused = tokio::time::timeout(TIME, waiting).await.expect("nobody has read keys");
    assert_eq!(refused.unwrap_err().condition(), Condition::Unauthorized);
    drop((by_first, by_next));
    world.stop().await;
}

/// SEC-29: all clients that need keys share one read, and a client that leaves does not cancel it
/// for the others.
#[tokio::test]
async fn concurrent_lookups_share_one_read() {
    let key = IssuerKey::new("k1");
    let publisher = Publisher::new(&[]).await;
    publisher.hold();
    let world = World::new(config(publisher.source())).await;
    let good = token(&world, &key);
    {
        let access = world.access(&*good);
        let mut leaves = pin!(refusal(&access, Action::Send, "orders"));
        let answer = poll_fn(|context| Poll::Ready(leaves.as_mut().poll(context))).await;
        assert!(answer.is_pending());
    }
    let accesses: Vec<_> = (0..8).map(|_| world.access(&*good)).collect();
    let mut asking: Vec<_> =
        accesses.iter().map(|access| Box::pin(refusal(access, Action::Send, "orders"))).collect();
    for one in &mut asking {
        let answer = poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await;
        assert!(answer.is_pending());
    }
    publisher.asked().await;
    publisher.publish(&[&key]);
    publisher.release();
    for one in asking {
        assert_eq!(one.await, None);
    }
    assert_eq!(publisher.count(), 1);
    world.stop().await;
}

/// SEC-29: a host that is silent, answers with an error or sends too much yields no keys. The
/// client is asked to try again, and sees nothing of the host's answer.
#[tokio::test]
async fn a_host_that_fails_gives_no_keys() {
    let key = IssuerKey::new("k1");
    let publisher = Publisher::new(&[&key]).await;
    let silent = publisher.source_within(Duration::from_millis(50));
    let world = World::new(config(silent)).await;
    let good = token(&world, &key);
    publisher.hold();
    let told = world.refusal(&good, Action::Send, "orders").await.unwrap();
    assert!(told.contains("not available; try again"), "{told}");
    publisher.release();
    world.stop().await;

    let world = World::new(config(publisher.source())).await;
    let large = format!("{{\"keys\": [], \"x\": \"{}\"}}", "y".repeat(256 << 10));
    for (status, body) in [
        ("404 Not Found", "hush"),
        ("302 Found\r\nlocation: /keys", "hush"),
        ("200 OK", "hush"),
        ("200 OK", "{\"keys\": []}"),
        ("200 OK", &large),
    ] {
        publisher.answer(status, body);
        let before = publisher.count();
        let told = world.refusal(&good, Action::Send, "orders").await.unwrap();
        assert!(told.contains("not available; try again") && !told.contains("hush"), "{told}");
        assert_eq!(publisher.count(), before + 1, "{status}");
        world.clock.advance(TimeSpan::from_seconds(10));
    }
    publisher.publish(&[&key]);
    assert!(is_good(&world, &good).await);
    world.stop().await;
}

/// SEC-29: keys are read again after an hour. If that fails, the known keys stay valid for one day.
#[tokio::test]
async fn keys_are_renewed_in_an_hour_and_kept_for_a_day() {
    let key = IssuerKey::new("k1");
    let publisher = Publisher::new(&[&key]).await;
    let world = World::new(config(publisher.source())).await;
    let [good, unknown] = [&key, &IssuerKey::new("k2")].map(|key| token(&world, key));
    // A client with a known key does not wait for the read; a client with an unknown key does.
    let after = async |span: TimeSpan| {
        world.clock.advance(span);
        let is_good = is_good(&world, &good).await;
        assert!(!self::is_good(&world, &unknown).await);
        (is_good, publisher.count())
    };
    assert_eq!(after(TimeSpan::ZERO).await, (true, 1));
    world.clock.advance(TimeSpan::from_seconds(3_599));
    assert!(is_good(&world, &good).await);
    assert_eq!(publisher.count(), 1);
    assert_eq!(after(TimeSpan::from_seconds(1)).await, (true, 2));
    publisher.answer("503 Service Unavailable", "");
    assert_eq!(after(TimeSpan::from_minutes(60)).await, (true, 3));
    assert_eq!(after(TimeSpan::from_seconds(9)).await, (true, 3), "not so soon again");
    assert_eq!(after(TimeSpan::from_seconds(1)).await, (true, 4));
    assert_eq!(after(TimeSpan::from_seconds(23 * 3_600 - 11)).await, (true, 5));
    assert_eq!(after(TimeSpan::from_seconds(1)).await, (false, 5), "a day is over");
    publisher.publish(&[&key]);
    assert_eq!(after(TimeSpan::from_seconds(10)).await, (true, 6));
    world.stop().await;
}

/// SEC-29: while the issuer is silent, a client with a known key is answered immediately and others
/// wait.
#[tokio::test]
async fn known_keys_do_not_wait_for_the_issuer() {
    let [key, fresh] = ["k1", "k2"].map(IssuerKey::new);
    let publisher = Publisher::new(&[&key]).await;
    let world = World::new(config(publisher.source())).await;
    let [good, newer] = [&key, &fresh].map(|key| token(&world, key));
    assert!(is_good(&world, &good).await);
    publisher.asked().await;
    publisher.hold();
    world.clock.advance(TimeSpan::from_minutes(60));
    let newer = world.access(&*newer);
    let mut waits = pin!(refusal(&newer, Action::Send, "orders"));
    for _ in 0..2 {
        // The first client starts the read.
        let known = world.access(&*good);
        let mut asked = pin!(refusal(&known, Action::Send, "orders"));
        let answer = poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
        assert_eq!(answer, Poll::Ready(None));
        let answer = poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await;
        assert!(answer.is_pending());
    }
    publisher.asked().await;
    publisher.publish(&[&key, &fresh]);
    publisher.release();
    assert_eq!(waits.await, None);
    assert_eq!(publisher.count(), 2);
    world.stop().await;
}

/// SEC-29: a key file is read again like a URL. If it has become unusable, the known keys stay
/// valid.
#[tokio::test]
async fn a_file_of_keys_may_change() {
    let [first, second, third] = ["k1", "k2", "k3"].map(IssuerKey::new);
    let file = KeyFile::new("changes", &[&first]);
    assert!(file.source().check().is_ok());
    let world = World::new(config(file.source())).await;
    let [first_token, second_token, third_token] =
        [&first, &second, &third].map(|key| token(&world, key));
    assert!(is_good(&world, &first_token).await);
    file.write("hush");
    let detail = file.source().check().unwrap_err().to_string();
    assert!(detail.contains("must be a JSON object") && !detail.contains("hush"), "{detail}");
    world.clock.advance(TimeSpan::from_seconds(10));
    assert!(!is_good(&world, &second_token).await);
    assert!(is_good(&world, &first_token).await);
    file.write(&crate::issuer::key_set([&first, &second]));
    world.clock.advance(TimeSpan::from_seconds(10));
    assert!(is_good(&world, &second_token).await);
    assert!(!is_good(&world, &third_token).await);
    world.stop().await;
    assert!(KeySource::file("/nowhere/at/all").check().is_err());
    file.write(&" ".repeat((256 << 10) + 1));
    assert!(file.source().check().unwrap_err().to_string().contains("262144 bytes"));
}

/// SEC-29: keys come over TLS from a trusted host, or from this machine.
#[tokio::test]
async fn keys_come_from_a_trusted_host() {
    let key = IssuerKey::new("k1");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let pair = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&pair, &authority).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let publisher = Publisher::over(&[&key], move |stream| {
        let accepting = acceptor.accept(stream);
        async move { accepting.await.ok() }
    })
    .await;
    let file = KeyFile::new("authority", &[]);
    file.write(&authority.pem());
    let trusted = certificates(&file.0).unwrap();
    let port = publisher.port;
    for (authorities, host, is_trusted) in [
        (trusted.clone(), "localhost", true),
        (trusted, "127.0.0.1", false),
        (Vec::new(), "localhost", false),
    ] {
        let url = format!("https://{host}:{port}/keys");
        let world = World::new(config(KeySource::url(&url, authorities, TIME).unwrap())).await;
        assert_eq!(is_good(&world, &token(&world, &key)).await, is_trusted, "{url}");
        world.stop().await;
    }
}

/// SEC-29: an insecure or unusable URL is rejected.
#[test]
fn an_insecure_address_is_refused() {
    for (url, text) in [
        ("http://issuer.example/keys", "is not secure: write https://"),
        ("http://10.0.0.1/keys", "is not secure"),
        ("http://localhost.evil.example/keys", "is not secure"),
        ("ftp://issuer.example/keys", "must begin with https://"),
        ("https://user:pass@issuer.example/keys", "a user name"),
        ("https://issuer.example/keys#a", "a fragment"),
        ("keys", "is not a URL"),
    ] {
        let error = KeySource::url(url, Vec::new(), TIME).err().unwrap();
        assert!(error.to_string().contains(text), "{url}: {error}");
        assert!(!error.to_string().contains("pass@"), "{error}");
    }
    for url in [
        "https://login.microsoftonline.com/common/discovery/keys",
        "https://10.0.0.1:8443/keys",
        "http://localhost:1/keys",
        "http://[::1]:1/keys",
    ] {
        let source = KeySource::url(url, Vec::new(), TIME);
        assert!(source.is_ok(), "{url}");
    }
}
