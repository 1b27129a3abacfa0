//! Names of all policies with their keys. A presented name is logged only if it exists (SEC-22):
//! otherwise it may be a misplaced key. A client that signed with a key where its policy does not
//! apply is found here without a search through all policies (SEC-26).

use std::collections::BTreeMap;

use super::by_key::KeyDigest;
use super::policy::{KeyText, Policy, WhichKey};

/// Each key once, by the folded name of its policies, then in the order of its digest.
#[derive(Default)]
pub(super) struct KeysByName(BTreeMap<(Box<str>, KeyDigest), KeyText>);

impl KeysByName {
    pub(super) fn insert(&mut self, policy: &Policy, which: WhichKey, digest: KeyDigest) {
        self.0.insert((folded(policy.name()), digest), policy.key(which).clone());
    }

    /// Removes a key that no policy with this name has any more.
    pub(super) fn remove(&mut self, policy: &Policy, digest: KeyDigest) {
        self.0.remove(&(folded(policy.name()), digest));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    /// Returns up to `count_max` keys of policies with that name.
    pub(super) fn keys(&self, name: &str, count_max: usize) -> Vec<KeyText> {
        self.of(name).take(count_max).cloned().collect()
    }

    fn of(&self, name: &str) -> impl Iterator<Item = &KeyText> {
        let name = folded(name);
        let keys = self.0.range((name.clone(), KeyDigest::LEAST)..);
        keys.take_while(move |((known, _), _)| *known == name).map(|(_, key)| key)
    }
}

fn folded(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{PolicyDescription, PolicyKeys};

    fn insert(names: &mut KeysByName, policy: &Policy) {
        for which in WhichKey::ALL {
            names.insert(policy, which, KeyDigest::of_policy(policy, which));
        }
    }

    fn remove(names: &mut KeysByName, policy: &Policy, which: WhichKey) {
        names.remove(policy, KeyDigest::of_policy(policy, which));
    }

    fn policy(name: &str, keys: [&str; 2]) -> Policy {
        let policy = PolicyDescription { name: name.into(), ..PolicyDescription::default() };
        let [primary_key, secondary_key] = keys.map(KeyText::stored);
        Policy::new(PolicyKeys { policy, primary_key, secondary_key })
    }

    /// SEC-22: a name is known while a policy has it, and leaves no entry when the last one is
    /// removed.
    #[test]
    fn name_is_known_while_a_policy_has_it() {
        let (one, other) = (policy("Team", ["a", "b"]), policy("team", ["a", "c"]));
        let mut names = KeysByName::default();
        assert!(!names.has("team"));
        insert(&mut names, &one);
        insert(&mut names, &other);
        remove(&mut names, &one, WhichKey::Secondary);
        assert!(names.has("TEAM") && !names.has("tea") && !names.has("teams"));
        assert!(!names.has(""));
        for which in WhichKey::ALL {
            remove(&mut names, &other, which);
            remove(&mut names, &other, which);
        }
        assert!(names.0.is_empty());
    }

    /// SEC-26: each key of a name is found once, up to the requested number, and none of another
    /// name.
    #[test]
    fn keys_are_found_by_their_name() {
        let mut names = KeysByName::default();
        for (name, keys) in
            [("Team", ["a", "b"]), ("team", ["a", "c"]), ("tea", ["d", "e"]), ("teams", ["f", "g"])]
        {
            insert(&mut names, &policy(name, keys));
        }
        let found = |name: &str, count_max: usize| {
            let keys = names.keys(name, count_max);
            let mut keys: Vec<String> = keys.iter().map(|key| key.reveal().to_owned()).collect();
            keys.sort();
            keys
        };
        assert_eq!(found("TEAM", 9), ["a", "b", "c"]);
        assert_eq!(found("tea", 9), ["d", "e"]);
        assert!(found("absent", 9).is_empty() && found("team", 0).is_empty());
        assert_eq!(found("team", 2).len(), 2);
        assert_eq!(found("team", 2), found("team", 2));
    }
}
