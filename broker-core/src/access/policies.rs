//! Policies by who may manage them (SEC-05). What each operation does is said by the methods of
//! [`Broker`](crate::Broker) of the same name.

use std::fmt;

use super::Access;
use crate::broker::Broker;
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};

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

    /// The policies of the namespace, a queue or a topic.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::policies`].
    pub async fn policies(&self, owner: &str) -> Result<Vec<PolicyDescription>, BrokerError> {
        let owner = self.allow(Action::ReadPolicies, owner).await?;
        self.broker.formed(&owner).await;
        self.broker.policies(&owner)
    }

    /// One policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::policy`].
    pub async fn policy(&self, owner: &str, name: &str) -> Result<PolicyDescription, BrokerError> {
        let owner = self.allow(Action::ReadPolicies, owner).await?;
        self.broker.formed(&owner).await;
        self.broker.policy(&owner, name)
    }

    /// Creates a policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::create_policy`].
    pub async fn create_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.create_policy(&owner, name, properties).await
    }

    /// Changes a policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_policy`].
    pub async fn update_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.update_policy(&owner, name, properties).await
    }

    /// Deletes a policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::delete_policy`].
    pub async fn delete_policy(&self, owner: &str, name: &str) -> Result<(), BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.delete_policy(&owner, name).await
    }

    /// Puts policies in the place of all that there are. Who has set them is told them, whatever may be asked for
    /// afterwards.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::replace_policies`].
    pub async fn replace_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<Vec<PolicyKeys>, BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.replace_policies(&owner, policies).await
    }

    /// Refuses what [`Access::replace_policies`] would refuse, for requests that do something else first: create or change the
    /// entity. One that is not there yet has no policies. Nothing rests on it.
    ///
    /// # Errors
    /// As for [`Access::replace_policies`], but `EntityNotFound`.
    pub async fn judge_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<(), BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.judge_policies(&owner, policies)
    }

    /// Puts another key in the place of one.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::regenerate_key`].
    pub async fn regenerate_key(
        &self,
        owner: &str,
        name: &str,
        which: WhichKey,
        key: Option<KeyText>,
    ) -> Result<PolicyKeys, BrokerError> {
        let owner = self.allow(Action::ChangePolicies, owner).await?;
        self.broker.regenerate_key(&owner, name, which, key).await
    }

    /// The keys of a policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::policy_keys`].
    pub async fn policy_keys(&self, owner: &str, name: &str) -> Result<PolicyKeys, BrokerError> {
        let owner = self.allow(Action::ReadKeys, owner).await?;
        self.broker.formed(&owner).await;
        self.broker.policy_keys(&owner, name).await
    }
}
