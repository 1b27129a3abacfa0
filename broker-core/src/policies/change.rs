//! Changes of the policies of an entity. Pure: takes the current policies and returns the new ones.
//! Management of policies calls it.

use std::sync::Arc;

use super::policy::{Policy, fresh_key};
use super::{
    KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, ROOT_POLICY, WhichKey, next_instant,
};
use crate::contract::Rights;
use crate::error::Rejection;
use crate::time::Timestamp;

/// A change of the policies of an entity.
#[derive(Clone, Debug)]
pub(crate) enum PolicyChange {
    /// Adds a policy.
    Create { name: Box<str>, properties: PolicyUpdate },
    /// Changes rights or keys.
    Update { name: Box<str>, properties: PolicyUpdate },
    /// Removes a policy.
    Delete { name: Box<str> },
    /// Replaces one key.
    Regenerate { name: Box<str>, which: WhichKey, key: Option<KeyText> },
    /// Changes nothing, but marks that a key was read, which ends anonymous access (SEC-17).
    ReadKey { name: Box<str> },
    /// Replaces all policies; an existing name is changed as with `Update`.
    Replace { policies: Vec<(Box<str>, PolicyUpdate)> },
}

/// Owner of policies and its limit.
pub(crate) struct Owner<'a> {
    /// Path of the owner; empty for the namespace.
    pub(crate) path: &'a str,
    pub(crate) count_max: usize,
}

impl PolicyChange {
    /// Returns the policies after the change, in the order of names.
    pub(crate) fn apply(
        &self,
        owner: &Owner<'_>,
        policies: &[Arc<Policy>],
        now: Timestamp,
    ) -> Result<Vec<Arc<Policy>>, Rejection> {
        let mut newer = policies.to_vec();
        match self {
            Self::Create { name, properties } => {
                if policies.iter().any(|policy| policy.is_named(name)) {
                    return Err(Rejection::entity_already_exists(name));
                }
                newer.push(Arc::new(create(name, properties, now)?));
            }
            Self::Update { name, properties } => {
                let policy = owner.find(&mut newer, name)?;
                *policy = Arc::new(update(owner, policy, properties, now)?);
            }
            Self::Delete { name } => {
                owner.find(&mut newer, name)?;
                newer.retain(|policy| !policy.is_named(name));
            }
            Self::Regenerate { name, which, key } => {
                let policy = owner.find(&mut newer, name)?;
                *policy = Arc::new(regenerate(policy, *which, key.clone(), now)?);
            }
            Self::ReadKey { name } => {
                owner.find(&mut newer, name)?;
            }
            Self::Replace { policies: said } => {
                newer.clear();
                for (name, properties) in said {
                    if newer.iter().any(|policy| policy.is_named(name)) {
                        return Err(Rejection::entity_already_exists(name));
                    }
                    newer.push(Arc::new(match policies.iter().find(|it| it.is_named(name)) {
                        Some(known) => update(owner, known, properties, now)?,
                        None => create(name, properties, now)?,
                    }));
                }
            }
        }
        owner.check(policies, &newer)?;
        newer.sort_by_cached_key(|policy| policy.name().to_ascii_lowercase());
        Ok(newer)
    }
}

impl Owner<'_> {
    fn find<'p>(
        &self,
        policies: &'p mut [Arc<Policy>],
        name: &str,
    ) -> Result<&'p mut Arc<Policy>, Rejection> {
        let found = policies.iter_mut().find(|policy| policy.is_named(name));
        found.ok_or_else(|| Rejection::policy_not_found(self.path, name))
    }

    /// Whether a policy is the root policy of the namespace.
    fn is_root(&self, policy: &Policy) -> bool {
        self.path.is_empty() && policy.is_named(ROOT_POLICY)
    }

    /// Refuses too many policies, and the removal of the root policy.
    fn check(&self, older: &[Arc<Policy>], newer: &[Arc<Policy>]) -> Result<(), Rejection> {
        if newer.len() > self.count_max && newer.len() > older.len() {
            let path = if self.path.is_empty() { "the namespace" } else { self.path };
            return Err(Rejection::too_many("policies", path, self.count_max));
        }
        let has_root = |policies: &[Arc<Policy>]| policies.iter().any(|it| self.is_root(it));
        if has_root(older) && !has_root(newer) {
            return Err(Rejection::invalid_operation(format!(
                "policy `{ROOT_POLICY}` of the namespace cannot be deleted, because it is the last \
                 way in; regenerate its keys instead"
            )));
        }
        Ok(())
    }
}

/// Returns the policy of a new namespace (SEC-04).
pub(crate) fn root(now: Timestamp) -> Result<Policy, Rejection> {
    create(ROOT_POLICY, &PolicyUpdate::of(Rights::ALL), now)
}

fn create(name: &str, properties: &PolicyUpdate, now: Timestamp) -> Result<Policy, Rejection> {
    properties.validate(name)?;
    let policy = PolicyDescription {
        name: name.into(),
        created_at: now,
        updated_at: now,
        ..PolicyDescription::default()
    };
    let [primary_key, secondary_key] = [fresh_key()?, fresh_key()?];
    let new = properties.clone().over(&PolicyKeys { policy, primary_key, secondary_key });
    new.validate()?;
    Ok(Policy::new(new))
}

fn update(
    owner: &Owner<'_>,
    known: &Policy,
    properties: &PolicyUpdate,
    now: Timestamp,
) -> Result<Policy, Rejection> {
    let mut new = properties.clone().over(known.properties());
    if owner.is_root(known) && new.policy.rights != Rights::ALL {
        return Err(Rejection::invalid_operation(format!(
            "policy `{ROOT_POLICY}` of the namespace must have all rights; create another policy \
             with fewer rights"
        )));
    }
    new.validate()?;
    if new == *known.properties() {
        return Ok(known.clone());
    }
    new.policy.updated_at = next_instant(known.properties().policy.updated_at, now);
    Ok(known.with(new, None))
}

fn regenerate(
    known: &Policy,
    which: WhichKey,
    key: Option<KeyText>,
    now: Timestamp,
) -> Result<Policy, Rejection> {
    let mut new = known.properties().clone();
    let place = match which {
        WhichKey::Primary => &mut new.primary_key,
        WhichKey::Secondary => &mut new.secondary_key,
    };
    *place = key.map_or_else(fresh_key, Ok)?;
    new.validate()?;
    new.policy.updated_at = next_instant(new.policy.updated_at, now);
    Ok(known.with(new, Some(which)))
}
