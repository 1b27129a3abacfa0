//! Changes of the policies of one entity. Pure: what there is goes in, what is to be there comes out.

use std::sync::Arc;

use super::policy::{KeyText, Policy, PolicyUpdate, WhichKey, validate_name, validate_rights};
use super::{ROOT_POLICY, later};
use crate::contract::Rights;
use crate::error::Rejection;
use crate::time::Timestamp;

/// What is to be done to the policies of an entity.
#[derive(Clone, Debug)]
pub(crate) enum PolicyChange {
    /// One more.
    Create { name: Box<str>, properties: PolicyUpdate },
    /// Other rights or keys.
    Update { name: Box<str>, properties: PolicyUpdate },
    /// One less.
    Delete { name: Box<str> },
    /// Another key in the place of one.
    Regenerate { name: Box<str>, which: WhichKey, key: Option<KeyText> },
    /// None of them changes, but somebody is told a key, which ends anonymous access (SEC-17).
    Tell { name: Box<str> },
}

/// Whose policies they are, and how many there may be.
pub(crate) struct Owner<'a> {
    /// Its path; empty for the namespace.
    pub(crate) path: &'a str,
    pub(crate) count_max: usize,
}

impl PolicyChange {
    fn name(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Update { name, .. }
            | Self::Delete { name }
            | Self::Regenerate { name, .. }
            | Self::Tell { name } => name,
        }
    }

    /// What there is afterwards, in the order of names.
    pub(crate) fn apply(
        &self,
        owner: &Owner<'_>,
        policies: &[Arc<Policy>],
        now: Timestamp,
    ) -> Result<Vec<Arc<Policy>>, Rejection> {
        let mut policies = policies.to_vec();
        let name = self.name();
        let place = policies.iter().position(|policy| policy.is_named(name));
        let is_root = owner.path.is_empty() && name.eq_ignore_ascii_case(ROOT_POLICY);
        let Some(place) = place else {
            let Self::Create { name, properties } = self else {
                return Err(Rejection::policy_not_found(owner.path, name));
            };
            if policies.len() >= owner.count_max {
                let path = if owner.path.is_empty() { "the namespace" } else { owner.path };
                return Err(Rejection::too_many("policies", path, owner.count_max));
            }
            policies.push(Arc::new(create(name, properties, now)?));
            policies.sort_by_cached_key(|policy| policy.name().to_ascii_lowercase());
            return Ok(policies);
        };
        let Some(known) = policies.get(place).cloned() else {
            return Err(Rejection::policy_not_found(owner.path, name));
        };
        let newer = match self {
            Self::Create { .. } => return Err(Rejection::entity_already_exists(name)),
            Self::Delete { .. } if is_root => {
                return Err(Rejection::invalid_operation(format!(
                    "policy `{ROOT_POLICY}` of the namespace cannot be deleted, it is the way back in; \
                     regenerate its keys instead"
                )));
            }
            Self::Delete { .. } => {
                policies.remove(place);
                return Ok(policies);
            }
            Self::Update { properties, .. } => {
                let lowers = properties.rights.is_some_and(|rights| rights != Rights::ALL);
                if is_root && lowers {
                    return Err(Rejection::invalid_operation(format!(
                        "policy `{ROOT_POLICY}` of the namespace has all rights; create another one with less"
                    )));
                }
                update(&known, properties, now)?
            }
            Self::Regenerate { which, key, .. } => regenerate(&known, *which, key.clone(), now)?,
            Self::Tell { .. } => return Ok(policies),
        };
        if let Some(place) = policies.get_mut(place) {
            *place = Arc::new(newer);
        }
        Ok(policies)
    }
}

/// What a new namespace has (SEC-04).
pub(crate) fn root(now: Timestamp) -> Result<Policy, Rejection> {
    let properties = PolicyUpdate { rights: Some(Rights::ALL), ..PolicyUpdate::default() };
    create(ROOT_POLICY, &properties, now)
}

fn create(name: &str, properties: &PolicyUpdate, now: Timestamp) -> Result<Policy, Rejection> {
    validate_name(name)?;
    let PolicyUpdate { rights, primary_key, secondary_key } = properties;
    let rights = rights.unwrap_or_default();
    validate_rights(rights)?;
    let given_or_fresh = |key: &Option<KeyText>| key.clone().map_or_else(KeyText::fresh, Ok);
    let keys = [given_or_fresh(primary_key)?, given_or_fresh(secondary_key)?];
    validate_keys(&keys)?;
    Ok(Policy::new(name, rights, keys, now, now))
}

/// Rights that change end what was granted by any key; a key that changes ends what was granted by it.
fn update(known: &Policy, properties: &PolicyUpdate, now: Timestamp) -> Result<Policy, Rejection> {
    let PolicyUpdate { rights, primary_key, secondary_key } = properties;
    let now = later(known.updated_at(), now);
    let named = [(WhichKey::Primary, primary_key), (WhichKey::Secondary, secondary_key)];
    let mut newer = match rights.filter(|rights| *rights != known.rights()) {
        Some(rights) => {
            validate_rights(rights)?;
            let keys = WhichKey::ALL.map(|which| known.key(which).clone());
            Policy::new(known.name(), rights, keys, known.created_at(), now)
        }
        None => known.clone(),
    };
    for (which, key) in named {
        if let Some(key) = key.as_ref().filter(|key| *key != newer.key(which)) {
            newer = newer.with_key(which, key.clone(), now);
        }
    }
    validate_keys(&WhichKey::ALL.map(|which| newer.key(which).clone()))?;
    Ok(newer)
}

fn regenerate(
    known: &Policy,
    which: WhichKey,
    key: Option<KeyText>,
    now: Timestamp,
) -> Result<Policy, Rejection> {
    let key = key.map_or_else(KeyText::fresh, Ok)?;
    let newer = known.with_key(which, key, later(known.updated_at(), now));
    validate_keys(&WhichKey::ALL.map(|which| newer.key(which).clone()))?;
    Ok(newer)
}

/// Two keys that are one could not be changed one after the other (SEC-09).
fn validate_keys([primary, secondary]: &[KeyText; 2]) -> Result<(), Rejection> {
    if primary == secondary {
        return Err(Rejection::argument("the two keys of a policy are different ones"));
    }
    Ok(())
}
