//! Policies: stored next to the namespace's record of their entity, by the writer of its tree, so
//! that they exist exactly as long as it does. In force when they are durable.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::records::TABLE_ANONYMOUS;
use super::recovery::AfterRecovery;
use super::{AnswerTo, NAMESPACE, NamespaceActor, State, refuse};
use crate::change::codec::{self, NAMESPACE_SPACE};
use crate::description::EntityKind;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::policies::change::{Owner, PolicyChange, root};
use crate::policies::{Policy, namespace_key};
use crate::store::{Batch, Key, StoreError};

/// Changes the policies of the namespace, a queue or a topic.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ChangePolicies {
    /// Path of the owner; empty for the namespace.
    pub(crate) owner: PathKey,
    pub(crate) change: PolicyChange,
    /// Answered when the change is durable and in force.
    pub(crate) answer: AnswerTo,
}

/// Result of storing policies.
#[derive(Message)]
#[rtype(result = "()")]
struct PoliciesWriteResult {
    id: EntityId,
    policies: Vec<Arc<Policy>>,
    /// None for the first policy, which no client requested.
    answer: Option<AnswerTo>,
    result: Result<(), StoreError>,
}

/// Result of storing the previous policies again.
#[derive(Message)]
#[rtype(result = "()")]
struct PoliciesRestoreResult {
    id: EntityId,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Creates a first policy if the namespace has none (SEC-04).
    pub(super) fn begin_policies(&mut self, itself: Addr<Self>) {
        if self.makes_root_policy {
            self.opening += 1;
            self.write_root_policy(itself);
        }
    }

    /// Stores a first policy; after an outage again, since nothing of the first attempt is known.
    pub(super) fn write_root_policy(&mut self, itself: Addr<Self>) {
        let policy = match root(self.shared.clock.now()) {
            Ok(policy) => policy,
            Err(reason) => {
                self.shared.health.fail(reason.detail());
                self.note_opened();
                return;
            }
        };
        self.write_policies(NAMESPACE, vec![Arc::new(policy)], None, itself);
    }

    fn change_policies(&mut self, mail: ChangePolicies, itself: Addr<Self>) {
        if self.stopping {
            refuse(Some(mail.answer), Rejection::cancelled("the broker is stopping"));
            return;
        }
        if self.entity_in_change(&mail.owner).is_some() {
            self.park(mail.owner.clone(), mail, itself);
            return;
        }
        let ChangePolicies { owner, change, answer } = mail;
        match self.changed_policies(&owner, &change) {
            Ok((id, policies)) => self.write_policies(id, policies, Some(answer), itself),
            Err(reason) => refuse(Some(answer), reason),
        }
    }

    fn changed_policies(
        &self,
        owner: &PathKey,
        change: &PolicyChange,
    ) -> Result<(EntityId, Vec<Arc<Policy>>), Rejection> {
        let (id, path) = self.owner_of_policies(owner)?;
        if self.policies_in_flight.contains(&id) {
            return Err(Rejection::new(
                crate::condition::Condition::UpdateConflict,
                "another request is changing the policies; try again",
            ));
        }
        let count_max = self.shared.settings.limits.policy_count_max;
        let owner_of_them = Owner { path: &path, count_max };
        let known = self.shared.policies.of(owner);
        let policies = change.apply(&owner_of_them, &known, self.shared.clock.now())?;
        Ok((id, policies))
    }

    /// Returns the entity that has the policies, if its kind can have any.
    fn owner_of_policies(&self, owner: &PathKey) -> Result<(EntityId, Arc<str>), Rejection> {
        if *owner == namespace_key() {
            return Ok((NAMESPACE, "".into()));
        }
        let absent = || Rejection::entity_not_found(owner.as_str());
        let id = self.paths.get(owner).copied().ok_or_else(absent)?;
        let entity = self.entities.get(&id).ok_or_else(absent)?;
        if entity.kind == EntityKind::Subscription {
            return Err(Rejection::invalid_operation(format!(
                "`{}` is a subscription: it has the policies of its topic and of the namespace; \
                 set the policy on the topic",
                entity.path
            )));
        }
        match entity.state {
            State::Open => Ok((id, Arc::clone(&entity.path))),
            State::Creating | State::Undoing | State::Deleting | State::Retiring => Err(absent()),
            State::Opening | State::Closed => Err(Rejection::update_conflict(&entity.path)),
        }
    }

    /// Stores all policies of an entity. The first change that a client requests ends anonymous
    /// access (SEC-17).
    fn write_policies(
        &mut self,
        id: EntityId,
        policies: Vec<Arc<Policy>>,
        answer: Option<AnswerTo>,
        itself: Addr<Self>,
    ) {
        let mut batch = policies_batch(id, &policies);
        if answer.is_some() {
            let key = Key::of_space(NAMESPACE_SPACE).then(&[TABLE_ANONYMOUS]);
            let now = self.shared.clock.now();
            batch.put(&key, |value| codec::write_instant(now, value));
        }
        batch.require_sync();
        self.policies_in_flight.insert(id);
        if let Some(writer) = self.writer(id) {
            let done =
                move |result| itself.do_send(PoliciesWriteResult { id, policies, answer, result });
            writer.submit(batch, Box::new(done));
        }
    }

    /// A failed write may still have been stored: stores the policies that are in force again, after
    /// the shard was taken over.
    pub(super) fn restore_policies(&self, id: EntityId, itself: Addr<Self>) {
        let owner = self.policies_owner_key(id);
        let known = owner.map_or_else(Vec::new, |owner| self.shared.policies.of(&owner).to_vec());
        let mut batch = policies_batch(id, &known);
        batch.require_sync();
        if let Some(writer) = self.writer(id) {
            let done = move |result| itself.do_send(PoliciesRestoreResult { id, result });
            writer.submit(batch, Box::new(done));
        }
    }

    fn policies_owner_key(&self, id: EntityId) -> Option<PathKey> {
        if id == NAMESPACE {
            return Some(namespace_key());
        }
        self.entities.get(&id).map(|entity| entity.key.clone())
    }

    /// Whether policies must be deleted with an entity.
    pub(super) fn has_policies(&self, id: EntityId) -> bool {
        self.policies_in_flight.contains(&id)
            || self
                .policies_owner_key(id)
                .is_some_and(|owner| !self.shared.policies.of(&owner).is_empty())
    }
}

fn policies_batch(id: EntityId, policies: &[Arc<Policy>]) -> Batch {
    let mut batch = Batch::default();
    let key = codec::policies_key(id);
    if policies.is_empty() {
        batch.delete(&key);
        return batch;
    }
    let policies = policies.iter().map(|policy| policy.properties());
    batch.put(&key, |value| codec::write_policies(policies, value));
    batch
}

impl Handler<ChangePolicies> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: ChangePolicies, context: &mut Self::Context) {
        self.change_policies(mail, context.address());
    }
}

impl Handler<PoliciesWriteResult> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: PoliciesWriteResult, context: &mut Self::Context) {
        let PoliciesWriteResult { id, policies, answer, result } = mail;
        let is_first = answer.is_none();
        match result {
            Ok(()) => {
                self.policies_in_flight.remove(&id);
                // If the entity was deleted meanwhile, its policies were too.
                if let Some(owner) = self.policies_owner_key(id) {
                    self.shared.policies.install(&owner, policies);
                }
                if let Some(answer) = answer {
                    self.shared.policies.end_anonymous_access();
                    answer.send(Ok(()));
                }
            }
            Err(error) if is_first && error.is_unavailable() && !self.stopping => {
                self.when_recovered(id, AfterRecovery::WriteRootPolicy, context.address());
                return;
            }
            Err(error) => {
                tracing::error!(entity_id = id.0, %error, "policies could not be written");
                if is_first {
                    self.shared.health.fail(&error.to_string());
                } else {
                    self.when_recovered(id, AfterRecovery::RestorePolicies, context.address());
                }
                refuse(answer, Rejection::internal("the store failed; no policy has changed"));
            }
        }
        if is_first {
            self.note_opened();
        }
    }
}

impl Handler<PoliciesRestoreResult> for NamespaceActor {
    type Result = ();

    fn handle(
        &mut self,
        PoliciesRestoreResult { id, result }: PoliciesRestoreResult,
        context: &mut Self::Context,
    ) {
        if result.as_ref().is_err_and(StoreError::is_unavailable) && !self.stopping {
            self.when_recovered(id, AfterRecovery::RestorePolicies, context.address());
            return;
        }
        self.policies_in_flight.remove(&id);
        if let Err(error) = result {
            // The stored policies may differ from those in force, so a withdrawn key could return
            // after a restart.
            self.shared.health.fail(&error.to_string());
        }
    }
}
