//! Management of policies by the embedding program (SEC-01 to SEC-03, SEC-09). `owner` is the path
//! of a queue or topic, or empty for the namespace. Creating a policy, regenerating a key or
//! reading keys ends anonymous access permanently (SEC-17).

use std::sync::Arc;

use super::Broker;
use crate::actor::namespace::ChangePolicies;
use crate::error::{BrokerError, Rejection};
use crate::path::{EntityAddress, PathKey, SubQueue};
use crate::policies::change::{Owner, PolicyChange};
use crate::policies::{
    KeyText, Policy, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey, namespace_key,
};

impl Broker {
    /// Returns the policies of the namespace, a queue or a topic in the order of their names,
    /// without keys.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn policies(&self, owner: &str) -> Result<Vec<PolicyDescription>, BrokerError> {
        let key = self.owner_of_policies(owner)?;
        Ok(self
            .shared
            .policies
            .of(&key)
            .iter()
            .map(|policy| policy.properties().policy.clone())
            .collect())
    }

    /// Returns one policy, without its keys.
    ///
    /// # Errors
    /// `EntityNotFound` without the entity or the policy.
    pub fn policy(&self, owner: &str, name: &str) -> Result<PolicyDescription, BrokerError> {
        Ok(self.find_policy(owner, name)?.properties().policy.clone())
    }

    /// Creates a policy with rights. Generates its keys unless they are given (SEC-02).
    ///
    /// # Errors
    /// `EntityAlreadyExists`; `ArgumentError` for an invalid name, rights (SEC-01) or keys;
    /// `QuotaExceeded` beyond `policy_count_max` (SEC-03); `EntityNotFound`; `InvalidOperation` for
    /// a subscription; `UpdateConflict` during another change of policies.
    pub async fn create_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        let change = PolicyChange::Create { name: name.into(), properties };
        self.change_policies(owner, change).await?;
        self.policy(owner, name)
    }

    /// Changes the rights of a policy, or its keys. Earlier grants of the policy end.
    ///
    /// # Errors
    /// As for [`Broker::create_policy`]; `InvalidOperation` for reducing the rights of the root
    /// policy of the namespace.
    pub async fn update_policy(
        &self,
        owner: &str,
        name: &str,
        properties: PolicyUpdate,
    ) -> Result<PolicyDescription, BrokerError> {
        let change = PolicyChange::Update { name: name.into(), properties };
        self.change_policies(owner, change).await?;
        self.policy(owner, name)
    }

    /// Deletes a policy. Its grants end.
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for the root policy of the namespace;
    /// `UpdateConflict`.
    pub async fn delete_policy(&self, owner: &str, name: &str) -> Result<(), BrokerError> {
        self.change_policies(owner, PolicyChange::Delete { name: name.into() }).await
    }

    /// Replaces all policies of a queue, a topic or the namespace in one step, and returns the new
    /// ones with their keys. Policies that are not named end. New ones get generated keys unless
    /// keys are given. Existing names are changed as with [`Broker::update_policy`].
    ///
    /// # Errors
    /// As for [`Broker::create_policy`] and [`Broker::update_policy`]; `EntityAlreadyExists` for a
    /// name given twice. An error changes nothing.
    pub async fn replace_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<Vec<PolicyKeys>, BrokerError> {
        self.change_policies(owner, PolicyChange::Replace { policies }).await?;
        let key = self.owner_of_policies(owner)?;
        Ok(self.shared.policies.of(&key).iter().map(|policy| policy.properties().clone()).collect())
    }

    /// Replaces one key of a policy by a given or generated key. Grants of the old key end, at once
    /// for requests; grants of the other key continue (SEC-09).
    ///
    /// # Errors
    /// `EntityNotFound`; `ArgumentError` for an invalid key, or one equal to the other key;
    /// `UpdateConflict`.
    pub async fn regenerate_key(
        &self,
        owner: &str,
        name: &str,
        which: WhichKey,
        key: Option<KeyText>,
    ) -> Result<PolicyKeys, BrokerError> {
        let change = PolicyChange::Regenerate { name: name.into(), which, key };
        self.change_policies(owner, change).await?;
        Ok(self.find_policy(owner, name)?.properties().clone())
    }

    /// Returns the keys of a policy. The first read of any keys is stored before this returns
    /// (SEC-17).
    ///
    /// # Errors
    /// `EntityNotFound`; `UpdateConflict` during another change of policies.
    pub async fn policy_keys(&self, owner: &str, name: &str) -> Result<PolicyKeys, BrokerError> {
        // A request for a missing policy reads no key, so it must not end anonymous access.
        self.find_policy(owner, name)?;
        if !self.shared.policies.ended_anonymous_access() {
            self.change_policies(owner, PolicyChange::ReadKey { name: name.into() }).await?;
        }
        Ok(self.find_policy(owner, name)?.properties().clone())
    }

    /// Checks whether policies could replace all policies of an entity, which need not exist.
    pub(crate) fn judge_policies(
        &self,
        owner: &str,
        policies: Vec<(Box<str>, PolicyUpdate)>,
    ) -> Result<(), BrokerError> {
        let known = self.shared.policies.of(&PathKey::fold(owner));
        let count_max = self.settings().limits.policy_count_max;
        let change = PolicyChange::Replace { policies };
        let judged = change.apply(&Owner { path: owner, count_max }, &known, self.now());
        judged.map(drop).map_err(|rejection| self.refuse(rejection, owner))
    }

    async fn change_policies(&self, owner: &str, change: PolicyChange) -> Result<(), BrokerError> {
        self.wait_for_creation(owner).await;
        let key = self.owner_of_policies(owner)?;
        self.ask_namespace((1, 0), |answer| ChangePolicies { owner: key, change, answer })
            .await
            .map(drop)
            .map_err(|rejection| self.refuse(rejection, owner))
    }

    fn find_policy(&self, owner: &str, name: &str) -> Result<Arc<Policy>, BrokerError> {
        let key = self.owner_of_policies(owner)?;
        let policies = self.shared.policies.of(&key);
        let found = policies.iter().find(|policy| policy.is_named(name)).cloned();
        found.ok_or_else(|| self.refuse(Rejection::policy_not_found(owner, name), owner))
    }

    /// Returns the key of the queue or topic, or of the namespace, that has the policies.
    fn owner_of_policies(&self, owner: &str) -> Result<PathKey, BrokerError> {
        if owner.is_empty() {
            return Ok(namespace_key());
        }
        let refuse = |rejection| self.refuse(rejection, owner);
        let address = EntityAddress::parse(owner).map_err(refuse)?;
        if address.sub_queue != SubQueue::Main {
            let detail = format!("`{owner}` is a sub-queue; it has the policies of its parent");
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        self.entity(owner)?;
        Ok(address.key())
    }
}
