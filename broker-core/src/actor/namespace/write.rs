//! Writes creations and deletions to the store, and continues when they are stored or lost.
//! `create.rs` and `delete.rs` call it.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::recovery::AfterRecovery;
use super::transfer_end::AfterTransfers;
use super::{NamespaceActor, State, records, refuse};
use crate::change::codec;
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::store::{Batch, StoreError};

/// Result of storing the records of a creation or deletion.
#[derive(Message)]
#[rtype(result = "()")]
struct WriteResult {
    id: EntityId,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Stores the facts about the namespace if it already has entities (CNT-10). The result is not
    /// awaited: after a loss, the next start computes the same facts.
    pub(super) fn write_facts(&self) {
        let mut batch = Batch::default();
        records::write_facts(&self.facts, &mut batch);
        let store = Arc::clone(&self.shared.store);
        actix_rt::spawn(async move {
            if let Err(error) = store.amend(&[], batch).await {
                tracing::error!(%error, "a change of the namespace could not be stored");
            }
        });
    }

    /// Writes records in order with the records of the entity's tree.
    pub(super) fn write(&self, id: EntityId, mut batch: Batch, itself: Addr<Self>) {
        batch.require_sync();
        if let Some(writer) = self.writer(id) {
            writer
                .submit(batch, Box::new(move |result| itself.do_send(WriteResult { id, result })));
        }
    }

    /// Removes every record of a queue, or of a topic with all its subscriptions.
    pub(super) fn write_deletion(&self, root: EntityId, itself: Addr<Self>) {
        let mut batch = Batch::default();
        for id in self.family_of(root) {
            let key = match self.entities.get(&id).map(|entity| entity.kind) {
                Some(EntityKind::Topic) => codec::topic_entry_key(id),
                Some(EntityKind::Subscription) => codec::subscription_entry_key(id),
                Some(EntityKind::Queue) | None => codec::queue_entry_key(id),
            };
            batch.delete(&key);
            batch.delete_prefix(&codec::space_key(id));
            if self.has_policies(id) {
                batch.delete(&codec::policies_key(id));
            }
        }
        self.write(root, batch, itself);
    }
}

impl Handler<WriteResult> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, WriteResult { id, result }: WriteResult, context: &mut Self::Context) {
        let Some(state) = self.entities.get(&id).map(|entity| entity.state) else { return };
        match (state, result) {
            (State::Creating, Ok(())) => self.open(id, context.address()),
            (
                State::Opening | State::Open | State::Retiring | State::Deleting | State::Closed,
                Ok(()),
            ) => {
                // Subscriptions first, so that the root still lists them.
                for id in self.family_of(id).into_iter().rev() {
                    if let Some(answer) = self.forget(id).and_then(|entity| entity.answer) {
                        answer.send(Ok(()));
                    }
                }
            }
            (State::Creating, Err(error)) => {
                tracing::error!(entity_id = id.0, %error, "entity could not be created");
                if let Some(entity) = self.entities.get_mut(&id) {
                    entity.state = State::Undoing;
                }
                // It may have been stored nevertheless; the next start must not find any of its
                // records.
                self.when_recovered(id, AfterRecovery::Undo, context.address());
            }
            // The store may contain records of a batch that it gave up. The namespace has the path
            // until they are removed.
            (State::Undoing, Err(error)) if error.is_unavailable() && !self.stopping => {
                self.when_recovered(id, AfterRecovery::Undo, context.address());
            }
            (State::Deleting, Err(error)) if error.is_unavailable() && !self.stopping => {
                let again = AfterRecovery::Transfers(AfterTransfers::Delete);
                self.when_recovered(id, again, context.address());
            }
            (State::Undoing, result) => {
                if let Err(error) = result {
                    tracing::error!(entity_id = id.0, %error, "could not undo a failed creation");
                }
                if let Some(entity) = self.forget(id) {
                    refuse(entity.answer, Rejection::internal("the store failed"));
                }
                if self.stopping {
                    self.end_if_retired();
                }
            }
            (_, Err(error)) => {
                self.close_family(id, &error.to_string());
                self.when_recovered(id, AfterRecovery::Nothing, context.address());
            }
        }
    }
}
