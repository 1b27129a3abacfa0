//! The status of an entity and what it blocks (ENT-20 to ENT-29).

use std::fmt;

use super::EntityKind;
use crate::error::Rejection;

/// The status of an entity. All messages are kept in every one of them (ENT-23).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EntityStatus {
    /// Everything works.
    #[default]
    Active,
    /// Neither send nor receive (ENT-20).
    Disabled,
    /// Receive only (ENT-20); not for subscriptions.
    SendDisabled,
    /// Send only (ENT-20); not for topics.
    ReceiveDisabled,
    /// Of the system (ENT-28).
    Unknown,
    /// Of the system (ENT-28).
    Restoring,
    /// Of the system (ENT-28).
    Creating,
    /// Of the system (ENT-28).
    Deleting,
    /// Of the system (ENT-28).
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

    /// The name as descriptions spell it (ADM-37).
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

    /// Whether send, schedule and incoming transfers pass (ENT-24).
    ///
    /// A topic's copies into a subscription do not ask the subscription's status (ENT-22).
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

    /// Whether receive, session accept, receive of deferred messages, batch delete (ENT-24) and
    /// forwarding out of the entity (ENT-27) pass, in its sub-queues too (ENT-29).
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

    /// Whether a client may set the status on an entity of that kind (ENT-20 to ENT-22, ENT-28).
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
