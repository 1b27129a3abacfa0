//! Policies: names with rights and two keys (SEC-01, SEC-02). Management and authorizers use them;
//! the set of policies in force is in `peeklock-core`.

use std::fmt;
use std::sync::Arc;

use crate::error::Rejection;
use crate::time::Timestamp;

/// Maximum number of characters in the name of a policy.
pub const NAME_CHARS_MAX: usize = 256;
/// Number of characters of a key.
const KEY_CHARS: usize = 44;

/// A right on an entity or on the namespace (SEC-01).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Right {
    /// Send, schedule, cancel.
    Send,
    /// Receive, settle, renew, defer, peek, batch delete.
    Listen,
    /// Create, update, delete, list and read entities and runtime information.
    Manage,
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Rights(u8);

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

/// The list of the properties of policies: passes it to a macro, which generates a form of policies
/// (CONTRIBUTING.md, "Add a property"). A property that clients give has a type, and `as` a type in
/// JSON; instants are set by the broker. Each has a label in the output of the command line.
#[macro_export]
macro_rules! policy_properties {
    ($form:ident) => {
        $form! {
            given {
                /// `Manage` requires the other two.
                rights: Rights as Vec<RightName> = "rights",
            }
            secret {
                /// 44 characters; generated if absent.
                primary_key = "primary key",
                /// 44 characters; generated if absent.
                secondary_key = "secondary key",
            }
            instants {
                /// Time of creation.
                created_at = "created",
                /// Time of the last change of a property.
                updated_at = "updated",
            }
        }
    };
}

macro_rules! policy {
    (
        given { $($(#[$doc:meta])* $given:ident: $kind:ty as $_json:ty = $label:literal,)+ }
        secret { $($(#[$secret_doc:meta])* $secret:ident = $secret_label:literal,)+ }
        instants { $($(#[$instant_doc:meta])* $instant:ident = $instant_label:literal,)+ }
    ) => {
        /// Properties of a policy without its keys.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct PolicyDescription {
            /// Name of the policy.
            pub name: Arc<str>,
            $($(#[$doc])* pub $given: $kind,)+
            $($(#[$instant_doc])* pub $instant: Timestamp,)+
        }

        /// A policy with its keys.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct PolicyKeys {
            /// The policy without its keys.
            pub policy: PolicyDescription,
            $($(#[$secret_doc])* pub $secret: KeyText,)+
        }

        /// New properties of a policy. Properties that are not named stay unchanged, or are
        /// generated at creation.
        #[derive(Clone, Default, Debug)]
        pub struct PolicyUpdate {
            $($(#[$doc])* pub $given: Option<$kind>,)+
            $($(#[$secret_doc])* pub $secret: Option<KeyText>,)+
        }

        impl PolicyDescription {
            /// The properties that clients give, with their labels.
            pub fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
                [$(($label, self.$given.to_string()),)+].into_iter()
            }

            /// The instants, with their labels.
            pub fn instants(&self) -> impl Iterator<Item = (&'static str, String)> {
                [$(($instant_label, self.$instant.to_string()),)+].into_iter()
            }
        }

        impl PolicyKeys {
            /// The keys, with their labels.
            pub fn secrets(&self) -> impl Iterator<Item = (&'static str, String)> {
                [$(($secret_label, self.$secret.reveal().to_owned()),)+].into_iter()
            }
        }

        impl PolicyUpdate {
            /// The policy after the update.
            #[must_use]
            pub fn over(self, base: &PolicyKeys) -> PolicyKeys {
                let mut new = base.clone();
                $(if let Some(value) = self.$given {
                    new.policy.$given = value;
                })+
                $(if let Some(key) = self.$secret {
                    new.$secret = key;
                })+
                new
            }
        }
    };
}

policy_properties!(policy);

impl Right {
    /// All rights.
    pub const ALL: [Self; 3] = [Self::Send, Self::Listen, Self::Manage];

    /// The name of the right.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Listen => "Listen",
            Self::Manage => "Manage",
        }
    }

    /// The right of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Listen => 2,
            Self::Manage => 4,
        }
    }
}

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Every right.
    pub const ALL: Self = Self::of(Right::Send).and(Right::Listen).and(Right::Manage);

    /// Returns a set of only this right.
    #[must_use]
    pub const fn of(right: Right) -> Self {
        Self(right.bit())
    }

    /// Adds a right.
    #[must_use]
    pub const fn and(self, right: Right) -> Self {
        Self(self.0 | right.bit())
    }

    /// Whether the set contains a right.
    #[must_use]
    pub const fn contains(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether the two sets have a right in common.
    #[must_use]
    pub const fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether the set contains all of the others.
    #[must_use]
    pub const fn include(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The rights in the set, in their order.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.contains(*right))
    }

    /// One bit for each right, as in records: Send 1, Listen 2, Manage 4.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the rights of such bits; none if unknown bits are set.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Names of the rights, joined with a text.
    #[must_use]
    pub fn names(self, separator: &str) -> String {
        self.iter().map(Right::name).collect::<Vec<_>>().join(separator)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        rights.into_iter().fold(Self::NONE, Self::and)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names(", "))
    }
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

    /// Takes a text without validation.
    #[must_use]
    pub fn stored(text: &str) -> Self {
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
}

impl PolicyKeys {
    /// One of the keys.
    #[must_use]
    pub const fn key(&self, which: WhichKey) -> &KeyText {
        match which {
            WhichKey::Primary => &self.primary_key,
            WhichKey::Secondary => &self.secondary_key,
        }
    }

    /// Refuses rights that a policy cannot have (SEC-01), and equal keys, which could not be rotated
    /// one after the other (SEC-09).
    ///
    /// # Errors
    /// `ArgumentError`.
    pub fn validate(&self) -> Result<(), Rejection> {
        validate_rights(self.policy.rights)?;
        if self.primary_key == self.secondary_key {
            return Err(Rejection::argument("the two keys of a policy must differ"));
        }
        Ok(())
    }
}

impl PolicyUpdate {
    /// An update of the rights.
    #[must_use]
    pub fn of(rights: Rights) -> Self {
        Self { rights: Some(rights), ..Self::default() }
    }

    /// Adds keys.
    #[must_use]
    pub fn with_keys(self, primary_key: Option<KeyText>, secondary_key: Option<KeyText>) -> Self {
        Self { primary_key, secondary_key, ..self }
    }

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

/// Refuses a name that a connection string or a path cannot contain.
fn validate_name(name: &str) -> Result<(), Rejection> {
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
fn validate_rights(rights: Rights) -> Result<(), Rejection> {
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
