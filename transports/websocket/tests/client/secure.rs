//! TLS, connection strings, and tokens that the client signs itself.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_auth_sas::{SasAuthorizer, SasConfig, Token};
use peeklock_core::Broker;
use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::message::Message;
use peeklock_core::policies::{Policies, ROOT_POLICY};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_tls::authority::Authority;
use peeklock_tls::{Protocol, Tls, certificates};
use peeklock_websocket::WebSocketConfig;
use peeklock_websocket::client::{ClientOptions, ClientTls, connect_by, connect_with, url_of};
use tokio::sync::mpsc;

use super::server::{Server, run};

/// The authorizer of policies; reports the expiry of each token that it has not seen before.
struct Noting {
    policies: SasAuthorizer,
    seen: Mutex<Timestamp>,
    ends: mpsc::UnboundedSender<Timestamp>,
}

#[async_trait]
impl Authorizer for Noting {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        let until = principal.token.as_deref().and_then(|text| Token::parse(text).ok());
        if let Some(until) = until.map(|token| token.until()) {
            let before = std::mem::replace(&mut *self.seen.lock().unwrap(), until);
            if before != until {
                self.ends.send(until).unwrap();
            }
        }
        self.policies.authorize(principal, resource).await
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// A listener that admits clients with signed tokens, with TLS by a test authority.
struct Signed {
    server: Server,
    key: String,
    ends: mpsc::UnboundedReceiver<Timestamp>,
    authority: Authority,
}

impl Signed {
    async fn start(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ws-tls").join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory).unwrap();
        }
        let authority = Authority::at(directory);
        authority.prepare(&[]).unwrap();
        let policies = Policies::new();
        let (sender, ends) = mpsc::unbounded_channel();
        let noting = Noting {
            policies: SasAuthorizer::new(&policies, SasConfig::closed()),
            seen: Mutex::new(Timestamp::NONE),
            ends: sender,
        };
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let store = Arc::new(MemoryStore::new(4, u64::MAX));
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<_>)
            .store(Arc::clone(&store) as Arc<_>)
            .policies(&policies)
            .authorizer(Arc::new(noting))
            .start()
            .await
            .unwrap();
        for queue in ["q", "other"] {
            broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
        }
        let key = policies.root_key().unwrap().reveal().to_owned();
        let mut config = WebSocketConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let tls = Tls::open(authority.config()).unwrap();
        config.tls = Some(tls.acceptor(Protocol::Http));
        let server = Server::listen(config, broker, clock, store).await;
        Self { server, key, ends, authority }
    }

    fn string(&self, more: &str) -> String {
        format!(
            "Endpoint=sb://localhost:{};SharedAccessKeyName={ROOT_POLICY};SharedAccessKey={}{more}",
            self.server.address.port(),
            self.key
        )
    }

    fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::default();
        let trusted = certificates(&self.authority.authority_file()).unwrap();
        options.tls = ClientTls::of_system().trusting(trusted);
        options
    }
}

/// TLS-06, TLS-07, SEC-20, SEC-21: with only a connection string, a client finds its broker, trusts
/// its authority, signs tokens, and is restricted to its entity.
#[test]
fn a_connection_string_is_all_that_a_client_needs() {
    run(async {
        let signed = Signed::start("string").await;
        let client = connect_by(&signed.string(""), signed.options()).await.unwrap();
        client.sender("q").unwrap().send(Message::new("a".to_owned())).await.unwrap();
        client.sender("other").unwrap().send(Message::new("b".to_owned())).await.unwrap();
        client.close().await;

        let only = signed.string(";EntityPath=q");
        let client = connect_by(&only, signed.options()).await.unwrap();
        let receiver = client.receiver("q").unwrap();
        let message = receiver.receive(TimeSpan::ZERO).await.unwrap().unwrap();
        receiver.complete(&message).await.unwrap();
        let refusals = [
            client.sender("other").map(drop).unwrap_err(),
            client.receiver("other/$deadletterqueue").map(drop).unwrap_err(),
            client.sender_via("q", "other").map(drop).unwrap_err(),
            client.admin().queue_exists("other").await.map(drop).unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.condition(), Condition::ArgumentError, "{refusal}");
            assert!(refusal.detail().contains("EntityPath"), "{refusal}");
        }
        client.close().await;

        let distrust =
            connect_by(&signed.string(""), ClientOptions::default()).await.err().unwrap();
        assert_eq!(distrust.condition(), Condition::CommunicationProblem);
        assert!(distrust.detail().contains("not trusted here"), "{distrust}");
        let plain = signed.string(";UseDevelopmentEmulator=true");
        let refused = connect_by(&plain, signed.options()).await.err().unwrap();
        assert!(refused.detail().contains("speaks TLS"), "{refused}");
        let wrong = connect_by("Endpoint=sb://a", signed.options()).await.err().unwrap();
        assert_eq!(wrong.condition(), Condition::ArgumentError);
        assert!(!wrong.to_string().contains(&signed.key));
        signed.server.stop().await;
    });
}

/// TLS-07: the default port is the port of the protocol, with and without TLS.
#[test]
fn a_connection_string_without_a_port_means_the_usual_one() {
    let url = |text: &str| url_of(&text.parse_string());
    let key = "SharedAccessKeyName=a;SharedAccessKey=b";
    assert_eq!(url(&format!("Endpoint=sb://bus.example.com/;{key}")), "wss://bus.example.com:5301");
    let plain = format!("Endpoint=sb://[::1]:9;{key};UseDevelopmentEmulator=true");
    assert_eq!(url(&plain), "ws://[::1]:9");
}

trait ParseString {
    fn parse_string(&self) -> peeklock_auth_sas::ConnectionString;
}

impl ParseString for str {
    fn parse_string(&self) -> peeklock_auth_sas::ConnectionString {
        peeklock_auth_sas::ConnectionString::parse(self).unwrap()
    }
}

/// TLS-08, SEC-15: a client sends a new token before the last one expires by the broker's clock,
/// which is months behind the client's; its open links continue.
#[test]
fn tokens_are_renewed_before_they_end() {
    run(async {
        let mut signed = Signed::start("renewed").await;
        let mut options = signed.options();
        options.token_time = Duration::from_secs(2);
        let client = connect_by(&signed.string(""), options).await.unwrap();
        let receiver = client.receiver("q").unwrap();
        let waiting = receiver.receive(TimeSpan::from_minutes(5));
        tokio::pin!(waiting);
        let clock = Arc::clone(&signed.server.clock);
        // Three tokens expire in turn by the broker's clock. Each expires only after the next but
        // one is signed, since the next one may still be under way until then.
        let mut last: Option<Timestamp> = None;
        for _ in 0..5 {
            let until = loop {
                let until = tokio::select! {
                    ended = &mut waiting => panic!("nothing was sent: {ended:?}"),
                    until = signed.ends.recv() => until.unwrap(),
                };
                // The token of the hello was signed before the broker's clock was known.
                if until < clock.now().plus(TimeSpan::from_days(1)) {
                    break until;
                }
            };
            let before = last.replace(until).map(|last| last.minus(TimeSpan::from_ms(1)));
            if let Some(before) = before
                && before > clock.now()
            {
                let step = TimeSpan::from_ticks(before.ticks() - clock.now().ticks());
                clock.advance(step);
            }
        }
        let sender = client.sender("q").unwrap();
        let (sent, received) =
            tokio::join!(sender.send(Message::new("a".to_owned())), &mut waiting);
        sent.unwrap();
        assert!(received.unwrap().is_some());
        client.close().await;
        signed.server.stop().await;
    });
}

/// SEC-15: a given token is not renewed, and its links end with it.
#[test]
fn a_token_that_was_given_ends() {
    run(async {
        let signed = Signed::start("given").await;
        let mut options = signed.options();
        let clock = Arc::clone(&signed.server.clock);
        let until = clock.now().plus(TimeSpan::from_seconds(10));
        let token = signed.string("").as_str().parse_string().token(until);
        options.token = Some(token.into());
        let url = format!("wss://localhost:{}", signed.server.address.port());
        let client = connect_with(&url, options).await.unwrap();
        let sender = client.sender("q").unwrap();
        sender.send(Message::new("a".to_owned())).await.unwrap();
        clock.advance(TimeSpan::from_seconds(10));
        let refused = sender.send(Message::new("b".to_owned()));
        let passing = async {
            loop {
                clock.advance(TimeSpan::from_ms(100));
                tokio::task::yield_now().await;
            }
        };
        let refused = tokio::select! {
            biased;
            refused = refused => refused.unwrap_err(),
            () = passing => unreachable!("time does not end"),
        };
        assert_eq!(refused.condition(), Condition::Unauthorized);
        client.close().await;
        signed.server.stop().await;
    });
}
