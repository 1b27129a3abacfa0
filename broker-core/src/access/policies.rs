//! Policies for requests that do something else, too: lists and descriptions that contain them.

use std::fmt;

use super::Access;
use crate::broker::Broker;
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::policies::{PolicyKeys, PolicyUpdate};

/// The policies, with their keys, of what is in a container: an entity, or the namespace with all its entities.
/// For answers that list many, whose reader is asked once.
#[derive(Clone)]
pub struct KeysIn {
    broker: Broker,
    container: String,
}

impl fmt::Debug for KeysIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysIn").field("container", &self.container).finish_non_exhaustive()
    }
}

impl KeysIn {
    /// The policies of a queue or topic; none for one that is not in the container, or has gone.
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
    /// The keys in a container, for who may read all of them: the right on the namespace covers its entities (SEC-12). Who may
    /// not is told none, and refused nothing.
    pub async fn keys_in(&self, container: &str) -> Option<KeysIn> {
        let container = super::canonical(container);
        let asked = self.ask_for(Action::ReadKeys, &container).await;
        asked.is_ok().then(|| KeysIn { broker: self.broker.clone(), container })
    }

    /// Refuses policies that [`Management::ReplacePolicies`](crate::management::Management::ReplacePolicies) would refuse, for
    /// requests that do something else first: create or change the entity. One that is not there yet has no policies. Nothing
    /// rests on it.
    ///
    /// # Errors
    /// As for [`crate::Broker::replace_policies`], but `EntityNotFound`.
    pub async fn judge_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<(), BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.judge_policies(&owner, policies)
    }
}
