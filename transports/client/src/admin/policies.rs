//! Management of policies and their keys (file 18 of the specification): of a queue or topic by its path, of the
//! namespace by an empty one. All of it takes the right Manage there.

use peeklock_core::error::BrokerError;
use peeklock_core::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};

use super::Admin;
use crate::port::{Managed, Management};

impl Admin {
    /// The policies in the order of their names, without their keys.
    ///
    /// # Errors
    /// `EntityNotFound`, `Unauthorized`.
    pub async fn policies(&self, owner: &str) -> Result<Vec<PolicyDescription>, BrokerError> {
        match self.ask(owner, Management::Policies).await? {
            Managed::Policies(policies) => Ok(policies),
            other => Err(self.unexpected(owner, &other)),
        }
    }

    /// One policy, without its keys.
    ///
    /// # Errors
    /// As for [`Admin::policies`].
    pub async fn policy(&self, owner: &str, name: &str) -> Result<PolicyDescription, BrokerError> {
        self.policy_of(owner, Management::Policy(name.into())).await
    }

    /// Creates a policy; keys that are not given are made. From the first one on nobody is let in without a
    /// token (SEC-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityAlreadyExists`, `ArgumentError` for a name or rights that cannot be,
    /// `QuotaExceeded`, `Unauthorized`.
    pub async fn create_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        self.policy_of(owner, Management::CreatePolicy(name.into(), properties)).await
    }

    /// Changes the properties named and keeps the others; what was granted by what changes ends.
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `InvalidOperation`, `Unauthorized`.
    pub async fn update_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        self.policy_of(owner, Management::UpdatePolicy(name.into(), properties)).await
    }

    /// Deletes a policy; what was granted by it ends.
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for the one that every namespace has, `Unauthorized`.
    pub async fn delete_policy(&self, owner: &str, name: &str) -> Result<(), BrokerError> {
        self.ask(owner, Management::DeletePolicy(name.into())).await.map(drop)
    }

    /// The keys of a policy. Once they were told nobody is let in without a token (SEC-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `Unauthorized`.
    pub async fn policy_keys(&self, owner: &str, name: &str) -> Result<PolicyKeys, BrokerError> {
        self.keys_of(owner, Management::PolicyKeys(name.into())).await
    }

    /// Puts another key in the place of one: a fresh one, unless it is given. What was granted by the old one
    /// ends, what was granted by the other goes on (SEC-09).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError` for a key that is the other one, `Unauthorized`.
    pub async fn regenerate_key(
        &self,
        owner: &str,
        name: &str,
        which: WhichKey,
        key: Option<KeyText>,
    ) -> Result<PolicyKeys, BrokerError> {
        self.keys_of(owner, Management::RegenerateKey(name.into(), which, key)).await
    }

    async fn policy_of(
        &self,
        owner: &str,
        asked: Management,
    ) -> Result<PolicyDescription, BrokerError> {
        match self.ask(owner, asked).await? {
            Managed::Policy(policy) => Ok(*policy),
            other => Err(self.unexpected(owner, &other)),
        }
    }

    async fn keys_of(&self, owner: &str, asked: Management) -> Result<PolicyKeys, BrokerError> {
        match self.ask(owner, asked).await? {
            Managed::PolicyKeys(keys) => Ok(*keys),
            other => Err(self.unexpected(owner, &other)),
        }
    }
}
