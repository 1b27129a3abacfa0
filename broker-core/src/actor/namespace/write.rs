//! Creations and deletions on their way to the store, and what follows when they are there or lost.

use actix::{Addr, AsyncContext, Handler, Message};

use super::records::entity_key;
use super::{NamespaceActor, State, refuse};
use crate::change::codec;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::store::{Batch, StoreError};

/// The records of a creation or deletion are durable, or not.
#[derive(Message)]
#[rtype(result = "()")]
struct Written {
    id: EntityId,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Writes records that are ordered with those of the entity.
    pub(super) fn write(&self, id: EntityId, mut batch: Batch, itself: Addr<Self>) {
        batch.require_sync();
        if let Some(writer) = self.writer(id) {
            writer.submit(batch, Box::new(move |result| itself.do_send(Written { id, result })));
        }
    }

    /// Removes every record of an entity.
    pub(super) fn write_deletion(&self, id: EntityId, itself: Addr<Self>) {
        let mut batch = Batch::default();
        batch.delete(&entity_key(id));
        batch.delete_prefix(&codec::space_key(id));
        self.write(id, batch, itself);
    }
}

impl Handler<Written> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Written { id, result }: Written, context: &mut Self::Context) {
        let Some(state) = self.entities.get(&id).map(|entity| entity.state) else { return };
        match (state, result) {
            (State::Creating, Ok(())) => self.open(id, context.address()),
            (
                State::Opening | State::Open | State::Retiring | State::Deleting | State::Closed,
                Ok(()),
            ) => {
                if let Some(answer) = self.forget(id).and_then(|entity| entity.answer) {
                    answer.send(Ok(())).ok();
                }
            }
            (State::Creating, Err(error)) => {
                tracing::error!(entity_id = id.0, %error, "entity could not be created");
                if let Some(entity) = self.entities.get_mut(&id) {
                    entity.state = State::Undoing;
                }
                // It may have landed nevertheless; nothing of it may be found at the next start.
                self.recover_writer(id);
                self.write_deletion(id, context.address());
            }
            (State::Undoing, result) => {
                if let Err(error) = result {
                    tracing::error!(entity_id = id.0, %error, "failed creation could not be undone");
                }
                if let Some(entity) = self.forget(id) {
                    refuse(entity.answer, Rejection::internal("the store failed"));
                }
                if self.stopping {
                    self.end_if_retired();
                }
            }
            (_, Err(error)) => {
                self.close(id, &error.to_string());
                self.recover_writer(id);
            }
        }
    }
}
