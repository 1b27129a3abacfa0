//! The status of an entity and the operations that it blocks (ENT-20 to ENT-29). The machines check
//! it.

use std::fmt;

use super::EntityKind;
use crate::error::Rejection;

/// The status of an entity. No status removes messages (ENT-23).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EntityStatus {
    /// No operation is blocked.
    #[default]
    Active,
    /// Neither send nor receive (ENT-20).
    Disabled,
    /// Receive only (ENT-20); not for subscriptions.
    SendDisabled,
    /// Send only (ENT-20); not for topics.
    ReceiveDisabled,
    /// A status that only the system sets (ENT-28).
    Unknown,
    /// A status that only the system sets (ENT-28).
    Restoring,
    /// A status that only the system sets (ENT-28).
    Creating,
    /// A status that only the system sets (ENT-28).
    Deleting,
    /// A status that only the system sets (ENT-28).
    Renaming,
}

impl EntityStatus {
    /// Every status.
    pub const ALL: [Self; 9] = [
        Self::Active,
        Self::Disabled,
        Self::SendDisabled,
        Self::ReceiveDisabled,
        Self::Unknown,
        Self::Restoring,
        Self::Creating,
        Self::Deleting,
        Self::Renaming,
    ];

    /// The name in descriptions (ADM-37).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Disabled => "Disabled",
            Self::SendDisabled => "SendDisabled",
            Self::ReceiveDisabled => "ReceiveDisabled",
            Self::Unknown => "Unknown",
            Self::Restoring => "Restoring",
            Self::Creating => "Creating",
            Self::Deleting => "Deleting",
            Self::Renaming => "Renaming",
        }
    }

    /// The status of that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name().eq_ignore_ascii_case(name))
    }

    /// Whether send, schedule and incoming transfers are allowed (ENT-24).
    ///
    /// The status of a subscription does not affect copies from its topic (ENT-22).
    #[must_use]
    pub const fn allows_send(self) -> bool {
        match self {
            Self::Active | Self::ReceiveDisabled => true,
            Self::Disabled
            | Self::SendDisabled
            | Self::Unknown
            | Self::Restoring
            | Self::Creating
            | Self::Deleting
            | Self::Renaming => false,
        }
    }

    /// Whether these are allowed: receive, session accept, receive of deferred messages, batch
    /// delete (ENT-24) and forwarding out of the entity (ENT-27), also in its sub-queues (ENT-29).
    #[must_use]
    pub const fn allows_receive(self) -> bool {
        match self {
            Self::Active | Self::SendDisabled => true,
            Self::Disabled
            | Self::ReceiveDisabled
            | Self::Unknown
            | Self::Restoring
            | Self::Creating
            | Self::Deleting
            | Self::Renaming => false,
        }
    }

    /// Whether a client may set the status on an entity of this kind (ENT-20 to ENT-22, ENT-28).
    #[must_use]
    pub const fn is_settable(self, kind: EntityKind) -> bool {
        match self {
            Self::Active | Self::Disabled => true,
            Self::SendDisabled => matches!(kind, EntityKind::Queue | EntityKind::Topic),
            Self::ReceiveDisabled => matches!(kind, EntityKind::Queue | EntityKind::Subscription),
            Self::Unknown | Self::Restoring | Self::Creating | Self::Deleting | Self::Renaming => {
                false
            }
        }
    }

    /// Refuses a status that a client may not set on an entity of that kind (ENT-28).
    pub fn validate(self, kind: EntityKind) -> Result<(), Rejection> {
        if self.is_settable(kind) {
            return Ok(());
        }
        Err(Rejection::argument(format!("the status {self} cannot be set on a {kind}")))
    }
}

impl fmt::Display for EntityStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
