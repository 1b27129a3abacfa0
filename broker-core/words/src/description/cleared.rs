//! How an entity is changed in part, and which of its properties lose their value then.

use crate::time::Timestamp;

/// How the properties of an update are taken. What has no new value, and is not cleared, is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// What has no new value and loses its own.
    pub cleared: Cleared,
    /// Only if the description is still of this instant (ENT-17).
    pub read_at: Option<Timestamp>,
}

/// Properties of an entity that lose their value. A topic has the last of them only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// ForwardTo.
    pub forward_to: bool,
    /// ForwardDeadLetteredMessagesTo.
    pub forward_dead_lettered_messages_to: bool,
    /// UserMetadata.
    pub user_metadata: bool,
}

impl Cleared {
    /// Everything that can be without a value: with it, a change is an update that replaces (ENT-17).
    pub const ALL: Self =
        Self { forward_to: true, forward_dead_lettered_messages_to: true, user_metadata: true };

    /// The properties whose names fulfil a condition.
    #[must_use]
    pub fn of(is_cleared: impl Fn(&str) -> bool) -> Self {
        Self {
            forward_to: is_cleared("forward_to"),
            forward_dead_lettered_messages_to: is_cleared("forward_dead_lettered_messages_to"),
            user_metadata: is_cleared("user_metadata"),
        }
    }

    /// Whether the property of this name loses its value.
    #[must_use]
    pub fn contains(self, name: &str) -> bool {
        match name {
            "forward_to" => self.forward_to,
            "forward_dead_lettered_messages_to" => self.forward_dead_lettered_messages_to,
            "user_metadata" => self.user_metadata,
            _ => false,
        }
    }
}
