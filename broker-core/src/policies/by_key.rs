//! Policies by their keys, for clients that present a key itself (AMQP-08).
//!
//! They are found with one lookup of a digest of name and key. The cost of an attempt does not grow
//! with the number of policies. Its duration reveals neither existing names nor a partly correct
//! key (SEC-08, SEC-14). The names are kept here too.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::names::KeysByName;
use super::policy::{GrantEpoch, KeyText, Policy, WhichKey};
use crate::contract::Grant;
use crate::path::PathKey;

/// Digest of the case-folded name of a policy and the text of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyDigest([u8; 32]);

/// All policies in force.
#[derive(Default)]
pub(super) struct KeyIndex {
    known: HashMap<KeyDigest, KeyEntry>,
    names: KeysByName,
}

/// A name with a key. Several entities may have policies with the same name and key.
pub(super) struct KeyEntry {
    by_owner: HashMap<PathKey, OwnedKey>,
    /// Ends when no entity has this name and key any more.
    epoch: GrantEpoch,
}

type OwnedKey = (Arc<Policy>, WhichKey);

impl KeyDigest {
    /// Smallest digest.
    pub(super) const LEAST: Self = Self([0; 32]);

    pub(super) fn of(name: &str, key: &str) -> Self {
        let digest = Sha256::new().chain_update(name.to_ascii_lowercase()).chain_update([0]);
        Self(digest.chain_update(key).finalize().into())
    }

    pub(super) fn of_policy(policy: &Policy, which: WhichKey) -> Self {
        Self::of(policy.name(), policy.key(which).reveal())
    }
}

impl KeyEntry {
    fn begin() -> Self {
        Self { by_owner: HashMap::new(), epoch: GrantEpoch::begin() }
    }

    /// Returns the policy of an entity, if it has one with this name and key.
    pub(super) fn of(&self, owner: &PathKey) -> Option<&OwnedKey> {
        self.by_owner.get(owner)
    }

    /// Returns the grant at a resource where no such policy applies: it has no rights, but
    /// identifies the client while any entity has this name and key.
    pub(super) fn recognize(&self) -> Grant {
        let grant = Grant::nothing().with_epoch(self.epoch.mark());
        match self.by_owner.values().next() {
            Some((policy, _)) => grant.with_policy(policy.name()),
            None => grant,
        }
    }
}

impl KeyIndex {
    /// Replaces the policies of an entity. Returns the epochs of keys that no policy has any more.
    pub(super) fn replace(
        &mut self,
        owner: &PathKey,
        older: &[Arc<Policy>],
        newer: &[Arc<Policy>],
    ) -> Vec<GrantEpoch> {
        let mut left = Vec::new();
        for policy in older {
            for which in WhichKey::ALL {
                let digest = KeyDigest::of_policy(policy, which);
                if let Some(known) = self.known.get_mut(&digest) {
                    known.by_owner.remove(owner);
                }
                left.push((policy, digest));
            }
        }
        for policy in newer {
            self.insert(owner, policy);
        }
        // After the insertions: an unchanged key must be known all the time.
        let mut over = Vec::new();
        for (policy, digest) in left {
            if self.known.get(&digest).is_some_and(|known| known.by_owner.is_empty()) {
                over.extend(self.known.remove(&digest).map(|known| known.epoch));
                self.names.remove(policy, digest);
            }
        }
        over
    }

    fn insert(&mut self, owner: &PathKey, policy: &Arc<Policy>) {
        // Primary last, so that it wins if both keys are the same.
        for which in WhichKey::ALL.into_iter().rev() {
            let digest = KeyDigest::of_policy(policy, which);
            let known = self.known.entry(digest).or_insert_with(KeyEntry::begin);
            known.by_owner.insert(owner.clone(), (Arc::clone(policy), which));
            self.names.insert(policy, which, digest);
        }
    }

    /// Returns the policies with this name and key.
    pub(super) fn get(&self, digest: &KeyDigest) -> Option<&KeyEntry> {
        self.known.get(digest)
    }

    /// Whether a policy has that name.
    pub(super) fn have_name(&self, name: &str) -> bool {
        self.names.has(name)
    }

    /// Returns up to `count_max` keys of policies with that name, each once.
    pub(super) fn keys_named(&self, name: &str, count_max: usize) -> Vec<KeyText> {
        self.names.keys(name, count_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{PolicyDescription, PolicyKeys};

    fn policy(name: &str, keys: [&str; 2]) -> Arc<Policy> {
        let policy = PolicyDescription { name: name.into(), ..PolicyDescription::default() };
        let [primary_key, secondary_key] = keys.map(KeyText::stored);
        Arc::new(Policy::new(PolicyKeys { policy, primary_key, secondary_key }))
    }

    /// AMQP-08, SEC-09: a policy is found by its name with each of its keys, at each entity that
    /// has it, and leaves no entry when it is removed.
    #[test]
    fn policy_is_found_by_its_keys_until_removed() {
        let (first, second) = (PathKey::fold("first"), PathKey::fold("second"));
        let (shared, own) = (policy("Send", ["a", "b"]), policy("send", ["a", "a"]));
        let mut all = KeyIndex::default();
        all.replace(&first, &[], &[Arc::clone(&shared)]);
        all.replace(&second, &[], &[Arc::clone(&own)]);
        let found = |all: &KeyIndex, name: &str, key: &str, owner: &PathKey| {
            Some(all.get(&KeyDigest::of(name, key))?.of(owner)?.1)
        };
        let (primary, secondary) = (Some(WhichKey::Primary), Some(WhichKey::Secondary));
        assert_eq!(found(&all, "SEND", "a", &first), primary);
        assert_eq!(found(&all, "SEND", "a", &second), primary);
        assert_eq!(found(&all, "send", "b", &first), secondary);
        assert_eq!(found(&all, "send", "b", &second), None);
        assert_eq!(found(&all, "sen", "da", &first), None);
        all.replace(&second, &[own], &[]);
        assert_eq!(found(&all, "send", "a", &second), None);
        assert_eq!(found(&all, "send", "a", &first), primary);
        assert_eq!(all.keys_named("send", 9).len(), 2, "those of the first");
        all.replace(&first, &[shared], &[]);
        assert!(all.known.is_empty() && !all.have_name("send"));
    }

    /// AMQP-08, SEC-09: the identity from a shared key ends with the last entity that has it, and
    /// continues while an entity gets additional policies.
    #[test]
    fn a_key_of_several_entities_ends_with_the_last() {
        let [first, second] = ["first", "second"].map(PathKey::fold);
        let team = || policy("team", ["a", "b"]);
        let mut all = KeyIndex::default();
        let (one, other) = (team(), team());
        assert!(all.replace(&first, &[], &[Arc::clone(&one)]).is_empty());
        assert!(all.replace(&second, &[], &[Arc::clone(&other)]).is_empty());
        let mark = all.get(&KeyDigest::of("team", "a")).unwrap().recognize().epoch.unwrap();
        let more = [Arc::clone(&one), policy("more", ["c", "d"])];
        assert!(all.replace(&first, &[one], &more).is_empty());
        assert!(all.replace(&second, &[other], &[]).is_empty(), "the first has it");
        let again = all.get(&KeyDigest::of("team", "a")).unwrap().recognize().epoch;
        assert_eq!(again, Some(mark.clone()));
        let over = all.replace(&first, &more, &[policy("team", ["e", "b"])]);
        assert_eq!(over.len(), 3, "one key of the team stays");
        assert!(all.have_name("team") && !all.have_name("more"));
        over.iter().for_each(GrantEpoch::end);
        assert!(!mark.is_current());
    }
}
