//! Descriptions: the settable properties of entities, and the settings of their namespace (ENT).
//! Management creates them, and machines read them.
//!
//! A description is a plain value with effective values. Updates are values too, so that a refused
//! update changes nothing. Not here: runtime counts, which the tree's account has, and
//! AuthorizationRules, which the authorizer for shared access signatures has.

mod bounds;
mod cleared;
mod entities;
mod field;
mod forwarding;
mod named;
mod retry;
mod schema;
mod status;
#[cfg(test)]
mod tests;

pub use cleared::{Cleared, Patch};
pub use entities::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
pub use field::{Description, Facts, Field, FieldKind, FieldValue};
pub use forwarding::Destination;
pub use retry::{Jitter, RetryKind, RetryPolicy, SessionRetryOrder};
pub use schema::{
    QueueDescription, QueueProperties, SubscriptionDescription, SubscriptionProperties,
    TopicDescription, TopicProperties,
};
pub use status::EntityStatus;

pub use crate::kind::EntityKind;

use crate::error::Rejection;
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

/// The settings of a namespace for entities.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The name of the namespace (CNT-10).
    pub name: Box<str>,
    /// The limits in force, with the tier (ENT-01, QUO-02).
    pub limits: Limits,
    /// AutoDeleteOnIdle of entities created without one (TMP-02); unlimited by default (TMP-04).
    pub auto_delete_on_idle_default: TimeSpan,
    /// `locks.release_on_detach`: whether an orderly detach of a link releases the locks taken over
    /// it, as a broken connection does (SET-21).
    pub locks_release_on_detach: bool,
    /// `locks.release_on_connection_loss`: whether the loss of an AMQP connection releases the
    /// locks taken over it. Otherwise they last until they expire, as after an orderly detach
    /// (SET-21).
    pub locks_release_on_connection_loss: bool,
    /// `sessions.expire_whole_session`: whether an expired message of a session expires all its
    /// active messages that are not in flight (EXP-41, EXP-47). Otherwise each expires separately.
    pub sessions_expire_whole: bool,
    /// `forwarding.failure_target`: the queue for messages that cannot be forwarded (FWD-18).
    pub forwarding_failure_target: FailureTarget,
    /// `forwarding.on_destination_full`: the handling of messages whose destination is full
    /// (VIA-03).
    pub forwarding_on_destination_full: OnDestinationFull,
}

/// The queue for messages that cannot be forwarded (FWD-18).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FailureTarget {
    /// The transfer dead-letter queue of the entity that holds the messages.
    #[default]
    TransferDeadLetter,
    /// The dead-letter queue of that entity, as in the cloud service since 2023.
    DeadLetter,
}

/// The handling of a message whose destination is full (FWD-15, VIA-03).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnDestinationFull {
    /// The message goes to the queue for messages that cannot be forwarded.
    #[default]
    TransferDeadLetter,
    /// The message waits until there is room, and later messages wait too.
    Hold,
}

impl Settings {
    /// The settings of a new namespace of this tier.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, tier: Tier) -> Self {
        Self {
            name: name.into(),
            limits: Limits::of(tier),
            auto_delete_on_idle_default: TimeSpan::MAX,
            locks_release_on_detach: false,
            locks_release_on_connection_loss: false,
            sessions_expire_whole: true,
            forwarding_failure_target: FailureTarget::default(),
            forwarding_on_destination_full: OnDestinationFull::default(),
        }
    }

    /// The tier of the namespace (ENT-01).
    #[must_use]
    pub const fn tier(&self) -> Tier {
        self.limits.tier
    }

    /// A queue with only a path: the tier's defaults (ENT-03) and the namespace's (TMP-02).
    #[must_use]
    pub fn new_queue(&self, path: impl Into<Box<str>>) -> QueueDescription {
        QueueDescription::within_namespace(path, self)
    }

    /// A topic with only a path, as [`Settings::new_queue`].
    #[must_use]
    pub fn new_topic(&self, path: impl Into<Box<str>>) -> TopicDescription {
        TopicDescription::within_namespace(path, self)
    }

    /// A subscription with only its names, as [`Settings::new_queue`].
    #[must_use]
    pub fn new_subscription(
        &self,
        topic: impl Into<Box<str>>,
        name: impl Into<Box<str>>,
    ) -> SubscriptionDescription {
        SubscriptionDescription::within_namespace(topic, name, self)
    }

    /// Refuses settings under which no entity could be created with its defaults.
    pub fn validate(&self) -> Result<(), Rejection> {
        self.limits.validate()?;
        self.new_queue("default").validate(&self.limits)
    }
}

impl Default for Settings {
    /// The namespace `peeklock` in the tier Premium (ENT-01).
    fn default() -> Self {
        Self::new("peeklock", Tier::default())
    }
}
