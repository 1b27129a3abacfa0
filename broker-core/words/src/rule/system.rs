//! The broker properties that rules can name, `sys.` in SQL (SQL-08). The SQL parser and
//! correlation filters look names up in it.

use std::fmt;

use crate::message::SettableProperty;

/// A broker property that a rule can read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SystemProperty {
    /// A property that actions can also change (ACT-07).
    Settable(SettableProperty),
    /// TransactionPartitionKey, also known as ViaPartitionKey.
    TransactionPartitionKey,
    /// EnqueuedTimeUtc.
    EnqueuedTimeUtc,
    /// ExpiresAtUtc.
    ExpiresAtUtc,
    /// SequenceNumber.
    SequenceNumber,
    /// EnqueuedSequenceNumber.
    EnqueuedSequenceNumber,
    /// DeliveryCount.
    DeliveryCount,
    /// Size.
    Size,
    /// State.
    State,
    /// DeadLetterSource.
    DeadLetterSource,
    /// ForcePersistence.
    ForcePersistence,
    /// LockedUntilUtc.
    LockedUntilUtc,
    /// LockToken.
    LockToken,
}

/// Properties that cannot be changed.
const READ_ONLY: [SystemProperty; 12] = [
    SystemProperty::TransactionPartitionKey,
    SystemProperty::EnqueuedTimeUtc,
    SystemProperty::ExpiresAtUtc,
    SystemProperty::SequenceNumber,
    SystemProperty::EnqueuedSequenceNumber,
    SystemProperty::DeliveryCount,
    SystemProperty::Size,
    SystemProperty::State,
    SystemProperty::DeadLetterSource,
    SystemProperty::ForcePersistence,
    SystemProperty::LockedUntilUtc,
    SystemProperty::LockToken,
];

/// Alternative names.
const ALIASES: [(&str, SystemProperty); 2] = [
    ("Label", SystemProperty::Settable(SettableProperty::Subject)),
    ("ViaPartitionKey", SystemProperty::TransactionPartitionKey),
];

impl SystemProperty {
    /// All broker properties.
    pub fn all() -> impl Iterator<Item = Self> {
        SettableProperty::ALL.into_iter().map(Self::Settable).chain(READ_ONLY)
    }

    /// The property of that name in any case (SQL-07, SQL-08).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|property| property.name().eq_ignore_ascii_case(name)).or_else(|| {
            let (_, property) =
                ALIASES.into_iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name))?;
            Some(property)
        })
    }

    /// The canonical name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Settable(property) => property.name(),
            Self::TransactionPartitionKey => "TransactionPartitionKey",
            Self::EnqueuedTimeUtc => "EnqueuedTimeUtc",
            Self::ExpiresAtUtc => "ExpiresAtUtc",
            Self::SequenceNumber => "SequenceNumber",
            Self::EnqueuedSequenceNumber => "EnqueuedSequenceNumber",
            Self::DeliveryCount => "DeliveryCount",
            Self::Size => "Size",
            Self::State => "State",
            Self::DeadLetterSource => "DeadLetterSource",
            Self::ForcePersistence => "ForcePersistence",
            Self::LockedUntilUtc => "LockedUntilUtc",
            Self::LockToken => "LockToken",
        }
    }
}

impl fmt::Display for SystemProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
