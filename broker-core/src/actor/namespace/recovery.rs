//! Recovery: takes the shard of an entity over again after a batch has failed (DESIGN D3). The store
//! may take its time, so the namespace continues by mail.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::transfer_end::AfterTransfers;
use super::{NamespaceActor, State};
use crate::ids::EntityId;
use crate::store::{Shard, StoreError};

/// Action after the shard was taken over again.
pub(super) enum AfterRecovery {
    /// None: trees of the shard can be opened again.
    Nothing,
    /// Waits until the transfers of the entity have ended.
    Transfers(AfterTransfers),
    /// Removes the records of a creation that failed.
    Undo,
    /// Stores the policies that are in force again.
    RestorePolicies,
    /// Stores a first policy of the namespace.
    WriteRootPolicy,
}

/// Entities whose shard is being taken over again, with their next actions, by shard.
pub(super) type Recoveries = BTreeMap<Shard, Vec<(EntityId, AfterRecovery)>>;

/// A shard was taken over again, or the store refused it.
#[derive(Message)]
#[rtype(result = "()")]
struct Recovered {
    shard: Shard,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Takes the shard of an entity over again if its writer has failed, then continues with
    /// `then`. Other mail is handled meanwhile. While the store is not available, it tries again.
    pub(super) fn when_recovered(&mut self, id: EntityId, then: AfterRecovery, itself: Addr<Self>) {
        let Some(writer) = self.writer(id).map(Arc::clone) else { return };
        let waiting = self.recoveries.entry(writer.shard()).or_default();
        waiting.push((id, then));
        if waiting.len() > 1 {
            return;
        }
        let shared = Arc::clone(&self.shared);
        actix_rt::spawn(async move {
            let result = shared.outlast(async || writer.recover().await).await;
            itself.do_send(Recovered { shard: writer.shard(), result });
        });
    }

    fn continue_recovered(
        &mut self,
        (id, then): (EntityId, AfterRecovery),
        result: Result<(), StoreError>,
        itself: Addr<Self>,
    ) {
        if let Err(error) = result.as_ref()
            && !error.is_unavailable()
        {
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
            (AfterRecovery::Transfers(then), _) => self.when_transfers_ended(id, then, itself),
            // If the store refused the shard, it refuses these batches too.
            (AfterRecovery::Undo, _) => self.write_deletion(id, itself),
            (AfterRecovery::RestorePolicies, _) => self.restore_policies(id, itself),
            (AfterRecovery::WriteRootPolicy, _) => self.write_root_policy(itself),
        }
    }
}

impl Handler<Recovered> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: Recovered, context: &mut Self::Context) {
        let Recovered { shard, result } = mail;
        let mut waiting = self.recoveries.remove(&shard).unwrap_or_default().into_iter();
        if let Some(first) = waiting.next() {
            self.continue_recovered(first, result, context.address());
        }
        // The shard may have failed again when these came.
        for (id, then) in waiting {
            self.when_recovered(id, then, context.address());
        }
    }
}
