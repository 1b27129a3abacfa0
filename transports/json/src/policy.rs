//! JSON forms of policies and their keys, generated from the list of their properties. The
//! transports and the command line use them.

use std::fmt;

use peeklock_core::contract::{Right, Rights};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyText, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey};
use peeklock_core::policy_properties;
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

macro_rules! forms {
    (
        given { $($(#[$doc:meta])* $given:ident: $_kind:ty as $json:ty = $_label:literal,)+ }
        secret { $($(#[$secret_doc:meta])* $secret:ident = $_secret_label:literal,)+ }
        instants { $($(#[$_doc:meta])* $instant:ident = $_instant_label:literal,)+ }
    ) => {
        /// Properties of a policy to be created or updated. On an update an absent property keeps its
        /// value.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct PolicyProperties {
            $($(#[$doc])*
            #[serde(skip_serializing_if = "Option::is_none")]
            $given: Option<$json>,)+
            $($(#[$secret_doc])*
            #[serde(skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
            $secret: Option<KeyForm>,)+
        }

        /// A policy, without its keys.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase")]
        pub struct PolicyView {
            name: String,
            $($given: $json,)+
            $(#[cfg_attr(feature = "schema", schema(value_type = String))]
            $instant: Instant,)+
        }

        /// A policy with its keys.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase")]
        pub struct PolicyKeysView {
            name: String,
            $($given: $json,)+
            $(#[cfg_attr(feature = "schema", schema(value_type = String))]
            $secret: KeyForm,)+
            $(#[cfg_attr(feature = "schema", schema(value_type = String))]
            $instant: Instant,)+
        }

        impl PolicyProperties {
            /// Converts to the broker's update.
            ///
            /// # Errors
            /// Returns `ArgumentError` if a key is invalid.
            pub fn to_update(&self) -> Result<PolicyUpdate, Rejection> {
                Ok(PolicyUpdate {
                    $($given: self.$given.as_ref().map(Form::value),)+
                    $($secret: self.$secret.as_ref().map(KeyForm::to_key).transpose()?,)+
                })
            }
        }

        impl From<&PolicyUpdate> for PolicyProperties {
            fn from(update: &PolicyUpdate) -> Self {
                Self {
                    $($given: update.$given.as_ref().map(Form::of),)+
                    $($secret: update.$secret.as_ref().map(KeyForm::from),)+
                }
            }
        }

        impl From<&PolicyDescription> for PolicyView {
            fn from(policy: &PolicyDescription) -> Self {
                Self {
                    name: policy.name.to_string(),
                    $($given: Form::of(&policy.$given),)+
                    $($instant: Instant(policy.$instant),)+
                }
            }
        }

        impl From<PolicyView> for PolicyDescription {
            fn from(view: PolicyView) -> Self {
                Self {
                    name: view.name.into(),
                    $($given: view.$given.value(),)+
                    $($instant: view.$instant.0,)+
                }
            }
        }

        impl From<&PolicyKeys> for PolicyKeysView {
            fn from(keys: &PolicyKeys) -> Self {
                let PolicyView { name, $($given,)+ $($instant,)+ } = PolicyView::from(&keys.policy);
                let [$($secret,)+] = [$(KeyForm::from(&keys.$secret),)+];
                Self { name, $($given,)+ $($secret,)+ $($instant,)+ }
            }
        }

        impl TryFrom<PolicyKeysView> for PolicyKeys {
            type Error = Rejection;

            fn try_from(view: PolicyKeysView) -> Result<Self, Rejection> {
                let PolicyKeysView { name, $($given,)+ $($secret,)+ $($instant,)+ } = view;
                let policy = PolicyView { name, $($given,)+ $($instant,)+ }.into();
                Ok(Self { policy, $($secret: $secret.to_key()?,)+ })
            }
        }
    };
}

policy_properties!(forms);

/// The policies of the namespace, a queue or a topic, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyList {
    /// All policies in one list: an entity has few.
    pub policies: Vec<PolicyView>,
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

/// A property of a policy in JSON.
trait Form<V> {
    fn of(value: &V) -> Self;

    fn value(&self) -> V;
}

/// The rights in their order.
const RIGHTS: [(RightName, Right); 3] = [
    (RightName::Send, Right::Send),
    (RightName::Listen, Right::Listen),
    (RightName::Manage, Right::Manage),
];

impl Form<Rights> for Vec<RightName> {
    fn of(rights: &Rights) -> Self {
        let held = RIGHTS.into_iter().filter(|(_, right)| rights.contains(*right));
        held.map(|(name, _)| name).collect()
    }

    fn value(&self) -> Rights {
        let held = RIGHTS.into_iter().filter(|(name, _)| self.contains(name));
        held.map(|(_, right)| right).collect()
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

impl From<&[PolicyDescription]> for PolicyList {
    fn from(policies: &[PolicyDescription]) -> Self {
        Self { policies: policies.iter().map(PolicyView::from).collect() }
    }
}
