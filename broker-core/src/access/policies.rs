//! Policies in requests with another main purpose: lists and descriptions that contain policies.

use std::fmt;

use super::Access;
use crate::broker::Broker;
use crate::contract::action::Action;
use crate::contract::auditor::{AuditResult, AuditedAction};
use crate::error::BrokerError;
use crate::policies::{PolicyKeys, PolicyUpdate};

/// Policies with their keys in a container: an entity, or the namespace with all its entities. For
/// answers that list many entities, so that rights are checked once.
#[derive(Clone)]
pub struct ContainerKeys {
    broker: Broker,
    container: String,
}

impl fmt::Debug for ContainerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysIn").field("container", &self.container).finish_non_exhaustive()
    }
}

impl ContainerKeys {
    /// Returns the policies of a queue or topic; none if it is not in the container or was deleted.
    pub async fn of(&self, owner: &str) -> Vec<PolicyKeys> {
        if !self.container.is_empty() && !self.container.eq_ignore_ascii_case(owner) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for policy in self.broker.policies(owner).unwrap_or_default() {
            found.extend(self.broker.policy_keys(owner, &policy.name).await.ok());
        }
        found
    }
}

impl Access {
    /// Returns the keys in a container if the principal may read them all: the right on the
    /// namespace covers its entities (SEC-12). Otherwise returns none, without a refusal.
    ///
    /// # Errors
    /// `ServerBusy` if there are policies and the entry of the audit trail cannot be written.
    pub async fn keys_in(&self, container: &str) -> Result<Option<ContainerKeys>, BrokerError> {
        let container = super::canonical(container);
        if self.check_action(Action::ReadKeys, &container).await.is_err() {
            return Ok(None);
        }
        if self.broker.shared.policies.are_in(&container) {
            let request = "policies with the description";
            let audited = self.begin_audit(AuditedAction::ReadKeys, &container, request).await?;
            audited.end(AuditResult::Done, None).await;
        }
        Ok(Some(ContainerKeys { broker: self.broker.clone(), container }))
    }

    /// Refuses policies that
    /// [`Management::ReplacePolicies`](crate::management::Management::ReplacePolicies) would
    /// refuse, for requests that first create or change the entity. An entity that does not exist
    /// yet has no policies. The replacement itself checks again.
    ///
    /// # Errors
    /// As for [`crate::Broker::replace_policies`], without `EntityNotFound`.
    pub async fn judge_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<(), BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.judge_policies(&owner, policies)
    }
}
