//! A principal shows something newer, such as the next token: what was granted for it is asked for again (SEC-15).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::Access;
use crate::contract::authorizer::Principal;
use crate::grant::Entitlement;

/// Entities that the authorizer is asked about at once, as many as one connection has links; further ones wait for one of them.
const ASKED_AT_ONCE_MAX: usize = 256;

type Asking<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Access {
    /// Replaces the principal, because it has shown something else, such as a newer token. Handles that are
    /// there follow: what was begun goes on as far as it is granted still, and ends where it is not (SEC-15).
    pub async fn renew(&self, principal: Principal) {
        let Some(door) = &self.door else { return };
        let used = {
            let mut state = door.lock();
            if *state.principal == principal {
                return;
            }
            state.principal = Arc::new(principal);
            state.version += 1;
            // What no handle rests on is asked for when it is needed.
            state.held.forget_unused_of_before();
            state
                .held
                .iter()
                .map(|(resource, held)| (Box::from(resource), Arc::clone(held)))
                .collect::<Vec<(Box<str>, Arc<Entitlement>)>>()
        };
        let ask = |(resource, held): (Box<str>, Arc<Entitlement>)| -> Asking<'_> {
            Box::pin(async move {
                if let Err(reason) = self.ask(door, &resource, Some(&held)).await {
                    held.refuse(reason);
                }
            })
        };
        together(used.into_iter().map(ask).collect()).await;
    }
}

/// Waits for all. Each refusal is held back by itself (SEC-26): one behind the other, what was opened at the last entity would go
/// on for minutes under what its client has not got any more. A refusal at one says nothing of the others, which have policies
/// of their own.
async fn together(asking: Vec<Asking<'_>>) {
    let mut left = asking.into_iter();
    let mut begun: Vec<Asking<'_>> = Vec::new();
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
