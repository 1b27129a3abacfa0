//! Replaces the credentials of a principal, for example by its next token, and requests its grants
//! again (SEC-15). Transports call it for a new token. Links whose grant the new credentials no
//! longer give end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::Access;
use crate::contract::authorizer::Principal;
use crate::grant::Entitlement;

/// Maximum number of concurrent questions to the authorizer: the number of links of a connection.
/// Further ones wait.
const ASKED_AT_ONCE_MAX: usize = 256;

type PendingQuestion<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Access {
    /// Replaces the principal after it presented new credentials, such as a newer token. Existing
    /// handles follow: operations that are still granted go on, others end (SEC-15). Returns when
    /// the authorizer has answered for every entity with a handle.
    pub async fn renew(&self, principal: Principal) {
        let Some(check) = &self.check else { return };
        let used = {
            let mut state = check.lock();
            if *state.principal == principal {
                return;
            }
            state.principal = Arc::new(principal);
            state.version += 1;
            // Grants without a handle are requested again when needed.
            state.grants.forget_all_unused();
            state
                .grants
                .iter()
                .map(|(resource, entitlement)| (Box::from(resource), Arc::clone(entitlement)))
                .collect::<Vec<(Box<str>, Arc<Entitlement>)>>()
        };
        let ask = |(resource, entitlement): (Box<str>, Arc<Entitlement>)| -> PendingQuestion<'_> {
            Box::pin(async move {
                if let Err(reason) = self.ask(check, &resource, Some(&entitlement)).await {
                    entitlement.refuse(reason);
                }
            })
        };
        poll_all(used.into_iter().map(ask).collect()).await;
    }
}

/// Polls all futures until they are complete, up to [`ASKED_AT_ONCE_MAX`] at a time. Each refusal
/// is delayed separately (SEC-26): one after the other, links at the last entity would go on for
/// minutes under rights that their client no longer has. A refusal for one entity implies nothing
/// for others, which have policies of their own.
async fn poll_all(asking: Vec<PendingQuestion<'_>>) {
    let mut left = asking.into_iter();
    let mut begun: Vec<PendingQuestion<'_>> = Vec::new();
    poll_fn(|context| {
        loop {
            begun.retain_mut(|one| one.as_mut().poll(context).is_pending());
            let waiting = begun.len();
            begun.extend(left.by_ref().take(ASKED_AT_ONCE_MAX - waiting));
            if begun.len() == waiting {
                break;
            }
        }
        if begun.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
