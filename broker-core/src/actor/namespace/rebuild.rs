//! Failure: reopens a failed tree from the store, unless it fails too often (DESIGN D3). The
//! namespace actor calls it when an actor reports a failure.

use std::time::{Duration, Instant};

use actix::{AsyncContext, Handler};

use super::recovery::AfterRecovery;
use super::transfer_end::AfterTransfers;
use super::{NamespaceActor, State, refuse};
use crate::actor::messages::TreeFailed;
use crate::cluster::tenure::Ending;
use crate::error::Rejection;
use crate::ids::EntityId;

/// Number of failures within [`FAILURE_WINDOW`] that close an entity until the restart of the
/// broker.
const FAILURES_MAX: usize = 3;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

impl NamespaceActor {
    /// Closes a whole tree.
    pub(super) fn close_family(&mut self, root: EntityId, why: &str) {
        for id in self.family_of(root) {
            self.close(id, why);
        }
    }

    pub(super) fn close(&mut self, id: EntityId, why: &str) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        tracing::error!(entity = %entity.path, why, "entity is closed until the broker is restarted");
        entity.state = State::Closed;
        entity.actor = None;
        // Not `InternalError`, which is temporary: clients would retry until the restart.
        let reason = Rejection::cancelled(format!(
            "`{}` failed too often and is closed; restart the broker",
            entity.path
        ));
        entity.inlet.close(&reason);
        let answer = entity.answer.take();
        // The path must answer with this reason, not with `EntityNotFound`.
        let (key, entry) = (entity.key.clone(), entity.entry(id));
        self.directory().insert(key.clone(), entry);
        self.directory().end_creation(&key);
        refuse(answer, reason);
        self.continue_parked(&key);
    }
}

impl Handler<TreeFailed> for NamespaceActor {
    type Result = ();

    fn handle(
        &mut self,
        TreeFailed { id, why, by_outage }: TreeFailed,
        context: &mut Self::Context,
    ) {
        crate::telemetry::count_rebuild();
        // No machine of the tree exists any more. Retired actors report their end themselves.
        for id in self.family_of(id) {
            if let Some(entity) = self.entities.get_mut(&id)
                && entity.state != State::Retiring
            {
                entity.actor = None;
            }
        }
        let Some(entity) = self.entities.get_mut(&id) else { return };
        if matches!(entity.state, State::Retiring | State::Deleting) {
            self.when_recovered(id, AfterRecovery::Nothing, context.address());
            return;
        }
        let ending = self.shared.tenure.ending();
        if let Some(ending) = ending.or_else(|| self.stopping.then_some(Ending::Stopped)) {
            // Requests that were carried out have been answered. No machine will take the others;
            // the next start, here or at another broker, opens the entity from the store.
            let reason = ending.refusal();
            for id in self.family_of(id) {
                if let Some(entity) = self.entities.get(&id) {
                    entity.inlet.close(&reason);
                }
            }
            self.end_if_retired();
            return;
        }
        let now = Instant::now();
        entity.failures.extend((!by_outage).then_some(now));
        entity.failures.retain(|at| now.duration_since(*at) < FAILURE_WINDOW);
        let too_often = entity.failures.len() >= FAILURES_MAX;
        let then = if too_often {
            AfterRecovery::Nothing
        } else {
            AfterRecovery::Transfers(AfterTransfers::Reopen)
        };
        if too_often {
            self.close_family(id, &why);
        }
        self.when_recovered(id, then, context.address());
    }
}
