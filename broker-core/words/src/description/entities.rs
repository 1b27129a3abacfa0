//! The meaning of descriptions beyond the table of their properties (ENT-02 to ENT-22). Management
//! and the namespace use it.

use std::borrow::Cow;

use super::bounds::{refuse_in_basic, validate_fields};
use super::field::Description as _;
use super::{
    EntityKind, QueueDescription, QueueProperties, SubscriptionDescription, SubscriptionProperties,
    TopicDescription, TopicProperties, forwarding,
};
use crate::error::{Quoted, Rejection};
use crate::limits::{Limits, Tier};
use crate::path::EntityName;
use crate::time::TimeSpan;

/// The properties in an update of a queue.
pub type QueueUpdate = QueueProperties;
/// The properties in an update of a topic.
pub type TopicUpdate = TopicProperties;
/// The properties in an update of a subscription.
pub type SubscriptionUpdate = SubscriptionProperties;

impl QueueDescription {
    /// The quota of the queue in bytes (SND-24).
    #[must_use]
    pub const fn size_bytes_max(&self) -> u64 {
        self.max_size_in_megabytes.saturating_mul(1 << 20)
    }

    /// The size of the largest message in bytes (SND-22).
    #[must_use]
    pub const fn message_bytes_max(&self) -> u64 {
        self.max_message_size_in_kilobytes.saturating_mul(1 << 10)
    }

    /// Refuses features that the tier lacks (ENT-02), impossible destinations (FWD-03, FWD-04), a
    /// status of the system (ENT-28), and values outside their bounds (ENT-09). The path is
    /// validated elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        if limits.tier == Tier::Basic {
            let lacking = Self::FIELDS
                .iter()
                .find(|field| field.needs_standard && field.get(self) != (field.default)(limits));
            if let Some(field) = lacking {
                return Err(Rejection::argument(format!(
                    "{} of queue {} is not part of the tier {}; use a higher tier",
                    field.title,
                    Quoted(&self.path),
                    limits.tier
                )));
            }
        }
        forwarding::validate(
            EntityKind::Queue,
            &self.path,
            self.requires_session,
            self.forward_to.as_deref(),
            self.forward_dead_lettered_messages_to.as_deref(),
        )?;
        self.status.validate(EntityKind::Queue)?;
        validate_fields(self, limits)
    }

    /// A queue inside `topic`, with the properties that it shares with the topic, and otherwise
    /// with defaults.
    #[must_use]
    pub fn within(path: impl Into<Box<str>>, topic: &TopicDescription) -> Self {
        let mut queue = Self::new(path, &Limits::default());
        queue.take(topic);
        // The topic detects duplicates (DUP-09), and shows its texts.
        queue.requires_duplicate_detection = false;
        queue.user_metadata = None;
        queue
    }

    pub(super) fn full_path(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.path)
    }
}

impl QueueUpdate {
    /// The description after the update, even if it is not valid (ENT-17).
    #[must_use]
    pub fn over(self, base: &QueueDescription) -> QueueDescription {
        self.put_over(base)
    }
}

impl TopicDescription {
    /// The quota of the topic in bytes (SND-24, TOP-10).
    #[must_use]
    pub const fn size_bytes_max(&self) -> u64 {
        self.max_size_in_megabytes.saturating_mul(1 << 20)
    }

    /// The size of the largest message in bytes (SND-22).
    #[must_use]
    pub const fn message_bytes_max(&self) -> u64 {
        self.max_message_size_in_kilobytes.saturating_mul(1 << 10)
    }

    /// Refuses a topic in a tier that has none (ENT-02), a status that topics lack (ENT-21,
    /// ENT-28), and values outside their bounds (ENT-09). The path is validated elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        refuse_in_basic(EntityKind::Topic, &self.path, limits)?;
        self.status.validate(EntityKind::Topic)?;
        validate_fields(self, limits)
    }

    pub(super) fn full_path(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.path)
    }
}

impl TopicUpdate {
    /// The description after the update, even if it is not valid (ENT-17).
    #[must_use]
    pub fn over(self, base: &TopicDescription) -> TopicDescription {
        self.put_over(base)
    }
}

impl SubscriptionDescription {
    /// The whole path (ADR-01).
    #[must_use]
    pub fn path(&self) -> String {
        self.full_path().into_owned()
    }

    pub(super) fn full_path(&self) -> Cow<'_, str> {
        let name = EntityName::Subscription { topic: self.topic.clone(), name: self.name.clone() };
        Cow::Owned(name.path().into_owned())
    }

    /// The subscription as the queue that holds its messages: properties that only the topic has
    /// are the topic's, and the lower time to live counts (EXP-06, TOP-10).
    #[must_use]
    pub fn as_queue(&self, topic: &TopicDescription) -> QueueDescription {
        let mut queue = QueueDescription::within(self.path(), topic);
        queue.take(self);
        queue.default_message_time_to_live =
            self.default_message_time_to_live.min(topic.default_message_time_to_live);
        // The subscription shows its text.
        queue.user_metadata = None;
        queue
    }

    /// Refuses a subscription in a tier that has none (ENT-02), a status that subscriptions lack
    /// (ENT-22, ENT-28), and values outside their bounds (ENT-09). The names are validated
    /// elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        let path = self.full_path();
        refuse_in_basic(EntityKind::Subscription, &path, limits)?;
        forwarding::validate(
            EntityKind::Subscription,
            &path,
            self.requires_session,
            self.forward_to.as_deref(),
            self.forward_dead_lettered_messages_to.as_deref(),
        )?;
        self.status.validate(EntityKind::Subscription)?;
        validate_fields(self, limits)
    }
}

impl SubscriptionUpdate {
    /// The description after the update, even if it is not valid (ENT-17). A subscription that
    /// forwards is never idle (TMP-12).
    #[must_use]
    pub fn over(self, base: &SubscriptionDescription) -> SubscriptionDescription {
        let mut description = self.put_over(base);
        if description.forward_to.is_some() {
            description.auto_delete_on_idle = TimeSpan::MAX;
        }
        description
    }
}
