//! Policies by who may manage them (SEC-05). What each operation does is said by the methods of
//! [`Broker`](crate::Broker) of the same name.

use super::Access;
use crate::contract::action::Action;
use crate::error::BrokerError;
use crate::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};

impl Access {
    /// The policies of the namespace, a queue or a topic.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::policies`].
    pub async fn policies(&self, owner: &str) -> Result<Vec<PolicyDescription>, BrokerError> {
        let owner = self.allow(Action::ReadPolicies, owner).await?;
        self.broker.policies(&owner)
    }

    /// One policy.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::policy`].
    pub async fn policy(&self, owner: &str, name: &str) -> Result<PolicyDescription, BrokerError> {
        let owner = self.allow(Action::ReadPolicies, owner).await?;
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
        self.broker.policy_keys(&owner, name).await
    }
}
