//! What comes between the end of actors and what becomes of their records: transfers that others have
//! taken over land, or fail for good. What is scanned or removed before that could be moved by them
//! behind its back (DESIGN D9).

use std::sync::{Arc, Mutex, PoisonError};

use actix::{Addr, AsyncContext, Handler, Message};

use super::{NamespaceActor, State};
use crate::ids::EntityId;

/// What is done when no transfer is on its way any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// A tree that failed is opened anew.
    Open,
    /// A tree that was retired is removed.
    Delete,
    /// A subscription that was retired is removed from its topic.
    Leave,
}

/// No transfer of an entity without actor, or of a whole such tree, is on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
struct Landed {
    id: EntityId,
    then: Then,
}

/// Calls back when its last holder is gone.
struct Last(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for Last {
    fn drop(&mut self) {
        let call = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(call) = call {
            call();
        }
    }
}

impl NamespaceActor {
    /// Waits for the transfers of entities whose actors have ended, and goes on then. The shard was
    /// taken over again before, if that was needed: nothing waits for anything but the store.
    pub(super) fn when_landed(&self, id: EntityId, then: Then, itself: Addr<Self>) {
        let members = match then {
            Then::Open | Then::Delete => self.family_of(id),
            Then::Leave => vec![id],
        };
        let call = move || itself.do_send(Landed { id, then });
        let last = Arc::new(Last(Mutex::new(Some(Box::new(call)))));
        for entity in members.iter().filter_map(|id| self.entities.get(id)) {
            let last = Arc::clone(&last);
            entity.passages.close(Box::new(move || drop(last)));
        }
    }
}

impl Handler<Landed> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Landed { id, then }: Landed, context: &mut Self::Context) {
        let Some(entity) = self.entities.get(&id) else { return };
        match (then, entity.state) {
            (Then::Open, State::Open) if self.stopping => self.end_if_retired(),
            // Somebody may have asked for its deletion while it had no actor.
            (Then::Open, State::Open) if entity.actor.is_none() => self.open(id, context.address()),
            (Then::Delete, State::Deleting) => self.write_deletion(id, context.address()),
            (Then::Leave, State::Deleting) => self.remove_subscription(id, context.address()),
            (Then::Open | Then::Delete | Then::Leave, _) => {}
        }
    }
}
