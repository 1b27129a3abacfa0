//! Recovery: takes the shard of an entity over again after a batch has failed (DESIGN D3). The store
//! may take its time, so the namespace continues by mail.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::create::RefusedCreation;
use super::transfer_end::AfterTransfers;
use super::{NamespaceActor, State};
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::store::StoreError;

/// Action after the shard was taken over again.
pub(super) enum AfterRecovery {
    /// None: trees of the shard can be opened again.
    Nothing,
    /// Waits until the transfers of the entity have ended.
    Transfers(AfterTransfers),
    /// Removes the records of a creation that failed.
    Undo,
    /// Answers creations for which no ids could be reserved.
    RefuseCreations(Vec<PathKey>, Vec<RefusedCreation>),
    /// Stores the policies that are in force again.
    RestorePolicies,
}

/// The shard of an entity was taken over again, or the store refused it.
#[derive(Message)]
#[rtype(result = "()")]
struct Recovered {
    id: EntityId,
    then: AfterRecovery,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Takes the shard of an entity over again if its writer has failed, then continues with
    /// `then`. Other mail is handled meanwhile.
    pub(super) fn when_recovered(&mut self, id: EntityId, then: AfterRecovery, itself: Addr<Self>) {
        let Some(writer) = self.writer(id).map(Arc::clone) else { return };
        self.recovery_count += 1;
        let result = writer.recover();
        itself.do_send(Recovered { id, then, result });
    }
}

impl Handler<Recovered> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: Recovered, context: &mut Self::Context) {
        let Recovered { id, then, result } = mail;
        self.recovery_count = self.recovery_count.saturating_sub(1);
        if let Err(error) = &result {
            // A store that cannot be owned is unusable.
            tracing::error!(%error, "the store failed permanently");
            self.shared.health.fail(&error.to_string());
        }
        let is_open = self.entities.get(&id).is_some_and(|entity| entity.state == State::Open);
        match (then, result) {
            (AfterRecovery::Nothing, _) => {}
            (AfterRecovery::Transfers(AfterTransfers::Reopen), Err(error)) if is_open => {
                self.close_family(id, &error.to_string());
            }
            (AfterRecovery::Transfers(then), _) => {
                self.when_transfers_ended(id, then, context.address())
            }
            // If the store refused the shard, it refuses these batches too.
            (AfterRecovery::Undo, _) => self.write_deletion(id, context.address()),
            (AfterRecovery::RestorePolicies, _) => self.restore_policies(id, context.address()),
            (AfterRecovery::RefuseCreations(keys, refused), _) => {
                self.refuse_creations(keys, refused);
            }
        }
    }
}
