//! Credentials for the destinations of forwarding, in addition to those for all requests.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::{BrokerError, Rejection};

use super::world::condition;

/// Grants everything to `all`, and lets every other principal wait for its answer, like a client
/// that might guess keys.
struct Slow;

fn has_all(principal: &Principal) -> bool {
    principal.token.as_deref() == Some("all")
}

#[async_trait]
impl Authorizer for Slow {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        if has_all(principal) { Ok(Grant::everything()) } else { pending().await }
    }

    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let grant = if has_all(principal) { Grant::everything() } else { Grant::nothing() };
        vec![grant; resources.len()]
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// The result, if it is known without waiting.
async fn at_once(
    asked: impl Future<Output = Result<(), BrokerError>>,
) -> Poll<Result<(), BrokerError>> {
    let mut asked = pin!(asked);
    poll_fn(|context| Poll::Ready(asked.as_mut().poll(context))).await
}

/// ADM-12, SEC-26: a client with a valid credential for a destination does not wait because its
/// general credential is invalid there, nor the other way round. A client without a valid one
/// waits.
#[tokio::test]
async fn a_valid_destination_credential_counts_immediately() {
    let broker = Broker::builder().arbiters(1).authorizer(Arc::new(Slow)).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let access = |token: &str| broker.access(Principal::anonymous().with_token(token));
    for (own, besides, is_good) in
        [("own", "all", true), ("all", "stale", true), ("own", "stale", false)]
    {
        for place in 0..2 {
            let mut shown = [None, None];
            shown[place] = Some(access(besides));
            let access = access(own).with_destination_credentials(shown);
            let found = at_once(access.find_destination(place, "q")).await;
            assert_eq!(matches!(found, Poll::Ready(Ok(()))), is_good, "{own} {besides}");
            assert_eq!(found.is_pending(), !is_good, "{own} {besides}");
            if let Poll::Ready(absent) = at_once(access.find_destination(place, "absent")).await {
                assert_eq!(condition(&absent), Some(Condition::EntityNotFound));
            }
        }
    }
}
