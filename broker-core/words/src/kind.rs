//! The kinds of entities, for descriptions, errors and addresses. A kind never changes during the
//! life of an entity.

use std::fmt;

/// The kinds of entities.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntityKind {
    /// Holds messages for competing receivers.
    Queue,
    /// Publishes each message to its subscriptions.
    Topic,
    /// Holds its copies of a topic's messages.
    Subscription,
}

impl EntityKind {
    /// The name of the kind in texts.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
            Self::Subscription => "subscription",
        }
    }
}

impl fmt::Display for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.noun())
    }
}
