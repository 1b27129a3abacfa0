//! Questions to the authorizer. A panic in it is a refusal, and stays there.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::broker::Broker;
use crate::contract::authorizer::{Authorizer, Principal};
use crate::contract::rights::Grant;
use crate::error::Rejection;

/// What is granted on one resource.
pub(super) async fn ask(
    broker: &Broker,
    principal: &Principal,
    resource: &str,
) -> Result<Grant, Rejection> {
    if let Some((owner, name)) = &principal.policy {
        return broker.shared.policies.grant(owner, name, resource);
    }
    let authorizer = &*broker.shared.authorizer;
    let asking = async { authorizer.authorize(principal, resource).await };
    caught(asking).await.unwrap_or_else(|Panicked| {
        Err(Rejection::unauthorized("who may do this could not be found out"))
    })
}

/// What is granted on many; nothing where there is no answer.
pub(super) async fn ask_all(
    broker: &Broker,
    principal: &Principal,
    resources: &[Arc<str>],
) -> Vec<Grant> {
    if let Some((owner, name)) = &principal.policy {
        let grant = |resource: &Arc<str>| broker.shared.policies.grant(owner, name, resource);
        return resources.iter().map(|it| grant(it).unwrap_or_else(|_| Grant::nothing())).collect();
    }
    let authorizer = &*broker.shared.authorizer;
    let asking = async { authorizer.authorize_all(principal, resources).await };
    let mut grants = caught(asking).await.unwrap_or_else(|Panicked| Vec::new());
    grants.resize(resources.len(), Grant::nothing());
    grants
}

/// Whether who has shown nothing is let in.
pub(crate) fn allows_anonymous(authorizer: &dyn Authorizer) -> bool {
    catch_unwind(AssertUnwindSafe(|| authorizer.allows_anonymous())).unwrap_or(false)
}

struct Panicked;

async fn caught<T>(asking: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut asking = pin!(asking);
    poll_fn(|context| {
        // What it leaves half done is its own; nothing here is shared with it.
        match catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(context))) {
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => {
                tracing::error!("the authorizer panicked, which is taken for a refusal");
                Poll::Ready(Err(Panicked))
            }
        }
    })
    .await
}
