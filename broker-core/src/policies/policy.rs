//! A policy: its rights, its two keys and their epochs. The set of policies in `policies/mod.rs`
//! stores it, and management returns its description without keys. A new key starts a new epoch,
//! which ends grants of the old key.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::change::codec::PolicyRecord;
use crate::contract::{Epoch, Grant, Mark, Right, Rights};
use crate::error::Rejection;
use crate::time::Timestamp;

/// Maximum number of characters in the name of a policy.
pub const NAME_CHARS_MAX: usize = 256;
/// Number of random bytes of a key; in Base64 they are 44 characters.
const KEY_BYTES: usize = 32;
/// Number of characters of a key.
const KEY_CHARS: usize = 44;

/// Text of a key. `Debug` does not show it (SEC-22).
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Arc<str>);

/// One of the two keys of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WhichKey {
    /// The primary key.
    Primary,
    /// The secondary key.
    Secondary,
}

/// A name with rights and two keys (SEC-02). A clone is the same policy, so grants of the original
/// continue.
#[derive(Clone, Debug)]
pub struct Policy {
    name: Arc<str>,
    rights: Rights,
    keys: [Key; 2],
    /// Ends with the policy, or when its rights change.
    epoch: GrantEpoch,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Key {
    text: KeyText,
    epoch: GrantEpoch,
}

/// An epoch with its initial value, on which grants depend.
#[derive(Clone, Debug)]
pub(super) struct GrantEpoch {
    epoch: Epoch,
    mark: Mark,
}

/// Properties of a policy without its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PolicyDescription {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Granted rights.
    pub rights: Rights,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change of rights or keys.
    pub updated_at: Timestamp,
}

/// Keys of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyKeys {
    /// The policy without its keys.
    pub policy: PolicyDescription,
    /// The primary key.
    pub primary: KeyText,
    /// The secondary key.
    pub secondary: KeyText,
}

/// New properties of a policy. Properties that are not named stay unchanged, or are generated at
/// creation.
#[derive(Clone, Default, Debug)]
pub struct PolicyUpdate {
    /// New rights.
    pub rights: Option<Rights>,
    /// New primary key.
    pub primary_key: Option<KeyText>,
    /// New secondary key.
    pub secondary_key: Option<KeyText>,
}

impl KeyText {
    /// Parses a key from a client: any 44 characters, as the cloud accepts (SEC-02), without
    /// characters that a connection string cannot contain.
    ///
    /// # Errors
    /// `ArgumentError` for other texts.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let is_carried = |c: char| !c.is_control() && !c.is_whitespace() && c != ';';
        if text.chars().count() == KEY_CHARS && text.chars().all(is_carried) {
            return Ok(Self(text.into()));
        }
        Err(Rejection::argument(format!(
            "a key must have {KEY_CHARS} characters, without spaces and `;`; leave it out to let \
             the broker generate one"
        )))
    }

    /// Generates an unpredictable key.
    pub(crate) fn fresh() -> Result<Self, Rejection> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            Rejection::internal(format!("cannot get random bytes from the system: {error}"))
        })?;
        Ok(Self(STANDARD.encode(bytes).into()))
    }

    /// Takes a text without validation.
    pub(super) fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text, for its legitimate recipient.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText")
    }
}

impl PolicyDescription {
    /// Creates a description from the answer of a broker.
    #[must_use]
    pub fn new(name: &str, rights: Rights, created_at: Timestamp, updated_at: Timestamp) -> Self {
        Self { name: name.into(), rights, created_at, updated_at }
    }
}

impl PolicyUpdate {
    /// Refuses values that no policy can have, for callers that create another entity first. The
    /// number of policies and existing keys are checked at creation.
    ///
    /// # Errors
    /// `ArgumentError` for the name, or for named rights (SEC-01).
    pub fn validate(&self, name: &str) -> Result<(), Rejection> {
        validate_name(name)?;
        self.rights.map_or(Ok(()), validate_rights)
    }
}

impl WhichKey {
    /// Both keys.
    pub const ALL: [Self; 2] = [Self::Primary, Self::Secondary];

    /// Name of the key.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }

    /// Returns the key with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|which| which.name() == name)
    }
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
    pub(super) fn new(
        name: &str,
        rights: Rights,
        keys: [KeyText; 2],
        created_at: Timestamp,
        updated_at: Timestamp,
    ) -> Self {
        let keys = keys.map(|text| Key { text, epoch: GrantEpoch::begin() });
        let epoch = GrantEpoch::begin();
        Self { name: name.into(), rights, keys, epoch, created_at, updated_at }
    }

    /// Restores a stored policy; none if no broker has written the record.
    pub(crate) fn restore(record: &PolicyRecord) -> Option<Self> {
        let rights = Rights::from_bits(record.rights)?;
        let keys = record.keys.each_ref().map(|text| KeyText::stored(text));
        Some(Self::new(&record.name, rights, keys, record.created_at, record.updated_at))
    }

    pub(crate) fn record(&self) -> PolicyRecord {
        PolicyRecord {
            name: (*self.name).into(),
            rights: self.rights.bits(),
            keys: self.keys.each_ref().map(|key| key.text.reveal().into()),
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }

    /// Name of the policy.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Granted rights.
    #[must_use]
    pub const fn rights(&self) -> Rights {
        self.rights
    }

    /// One of its keys.
    #[must_use]
    pub const fn key(&self, which: WhichKey) -> &KeyText {
        &self.held(which).text
    }

    const fn held(&self, which: WhichKey) -> &Key {
        let [primary, secondary] = &self.keys;
        match which {
            WhichKey::Primary => primary,
            WhichKey::Secondary => secondary,
        }
    }

    /// Returns the grant for a client that signed with one of its keys; it ends with that key
    /// (SEC-09).
    #[must_use]
    pub fn grant_by(&self, which: WhichKey) -> Grant {
        Grant::of(self.rights).with_epoch(self.held(which).epoch.mark()).with_policy(&self.name)
    }

    /// Returns the grant for a client that signed with one of its keys, but for another resource:
    /// it has no rights, and identifies the client while the key is valid.
    #[must_use]
    pub fn recognize_by(&self, which: WhichKey) -> Grant {
        Grant::nothing().with_epoch(self.held(which).epoch.mark()).with_policy(&self.name)
    }

    /// Returns the grant of the policy without a key.
    pub(super) fn grant(&self) -> Grant {
        Grant::of(self.rights).with_epoch(self.epoch.mark()).with_policy(&self.name)
    }

    /// Whether it has this name, in any case.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    pub(super) const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    pub(super) const fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    pub(crate) fn describe(&self) -> PolicyDescription {
        PolicyDescription {
            name: Arc::clone(&self.name),
            rights: self.rights,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }

    pub(crate) fn keys(&self) -> PolicyKeys {
        PolicyKeys {
            policy: self.describe(),
            primary: self.key(WhichKey::Primary).clone(),
            secondary: self.key(WhichKey::Secondary).clone(),
        }
    }

    /// Returns the policy with one key replaced; grants of the other key continue (SEC-09).
    pub(super) fn with_key(&self, which: WhichKey, text: KeyText, now: Timestamp) -> Self {
        let mut newer = Self { updated_at: now, ..self.clone() };
        let [primary, secondary] = &mut newer.keys;
        let place = match which {
            WhichKey::Primary => primary,
            WhichKey::Secondary => secondary,
        };
        *place = Key { text, epoch: GrantEpoch::begin() };
        newer
    }

    /// Ends grants when the policy is no longer in force. Grants that depend on parts shared with
    /// `heir`, a policy of the same name, continue.
    pub(super) fn end(&self, heir: Option<&Self>) {
        let epochs = |policy: &Self| {
            let [primary, secondary] = &policy.keys;
            [policy.epoch.clone(), primary.epoch.clone(), secondary.epoch.clone()]
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

/// Refuses a name that a connection string or a path cannot contain.
pub(super) fn validate_name(name: &str) -> Result<(), Rejection> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_fine) {
        return Err(Rejection::argument(format!(
            "the name of a policy must have 1 to {NAME_CHARS_MAX} letters, digits, dashes, \
             underscores or dots"
        )));
    }
    Ok(())
}

/// Refuses rights that a policy cannot have (SEC-01).
pub(super) fn validate_rights(rights: Rights) -> Result<(), Rejection> {
    if rights.is_none() {
        return Err(Rejection::argument(
            "a policy needs at least one of the rights Send, Listen, Manage",
        ));
    }
    if rights.contains(Right::Manage) && rights != Rights::ALL {
        return Err(Rejection::argument(
            "a policy with the right Manage needs Send and Listen as well",
        ));
    }
    Ok(())
}
