//! Asks the authorizer for the rights of a principal. A panic in the authorizer becomes a refusal
//! and does not spread.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::broker::Broker;
use crate::contract::authorizer::{Principal, RequestAddress, TOKEN_BYTES_MAX};
use crate::contract::rights::Grant;
use crate::error::Rejection;
use crate::path::PathKey;

/// Returns the grant on one resource.
pub(super) async fn ask(
    broker: &Broker,
    principal: &Principal,
    resource: &str,
) -> Result<Grant, Rejection> {
    if let Some((owner, name)) = &principal.policy {
        return broker.shared.policies.grant(owner, name, resource);
    }
    let denied = |reason: Rejection| reason.with_peer(principal.peer);
    if principal.is_token_too_long {
        let detail =
            format!("the presented credentials are longer than {} KiB", TOKEN_BYTES_MAX >> 10);
        return Err(denied(Rejection::unauthorized(detail).with_cause("too_long")));
    }
    let asked = &*with_known_path(broker, principal);
    let authorizer = &*broker.shared.authorizer;
    let asking = async { authorizer.authorize(asked, resource).await };
    let answer = catch_panic(asking).await.unwrap_or_else(|Panicked| {
        let detail = "the rights could not be determined; try again";
        Err(Rejection::unauthorized(detail).with_cause("authorizer"))
    });
    answer.map_err(denied)
}

/// Returns the grants on several resources; an empty grant if the authorizer gives no answer.
pub(super) async fn ask_all(
    broker: &Broker,
    principal: &Principal,
    resources: &[Arc<str>],
) -> Vec<Grant> {
    if let Some((owner, name)) = &principal.policy {
        let grant = |resource: &Arc<str>| broker.shared.policies.grant(owner, name, resource);
        return resources.iter().map(|it| grant(it).unwrap_or_else(|_| Grant::nothing())).collect();
    }
    if principal.is_token_too_long {
        return vec![Grant::nothing(); resources.len()];
    }
    let principal = &*with_known_path(broker, principal);
    let authorizer = &*broker.shared.authorizer;
    let asking = async { authorizer.authorize_all(principal, resources).await };
    let mut grants = catch_panic(asking).await.unwrap_or_else(|Panicked| Vec::new());
    grants.resize(resources.len(), Grant::nothing());
    grants
}

/// Returns the principal, with a note whether the address of its request is also the path of
/// another entity (SEC-13).
fn with_known_path<'a>(broker: &Broker, principal: &'a Principal) -> Cow<'a, Principal> {
    let asked = principal.address.as_ref().filter(|asked| is_path(broker, asked));
    asked.map_or(Cow::Borrowed(principal), |asked| {
        let address = Some(RequestAddress { is_path: true, ..asked.clone() });
        Cow::Owned(Principal { address, ..principal.clone() })
    })
}

fn is_path(broker: &Broker, asked: &RequestAddress) -> bool {
    let RequestAddress { address, resource, .. } = asked;
    let is_below =
        address.get(..resource.len()).is_some_and(|it| it.eq_ignore_ascii_case(resource));
    let beyond = if is_below { resource.len() } else { 0 };
    let slashes = address.match_indices('/').map(|(at, _)| at);
    // No path is longer, so an address with many slashes costs no more.
    let longest = broker.settings().limits.path_chars_max;
    slashes
        .chain([address.len()])
        .take_while(|end| *end <= longest)
        .filter(|end| *end > beyond)
        .filter_map(|end| address.get(..end))
        .any(|path| broker.shared.directory.get(&PathKey::fold(path)).is_some())
}

struct Panicked;

async fn catch_panic<T>(asking: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut asking = pin!(asking);
    poll_fn(|context| {
        // State that the authorizer leaves inconsistent is its own; the broker shares none with it.
        match catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(context))) {
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => {
                tracing::error!("the authorizer panicked; the request is refused");
                Poll::Ready(Err(Panicked))
            }
        }
    })
    .await
}
