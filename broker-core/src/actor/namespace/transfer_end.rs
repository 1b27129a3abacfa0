//! Waits, after actors have ended, until all transfers that others took over from them have landed
//! or permanently failed. A transfer that lands later could change records that were already
//! scanned or removed (DESIGN D9).

use std::sync::{Arc, Mutex, PoisonError};

use actix::{Addr, AsyncContext, Handler, Message};

use super::{NamespaceActor, State};
use crate::ids::EntityId;

/// Action once no transfer is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AfterTransfers {
    /// Reopens a tree that failed.
    Reopen,
    /// Removes a tree that was retired.
    Delete,
    /// Removes a retired subscription from its topic.
    RemoveSubscription,
}

/// All transfers that others took over from an entity, or from its tree, have landed or failed. The
/// actors had ended before.
#[derive(Message)]
#[rtype(result = "()")]
struct TransfersEnded {
    id: EntityId,
    then: AfterTransfers,
}

/// Calls back when its last reference is dropped.
struct CallOnDrop(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for CallOnDrop {
    fn drop(&mut self) {
        let call = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(call) = call {
            call();
        }
    }
}

impl NamespaceActor {
    /// Waits for the transfers of entities whose actors have ended, then continues with `then`. The
    /// caller has taken the shard over again before this call, if that was necessary. So the wait
    /// depends only on the store.
    pub(super) fn when_transfers_ended(
        &self,
        id: EntityId,
        then: AfterTransfers,
        itself: Addr<Self>,
    ) {
        let members = match then {
            AfterTransfers::Reopen | AfterTransfers::Delete => self.family_of(id),
            AfterTransfers::RemoveSubscription => vec![id],
        };
        let call = move || itself.do_send(TransfersEnded { id, then });
        let last = Arc::new(CallOnDrop(Mutex::new(Some(Box::new(call)))));
        for entity in members.iter().filter_map(|id| self.entities.get(id)) {
            let last = Arc::clone(&last);
            entity.transfer_claims.close(Box::new(move || drop(last)));
        }
    }
}

impl Handler<TransfersEnded> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, TransfersEnded { id, then }: TransfersEnded, context: &mut Self::Context) {
        let Some(entity) = self.entities.get(&id) else { return };
        match (then, entity.state) {
            (AfterTransfers::Reopen, State::Open) if self.stopping => self.end_if_retired(),
            // The entity may have been deleted while it had no actor.
            (AfterTransfers::Reopen, State::Open) if entity.actor.is_none() => {
                self.open(id, context.address())
            }
            (AfterTransfers::Delete, State::Deleting) => self.write_deletion(id, context.address()),
            (AfterTransfers::RemoveSubscription, State::Deleting) => {
                self.remove_subscription(id, context.address())
            }
            (
                AfterTransfers::Reopen
                | AfterTransfers::Delete
                | AfterTransfers::RemoveSubscription,
                _,
            ) => {}
        }
    }
}
