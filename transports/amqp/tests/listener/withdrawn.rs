//! Tests of links and connections that lose their rights: the token expires, its key is
//! regenerated, its policy is deleted, or anonymous access ends.

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::performative::{Attach, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::Broker;
use peeklock_core::contract::{Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Value;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, ROOT_POLICY, WhichKey};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::browsing::browser;
use crate::client::Client;
use crate::forced::{FORCED, ended};
use crate::rights::{client, is_refused, put};
use crate::server::Server;
use crate::sessions::{of_session, raw};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

/// Way in which a token loses its rights.
#[derive(Clone, Copy, Debug)]
enum Over {
    Expired,
    Regenerated,
    Deleted,
}

/// A client with a token of a policy for both queues.
async fn client_of(server: &Server, policy: &str, until: Timestamp) -> Client {
    let mut client = client(server).await;
    let token = sign(policy, KEY, "sb://x", until);
    for path in ["q", "s"] {
        assert!(put(server, &mut client, path, &token).await);
    }
    client
}

/// The `attach` of each kind of receiver, on this handle and the next ones.
fn receivers(handle: u32) -> [Attach; 3] {
    [
        Client::receiver_of(handle, "q", LOCKED),
        of_session(handle + 1, "s", raw("one")),
        browser(handle + 2, "q"),
    ]
}

/// Attaches a receiver that gets this message and keeps credit; returns the id of the delivery.
async fn receive(client: &mut Client, attach: Attach, body: &str) -> u32 {
    let handle = attach.handle;
    client.attach_receiver(attach).await.unwrap();
    client.credit(handle, 0, 5, false).await;
    let (transfer, message) = client.message().await;
    assert_eq!((transfer.handle, &message.body_bytes()[..]), (handle, body.as_bytes()));
    transfer.delivery_id.unwrap()
}

/// SEC-09, SEC-15, AMQP-26, AMQP-79: a receiver, a receiver of a session and a browser with credit
/// are detached when their token expires, its key is regenerated or its policy is deleted. They are
/// refused when they attach again. Others receive later messages.
#[tokio::test]
async fn receivers_end_with_their_right() {
    for over in [Over::Expired, Over::Regenerated, Over::Deleted] {
        let policies = Policies::new();
        let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
        let server = Server::start_with_policies(authorizer, &policies).await;
        for name in ["ending", "lasting"] {
            let properties = PolicyUpdate {
                rights: Some(Rights::of(Right::Listen)),
                primary_key: KeyText::parse(KEY).ok(),
                ..PolicyUpdate::default()
            };
            server.broker.create_policy("", name, properties).await.unwrap();
        }
        server.put(&["a"]).await;
        server.put_in_sessions(&[("one", "a")]).await;
        // Before the lock of the session ends.
        let lasts = TimeSpan::from_seconds(30);
        let until = match over {
            Over::Expired => server.broker.now().plus(lasts),
            Over::Regenerated | Over::Deleted => Timestamp::NEVER,
        };
        let mut client = client_of(&server, "ending", until).await;
        let mut ids = Vec::new();
        for attach in receivers(10) {
            ids.push(receive(&mut client, attach, "a").await);
        }
        // Messages to the browser are settled already.
        for id in &ids[..2] {
            client.settle(*id, DeliveryState::accepted()).await;
        }
        match over {
            Over::Expired => server.clock.advance(lasts),
            Over::Regenerated => {
                let which = WhichKey::Primary;
                server.broker.regenerate_key("", "ending", which, None).await.unwrap();
            }
            Over::Deleted => server.broker.delete_policy("", "ending").await.unwrap(),
        }
        let mut told = Vec::new();
        for _ in 0..3 {
            let (handle, condition, _) = ended(&mut client).await;
            assert_eq!(condition, FORCED, "{over:?}");
            told.push(handle);
        }
        told.sort_unstable();
        assert_eq!(told, [10, 11, 12], "{over:?}");

        server.put(&["b"]).await;
        server.put_message("s", "one", "b").await;
        let mut other = client_of(&server, "lasting", Timestamp::NEVER).await;
        receive(&mut other, Client::receiver_of(10, "q", LOCKED), "b").await;
        // Another client can lock the session as soon as it was given back.
        receive(&mut other, of_session(11, "s", raw(Value::Null)), "b").await;
        for attach in receivers(20) {
            // No other frame comes before the answer.
            assert!(is_refused(&server, &mut client, attach).await, "{over:?}");
        }
        server.stop().await;
    }
}

/// SEC-15, SEC-16, SEC-17, AMQP-79: with the first policy, links that were attached without a token
/// are detached, and connections without a token are closed, with links or without. A connection
/// with a token stays.
#[tokio::test]
async fn connections_without_a_token_are_closed_when_everybody_needs_one() {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::open_on_loopback()));
    let builder = Broker::builder().authorizer(authorizer).policies(&policies);
    let server = Server::start_as(builder, QueueUpdate::default(), |config| {
        config.opening_timeout = Duration::from_millis(300);
    })
    .await;
    // It is older, and is checked first.
    let mut kept = client(&server).await;
    let key = policies.root_key().unwrap();
    let token = sign(ROOT_POLICY, key.reveal(), "sb://x", Timestamp::NEVER);
    assert!(put(&server, &mut kept, "q", &token).await);
    let mut idle = server.client().await;
    let mut receiving = server.client().await;
    receiving.receiver(0, "q", LOCKED).await.unwrap();
    receiving.credit(0, 0, 5, false).await;

    let properties = PolicyUpdate { rights: Some(Rights::ALL), ..PolicyUpdate::default() };
    server.broker.create_policy("", "first", properties).await.unwrap();
    assert_eq!(receiving.detached().await, FORCED);
    server.put(&["a"]).await;
    let mut late = server.client().await;
    let attach = Client::receiver_of(0, "q", LOCKED);
    assert!(is_refused(&server, &mut late, attach).await);
    for client in [&mut receiving, &mut idle] {
        let (Performative::Close(close), _) = client.next_frame().await else { panic!("no close") };
        assert_eq!(close.error.unwrap().condition(), "amqp:unauthorized-access");
    }
    receive(&mut kept, Client::receiver_of(2, "q", LOCKED), "a").await;
    server.stop().await;
}
