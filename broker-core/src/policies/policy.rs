//! A policy in force: its properties, and the epochs of its grants. The set of policies in
//! `policies/mod.rs` stores it. A new key starts a new epoch, which ends grants of the old key.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use peeklock_words::policy::{
    KeyText, NAME_CHARS_MAX, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey,
};

use crate::contract::{Epoch, Grant, Mark, Rights};
use crate::error::Rejection;

/// Number of random bytes of a key; in Base64 they are 44 characters.
const KEY_BYTES: usize = 32;

/// A policy in force (SEC-02). A clone is the same policy, so grants of the original continue.
#[derive(Clone, Debug)]
pub struct Policy {
    properties: PolicyKeys,
    /// Each ends with its key.
    key_epochs: [GrantEpoch; 2],
    /// Ends with the policy, or when its rights change.
    epoch: GrantEpoch,
}

/// An epoch with its initial value, on which grants depend.
#[derive(Clone, Debug)]
pub(super) struct GrantEpoch {
    epoch: Epoch,
    mark: Mark,
}

impl GrantEpoch {
    pub(super) fn begin() -> Self {
        let epoch = Epoch::new();
        let mark = epoch.mark();
        Self { epoch, mark }
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark.clone()
    }

    /// Ends all grants that depend on it.
    pub(super) fn end(&self) {
        self.epoch.raise();
    }
}

impl Policy {
    pub(crate) fn new(properties: PolicyKeys) -> Self {
        let [primary, secondary, epoch] = std::array::from_fn(|_| GrantEpoch::begin());
        Self { properties, key_epochs: [primary, secondary], epoch }
    }

    /// The properties with the keys.
    pub(crate) const fn properties(&self) -> &PolicyKeys {
        &self.properties
    }

    /// Name of the policy.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.properties.policy.name
    }

    /// Granted rights.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.properties.policy.rights
    }

    /// One of its keys.
    #[must_use]
    pub const fn key(&self, which: WhichKey) -> &KeyText {
        self.properties.key(which)
    }

    const fn key_epoch(&self, which: WhichKey) -> &GrantEpoch {
        let [primary, secondary] = &self.key_epochs;
        match which {
            WhichKey::Primary => primary,
            WhichKey::Secondary => secondary,
        }
    }

    /// Returns the grant for a client that signed with one of its keys; it ends with that key
    /// (SEC-09).
    #[must_use]
    pub fn grant_by(&self, which: WhichKey) -> Grant {
        let mark = self.key_epoch(which).mark();
        Grant::of(self.rights()).with_epoch(mark).with_policy(self.name())
    }

    /// Returns the grant for a client that signed with one of its keys, but for another resource:
    /// it has no rights, and identifies the client while the key is valid.
    #[must_use]
    pub fn recognize_by(&self, which: WhichKey) -> Grant {
        let mark = self.key_epoch(which).mark();
        Grant::nothing().with_epoch(mark).with_policy(self.name())
    }

    /// Returns the grant of the policy without a key.
    pub(super) fn grant(&self) -> Grant {
        Grant::of(self.rights()).with_epoch(self.epoch.mark()).with_policy(self.name())
    }

    /// Whether it has this name, in any case.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }

    /// Returns the policy with other properties. Changed rights end all grants of the policy, and a
    /// changed or regenerated key the grants of that key (SEC-09).
    pub(super) fn with(&self, properties: PolicyKeys, regenerated: Option<WhichKey>) -> Self {
        if properties.policy.rights != self.rights() {
            return Self::new(properties);
        }
        let is_kept = |which: WhichKey| {
            regenerated != Some(which) && properties.key(which) == self.key(which)
        };
        let key_epochs = WhichKey::ALL.map(|which| match is_kept(which) {
            true => self.key_epoch(which).clone(),
            false => GrantEpoch::begin(),
        });
        Self { properties, key_epochs, epoch: self.epoch.clone() }
    }

    /// Ends the grants of this policy when it is no longer in force. A grant depends on the epoch
    /// of the policy or of a key. It continues if `heir`, a policy of the same name, shares this
    /// epoch.
    pub(super) fn end(&self, heir: Option<&Self>) {
        let epochs = |policy: &Self| {
            let [primary, secondary] = &policy.key_epochs;
            [policy.epoch.clone(), primary.clone(), secondary.clone()]
        };
        let heirs = heir.map(epochs);
        for (place, own) in epochs(self).iter().enumerate() {
            let other = heirs.as_ref().and_then(|heirs| heirs.get(place));
            if other.is_none_or(|other| other.mark != own.mark) {
                own.end();
            }
        }
    }
}

/// Generates an unpredictable key.
pub(super) fn fresh_key() -> Result<KeyText, Rejection> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Rejection::internal(format!("cannot get random bytes from the system: {error}"))
    })?;
    Ok(KeyText::stored(&STANDARD.encode(bytes)))
}
