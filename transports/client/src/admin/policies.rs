//! Management of policies and their keys (file 18 of the specification). `owner` is the path of a
//! queue or topic, or empty for the namespace. All operations need the right Manage there.

use peeklock_core::error::BrokerError;
use peeklock_core::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};

use super::Admin;
use crate::port::{Managed, Management};

impl Admin {
    /// Returns the policies sorted by name, without their keys.
    ///
    /// # Errors
    /// `EntityNotFound`, `Unauthorized`.
    pub async fn policies(&self, owner: &str) -> Result<Vec<PolicyDescription>, BrokerError> {
        match self.ask(owner, Management::Policies).await? {
            Managed::Policies(policies) => Ok(policies),
            other => Err(self.unexpected(owner, &other)),
        }
    }

    /// Returns a policy without its keys.
    ///
    /// # Errors
    /// As for [`Admin::policies`].
    pub async fn policy(&self, owner: &str, name: &str) -> Result<PolicyDescription, BrokerError> {
        self.policy_of(owner, Management::Policy(name.into())).await
    }

    /// Creates a policy. Keys that are not given are generated. The first policy ends anonymous
    /// access (SEC-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityAlreadyExists`, `ArgumentError` for an invalid name or invalid
    /// rights, `QuotaExceeded`, `Unauthorized`.
    pub async fn create_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        self.policy_of(owner, Management::CreatePolicy(name.into(), properties)).await
    }

    /// Changes the properties named and keeps the others. Grants that depend on a changed property
    /// end.
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

    /// Deletes a policy. Its grants end.
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for the policy that every namespace has,
    /// `Unauthorized`.
    pub async fn delete_policy(&self, owner: &str, name: &str) -> Result<(), BrokerError> {
        self.ask(owner, Management::DeletePolicy(name.into())).await.map(drop)
    }

    /// Returns the keys of a policy. This ends anonymous access (SEC-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `Unauthorized`.
    pub async fn policy_keys(&self, owner: &str, name: &str) -> Result<PolicyKeys, BrokerError> {
        self.keys_of(owner, Management::PolicyKeys(name.into())).await
    }

    /// Replaces a key by the given key, or by a generated one. Grants of the old key end, grants of
    /// the policy's other key continue (SEC-09).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError` if the key equals the other key, `Unauthorized`.
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
        request: Management,
    ) -> Result<PolicyDescription, BrokerError> {
        match self.ask(owner, request).await? {
            Managed::Policy(policy) => Ok(*policy),
            other => Err(self.unexpected(owner, &other)),
        }
    }

    async fn keys_of(&self, owner: &str, request: Management) -> Result<PolicyKeys, BrokerError> {
        match self.ask(owner, request).await? {
            Managed::PolicyKeys(keys) => Ok(*keys),
            other => Err(self.unexpected(owner, &other)),
        }
    }
}
