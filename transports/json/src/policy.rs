//! JSON forms of policies and their keys. The transports and the command line use them.

use std::fmt;

use peeklock_core::contract::{Right, Rights};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};
use serde::{Deserialize, Serialize};

use crate::text::Instant;

/// The text of a key. Its `Debug` form hides the key (SEC-22).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyForm(String);

/// A right that a policy grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RightName {
    /// The right to send.
    Send,
    /// The right to receive.
    Listen,
    /// All rights.
    Manage,
}

/// One of the two keys of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum KeyName {
    /// The primary key.
    Primary,
    /// The secondary key.
    Secondary,
}

/// Properties of a policy to be created or updated. On an update an absent property keeps its
/// value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyProperties {
    /// `Manage` requires the other two.
    #[serde(skip_serializing_if = "Option::is_none")]
    rights: Option<Vec<RightName>>,
    /// 44 characters; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    primary_key: Option<KeyForm>,
    /// 44 characters; generated if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    secondary_key: Option<KeyForm>,
}

/// A policy, without its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    name: String,
    rights: Vec<RightName>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
}

/// The policies of the namespace, a queue or a topic, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyList {
    /// All policies in one list: an entity has few.
    pub policies: Vec<PolicyView>,
}

/// A policy with its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyKeysView {
    name: String,
    rights: Vec<RightName>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    primary_key: KeyForm,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    secondary_key: KeyForm,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    created_at: Instant,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    updated_at: Instant,
}

impl fmt::Debug for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyForm")
    }
}

impl KeyForm {
    /// Parses the key.
    ///
    /// # Errors
    /// Returns `ArgumentError` if the text is not a key.
    pub fn to_key(&self) -> Result<KeyText, Rejection> {
        KeyText::parse(&self.0)
    }
}

impl From<&KeyText> for KeyForm {
    fn from(key: &KeyText) -> Self {
        Self(key.reveal().to_owned())
    }
}

impl RightName {
    const fn right(self) -> Right {
        match self {
            Self::Send => Right::Send,
            Self::Listen => Right::Listen,
            Self::Manage => Right::Manage,
        }
    }

    fn of(rights: Rights) -> Vec<Self> {
        let all = [Self::Send, Self::Listen, Self::Manage];
        all.into_iter().filter(|name| rights.contains(name.right())).collect()
    }

    fn rights(names: &[Self]) -> Rights {
        names.iter().map(|name| name.right()).collect()
    }
}

impl From<KeyName> for WhichKey {
    fn from(name: KeyName) -> Self {
        match name {
            KeyName::Primary => Self::Primary,
            KeyName::Secondary => Self::Secondary,
        }
    }
}

impl From<WhichKey> for KeyName {
    fn from(which: WhichKey) -> Self {
        match which {
            WhichKey::Primary => Self::Primary,
            WhichKey::Secondary => Self::Secondary,
        }
    }
}

impl PolicyProperties {
    /// Converts to the broker's update.
    ///
    /// # Errors
    /// Returns `ArgumentError` if a key is invalid.
    pub fn to_update(&self) -> Result<PolicyUpdate, Rejection> {
        let key = |form: &Option<KeyForm>| form.as_ref().map(KeyForm::to_key).transpose();
        Ok(PolicyUpdate {
            rights: self.rights.as_deref().map(RightName::rights),
            primary_key: key(&self.primary_key)?,
            secondary_key: key(&self.secondary_key)?,
        })
    }
}

impl From<&PolicyUpdate> for PolicyProperties {
    fn from(update: &PolicyUpdate) -> Self {
        Self {
            rights: update.rights.map(RightName::of),
            primary_key: update.primary_key.as_ref().map(KeyForm::from),
            secondary_key: update.secondary_key.as_ref().map(KeyForm::from),
        }
    }
}

impl From<&PolicyDescription> for PolicyView {
    fn from(policy: &PolicyDescription) -> Self {
        Self {
            name: policy.name.to_string(),
            rights: RightName::of(policy.rights),
            created_at: Instant(policy.created_at),
            updated_at: Instant(policy.updated_at),
        }
    }
}

impl From<PolicyView> for PolicyDescription {
    fn from(view: PolicyView) -> Self {
        let rights = RightName::rights(&view.rights);
        Self::new(&view.name, rights, view.created_at.0, view.updated_at.0)
    }
}

impl From<&[PolicyDescription]> for PolicyList {
    fn from(policies: &[PolicyDescription]) -> Self {
        Self { policies: policies.iter().map(PolicyView::from).collect() }
    }
}

impl From<&PolicyKeys> for PolicyKeysView {
    fn from(keys: &PolicyKeys) -> Self {
        Self {
            name: keys.policy.name.to_string(),
            rights: RightName::of(keys.policy.rights),
            primary_key: KeyForm::from(&keys.primary),
            secondary_key: KeyForm::from(&keys.secondary),
            created_at: Instant(keys.policy.created_at),
            updated_at: Instant(keys.policy.updated_at),
        }
    }
}

impl TryFrom<PolicyKeysView> for PolicyKeys {
    type Error = Rejection;

    fn try_from(view: PolicyKeysView) -> Result<Self, Rejection> {
        let rights = RightName::rights(&view.rights);
        let (created_at, updated_at) = (view.created_at.0, view.updated_at.0);
        Ok(Self {
            primary: view.primary_key.to_key()?,
            secondary: view.secondary_key.to_key()?,
            policy: PolicyDescription::new(&view.name, rights, created_at, updated_at),
        })
    }
}
