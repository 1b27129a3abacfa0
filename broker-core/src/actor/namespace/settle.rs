//! What comes between the end of an actor and what becomes of its records: transfers that others have
//! taken over land, or fail for good. What is scanned or removed before that could be moved by them
//! behind its back (DESIGN D9).

use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::{NamespaceActor, State};
use crate::ids::EntityId;

/// No transfer of an entity that has no actor is on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
struct Settled(EntityId);

impl NamespaceActor {
    /// Waits for the transfers of an entity whose actor has ended, and then opens it anew or removes it.
    /// The shard was taken over again before, if that was needed: nothing waits for anything but the
    /// store.
    pub(super) fn settle(&self, id: EntityId, itself: Addr<Self>) {
        let Some(entity) = self.entities.get(&id) else { return };
        let passages = Arc::clone(&entity.passages);
        passages.close(Box::new(move || itself.do_send(Settled(id))));
    }
}

impl Handler<Settled> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Settled(id): Settled, context: &mut Self::Context) {
        let Some(entity) = self.entities.get(&id) else { return };
        match entity.state {
            State::Deleting => self.write_deletion(id, context.address()),
            State::Open if self.stopping => self.end_if_retired(),
            State::Open => self.open(id, context.address()),
            State::Creating | State::Opening | State::Retiring | State::Undoing | State::Closed => {
            }
        }
    }
}
