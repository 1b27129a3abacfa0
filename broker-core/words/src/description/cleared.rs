//! Partial changes of an entity, and the properties that lose their value in one. Management makes
//! them from requests.

use crate::time::Timestamp;

/// The handling of properties without a new value in an update: kept, or cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Properties that lose their value.
    pub cleared: Cleared,
    /// The instant of the description to change. A later description is refused (ENT-17).
    pub read_at: Option<Timestamp>,
}

/// Properties of an entity that lose their value. A topic has only the last one.
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
    /// All properties that can be without a value. A change with it equals an update that replaces
    /// the description (ENT-17).
    pub const ALL: Self =
        Self { forward_to: true, forward_dead_lettered_messages_to: true, user_metadata: true };

    /// The properties for whose names `is_cleared` returns true.
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
