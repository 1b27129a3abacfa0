//! Which properties of an entity lose their value when it is changed in part.

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
}
