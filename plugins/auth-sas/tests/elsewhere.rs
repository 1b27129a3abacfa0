//! Tests of tokens at resources where their policy does not apply: a token of an entity's policy
//! for the whole namespace, as SDKs sign for administration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::Broker;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::contract::{Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::policies::{Policies, PolicyUpdate, WhichKey};
use peeklock_core::time::{TimeSpan, Timestamp};

struct World {
    broker: Broker,
    clock: Arc<ManualClock>,
    authorizer: Arc<SasAuthorizer>,
}

impl World {
    /// Starts a broker with the queues `orders` and `other`. Both and the namespace have a policy
    /// `all` with different keys; `orders` also has a policy `sender`.
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let policies = Policies::new();
        let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
        let builder = Broker::builder().arbiters(1).clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let builder = builder.authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>);
        let broker = builder.policies(&policies).start().await.unwrap();
        for queue in ["orders", "other"] {
            broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
        }
        for (owner, name, rights) in [
            ("", "all", Rights::ALL),
            ("orders", "all", Rights::ALL),
            ("other", "all", Rights::ALL),
            ("orders", "sender", Rights::of(Right::Send)),
        ] {
            let properties = PolicyUpdate { rights: Some(rights), ..PolicyUpdate::default() };
            broker.create_policy(owner, name, properties).await.unwrap();
        }
        Self { broker, clock, authorizer }
    }

    /// Expiry of the test tokens.
    fn end() -> Timestamp {
        Timestamp::parse("2026-05-01T13:00:00Z").unwrap()
    }

    /// Returns a token signed with the primary key of a policy of `orders`.
    async fn token(&self, name: &str, audience: &str) -> String {
        let keys = self.broker.policy_keys("orders", name).await.unwrap();
        sign(name, keys.primary_key.reveal(), audience, Self::end())
    }

    /// Returns the answer that is available without waiting. All requests come from the same
    /// address.
    async fn at_once(&self, token: &str, resource: &str) -> Poll<Result<Grant, Rejection>> {
        let shown = Principal::anonymous().with_token(token).from_peer(peer());
        let mut asked = pin!(self.authorizer.authorize(&shown, resource));
        poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1))
}

/// SEC-26, SEC-14: a token gives no rights where its policy does not apply, and does not count as
/// an attempt to guess. This holds whether or not other entities have a policy with the same name.
/// A wrong signature counts.
#[tokio::test]
async fn a_token_of_another_entity_is_not_delayed() {
    let world = World::new().await;
    for name in ["sender", "all"] {
        let good = world.token(name, "https://x:5300").await;
        for resource in ["", "other", "absent", "orders"] {
            let answer = world.at_once(&good, resource).await;
            let Poll::Ready(Ok(grant)) = answer else { panic!("{name} at {resource:?}") };
            assert_eq!(grant.rights.is_none(), resource != "orders", "{name} at {resource:?}");
            assert_eq!(grant.until, Some(World::end()));
        }
        // A token for another resource does not wait either.
        let narrow = world.token(name, "sb://x/other").await;
        let answer = world.at_once(&narrow, "absent").await;
        let Poll::Ready(Err(refused)) = answer else { panic!("{name}") };
        assert_eq!(refused.denial().unwrap().cause, "audience");
    }
    // The address has no failures yet, so the first failure has the minimum delay.
    let wrong = world.token("sender", "https://x:5300").await.replace("sig=", "sig=A");
    let shown = Principal::anonymous().with_token(wrong).from_peer(peer());
    let mut asked = pin!(world.authorizer.authorize(&shown, "other"));
    let mut answer = async || poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await;
    assert!(answer().await.is_pending());
    world.clock.advance(TimeSpan::from_ms(49));
    assert!(answer().await.is_pending());
    world.clock.advance(TimeSpan::from_ms(1));
    let Poll::Ready(Err(refused)) = answer().await else { panic!("it waits for 50 ms") };
    assert_eq!(refused.denial().unwrap().cause, "signature");
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-26, SEC-14: an expired token is reported as expired also where its policy does not apply.
#[tokio::test]
async fn an_expired_token_is_reported_as_expired_elsewhere() {
    let world = World::new().await;
    let token = world.token("sender", "sb://x").await;
    let access = world.broker.access(Principal::anonymous().with_token(token));
    world.clock.advance(TimeSpan::from_minutes(60));
    let refused = access.require_valid_credentials().await.unwrap_err();
    assert_eq!(refused.rejection().denial().unwrap().cause, "expired");
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-09, SEC-15: a client known by a token of another entity stays known exactly until the key
/// ends.
#[tokio::test]
async fn a_token_is_known_elsewhere_as_long_as_its_key_lasts() {
    let world = World::new().await;
    let token = world.token("sender", "sb://x").await;
    let access = || world.broker.access(Principal::anonymous().with_token(&*token));
    let known = access();
    assert!(known.require_valid_credentials().await.is_ok() && known.holds());
    world.broker.regenerate_key("orders", "sender", WhichKey::Secondary, None).await.unwrap();
    assert!(known.holds());
    world.broker.regenerate_key("orders", "sender", WhichKey::Primary, None).await.unwrap();
    assert!(!known.holds());
    assert!(access().require_valid_credentials().await.is_err());
    world.broker.stop(Duration::ZERO).await.unwrap();
}
