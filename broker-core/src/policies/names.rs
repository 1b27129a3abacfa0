//! The names that policies have, whosever they are: what somebody says to be one is repeated only if it is (SEC-22).
//! Otherwise it may be anything, a key that was put into the wrong place among it.

use std::collections::HashMap;

use super::policy::Policy;

/// How many policies have each name, whatever its case. Looked up at once, however many there are.
#[derive(Default)]
pub(super) struct Names(HashMap<String, usize>);

impl Names {
    pub(super) fn insert(&mut self, policy: &Policy) {
        *self.0.entry(policy.name().to_ascii_lowercase()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, policy: &Policy) {
        let name = policy.name().to_ascii_lowercase();
        let Some(count) = self.0.get_mut(&name) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.0.remove(&name);
        }
    }

    pub(super) fn have(&self, name: &str) -> bool {
        self.0.contains_key(&name.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Rights;
    use crate::policies::KeyText;
    use crate::time::Timestamp;

    /// SEC-22: a name is one as long as a policy has it, and leaves nothing when the last one goes.
    #[test]
    fn a_name_is_known_as_long_as_a_policy_has_it() {
        let policy = |name: &str| {
            let keys = ["a", "b"].map(KeyText::stored);
            Policy::new(name, Rights::ALL, keys, Timestamp::NONE, Timestamp::NONE)
        };
        let (one, other) = (policy("Team"), policy("team"));
        let mut names = Names::default();
        assert!(!names.have("team"));
        names.insert(&one);
        names.insert(&other);
        names.remove(&one);
        assert!(names.have("TEAM") && !names.have("tea") && !names.have(""));
        names.remove(&other);
        names.remove(&other);
        assert!(names.0.is_empty());
    }
}
