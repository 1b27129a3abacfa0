//! Tests of a presented key that several policies with one name share.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use peeklock_auth_sas::{SasAuthorizer, SasConfig};
use peeklock_core::Broker;
use peeklock_core::contract::{Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};

/// The key of the published examples.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OWNERS: [&str; 3] = ["orders", "other", "third"];

/// AMQP-08, SEC-09: a client with a key of several entities, before its first operation, stays
/// known exactly as long as at least one entity keeps the key, regardless of the order of removal.
#[tokio::test]
async fn a_key_of_several_entities_is_known_as_long_as_one_has_it() {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    let builder = Broker::builder().arbiters(1).policies(&policies).authorizer(authorizer);
    let broker = builder.start().await.unwrap();
    for queue in OWNERS {
        broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    let with_key = || broker.access(Principal::anonymous().with_key("team", KEY));
    // All orders, several times: the result must not depend on the lookup order.
    for round in 0..24 {
        let properties = PolicyUpdate {
            rights: Some(Rights::of(Right::Send)),
            primary_key: KeyText::parse(KEY).ok(),
            ..PolicyUpdate::default()
        };
        for owner in OWNERS {
            broker.create_policy(owner, "team", properties.clone()).await.unwrap();
        }
        let known = with_key();
        assert!(known.require_valid_credentials().await.is_ok());
        for place in 0..OWNERS.len() {
            assert!(known.holds(), "{place} in round {round}");
            assert!(
                with_key().require_valid_credentials().await.is_ok(),
                "{place} in round {round}"
            );
            let owner = OWNERS[(round + place) % OWNERS.len()];
            if round % 2 == 0 {
                broker.delete_policy(owner, "team").await.unwrap();
            } else {
                broker.regenerate_key(owner, "team", WhichKey::Primary, None).await.unwrap();
            }
        }
        assert!(!known.holds(), "in round {round}");
        assert!(with_key().require_valid_credentials().await.is_err(), "in round {round}");
        if round % 2 == 1 {
            for owner in OWNERS {
                broker.delete_policy(owner, "team").await.unwrap();
            }
        }
    }
    broker.stop(Duration::ZERO).await.unwrap();
}
