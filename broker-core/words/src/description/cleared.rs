//! Partial changes of an entity, and the properties that lose their value in one. Management makes
//! them from requests.

use crate::time::Timestamp;

/// The handling of properties without a new value in an update: kept, or cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Properties that lose their value.
    pub cleared: Cleared,
    /// The instant of the description to change. A later description is refused (ENT-17).
    pub expected_created_at: Option<Timestamp>,
}

/// Generates the set of properties from the list of their names.
macro_rules! cleared {
    ($($(#[$doc:meta])* $field:ident,)+) => {
        /// Properties of an entity that lose their value: a topic has only the last one.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Cleared {
            $($(#[$doc])* pub $field: bool,)+
        }

        impl Cleared {
            /// Every property that can be without a value: with it, a change is an update that replaces (ENT-17).
            pub const ALL: Self = Self { $($field: true,)+ };

            /// The properties whose names fulfil a condition.
            #[must_use]
            pub fn of(is_cleared: impl Fn(&str) -> bool) -> Self {
                Self { $($field: is_cleared(stringify!($field)),)+ }
            }

            /// Whether the property of this name loses its value.
            #[must_use]
            pub fn contains(self, name: &str) -> bool {
                [$((stringify!($field), self.$field)),+].contains(&(name, true))
            }
        }
    };
}

// The texts of the table of properties (`FieldKind::is_text`); a test compares both.
cleared! {
    /// ForwardTo.
    forward_to,
    /// ForwardDeadLetteredMessagesTo.
    forward_dead_lettered_messages_to,
    /// UserMetadata.
    user_metadata,
}
