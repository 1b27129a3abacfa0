//! Policies by their keys, for who presents a key itself (AMQP-08).
//!
//! They are found by a digest of name and key together, in one look-up. What an attempt costs does not grow with the
//! policies that there are, and how long it takes does not tell which names there are, or how much of a key was right
//! (SEC-08, SEC-14).

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::policy::{Policy, WhichKey};
use crate::path::PathKey;

/// Of the name of a policy, whatever its case, and the text of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyDigest([u8; 32]);

/// Those that are in force. Whoever gives the same key to policies of one name has it at several entities.
#[derive(Default)]
pub(super) struct ByKey(HashMap<KeyDigest, HashMap<PathKey, Held>>);

type Held = (Arc<Policy>, WhichKey);

impl KeyDigest {
    pub(super) fn of(name: &str, key: &str) -> Self {
        let digest = Sha256::new().chain_update(name.to_ascii_lowercase()).chain_update([0]);
        Self(digest.chain_update(key).finalize().into())
    }

    pub(super) fn of_policy(policy: &Policy, which: WhichKey) -> Self {
        Self::of(policy.name(), policy.key(which).reveal())
    }
}

impl ByKey {
    pub(super) fn insert(&mut self, owner: &PathKey, policy: &Arc<Policy>) {
        // The primary key counts where both are the same.
        for which in WhichKey::ALL.into_iter().rev() {
            let owners = self.0.entry(KeyDigest::of_policy(policy, which)).or_default();
            owners.insert(owner.clone(), (Arc::clone(policy), which));
        }
    }

    pub(super) fn remove(&mut self, owner: &PathKey, policy: &Policy) {
        for which in WhichKey::ALL {
            let digest = KeyDigest::of_policy(policy, which);
            let Some(owners) = self.0.get_mut(&digest) else { continue };
            owners.remove(owner);
            if owners.is_empty() {
                self.0.remove(&digest);
            }
        }
    }

    /// The policies of that name and key, by the entities that have them.
    pub(super) fn get(&self, digest: &KeyDigest) -> Option<&HashMap<PathKey, Held>> {
        self.0.get(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Rights;
    use crate::policies::KeyText;
    use crate::time::Timestamp;

    fn policy(name: &str, keys: [&str; 2]) -> Arc<Policy> {
        let keys = keys.map(KeyText::stored);
        Arc::new(Policy::new(name, Rights::ALL, keys, Timestamp::NONE, Timestamp::NONE))
    }

    /// AMQP-08, SEC-09: a policy is found by its name with each of its keys, at each entity that has it, and leaves nothing when
    /// it goes.
    #[test]
    fn a_policy_is_found_by_its_keys_as_long_as_it_is_there() {
        let (first, second) = (PathKey::fold("first"), PathKey::fold("second"));
        let (shared, own) = (policy("Send", ["a", "b"]), policy("send", ["a", "a"]));
        let mut all = ByKey::default();
        all.insert(&first, &shared);
        all.insert(&second, &own);
        let found = |all: &ByKey, name: &str, key: &str, owner: &PathKey| {
            Some(all.get(&KeyDigest::of(name, key))?.get(owner)?.1)
        };
        let (primary, secondary) = (Some(WhichKey::Primary), Some(WhichKey::Secondary));
        assert_eq!(found(&all, "SEND", "a", &first), primary);
        assert_eq!(found(&all, "SEND", "a", &second), primary);
        assert_eq!(found(&all, "send", "b", &first), secondary);
        assert_eq!(found(&all, "send", "b", &second), None);
        assert_eq!(found(&all, "sen", "da", &first), None);
        all.remove(&second, &own);
        assert_eq!(found(&all, "send", "a", &second), None);
        assert_eq!(found(&all, "send", "a", &first), primary);
        all.remove(&first, &shared);
        assert!(all.0.is_empty());
    }
}
