//! The properties of a subscription, their defaults, bounds and updates (ENT-03 to ENT-22).

use super::bounds::{Bounds, Fixed};
use super::topic::refuse_in_basic;
use super::{
    EntityKind, EntityStatus, QueueDescription, RetryPolicy, SessionRetryOrder, Settings,
    TopicDescription, forwarding,
};
use crate::error::Rejection;
use crate::limits::Limits;
use crate::path::EntityName;
use crate::time::TimeSpan;

/// All properties of a subscription with their effective values (ENT-31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionDescription {
    /// The path of its topic.
    pub topic: Box<str>,
    /// The name in the case given at creation (ADR-06).
    pub name: Box<str>,
    /// How long a peek-lock lasts (ENT-06); applies to locks taken or renewed from now on (ENT-18).
    pub lock_duration: TimeSpan,
    /// Whether messages belong to sessions; fixed at creation (ENT-16).
    pub requires_session: bool,
    /// Time to live of messages that set none, and ceiling for the others, beside that of the topic
    /// (EXP-06, EXP-07).
    pub default_message_time_to_live: TimeSpan,
    /// Whether expired messages are dead-lettered instead of removed (ENT-05).
    pub dead_lettering_on_message_expiration: bool,
    /// Whether a message on which a rule fails is dead-lettered (DLQ-23, DLQ-24). Not for production where
    /// rules do not suit every message of the topic: each one they fail on stays in the dead-letter
    /// queue until somebody takes it (DLQ-26).
    pub enable_dead_lettering_on_filter_evaluation_exceptions: bool,
    /// Failed deliveries after which a message is dead-lettered (ENT-04, ENT-19).
    pub max_delivery_count: u32,
    /// Stored, without effect.
    pub enable_batched_operations: bool,
    /// What is blocked (ENT-22).
    pub status: EntityStatus,
    /// Where messages are forwarded to (file 10).
    pub forward_to: Option<Box<str>>,
    /// Where dead-lettered messages are forwarded to (file 10).
    pub forward_dead_lettered_messages_to: Option<Box<str>>,
    /// How long the subscription must be idle before it is deleted (TMP-02); unlimited: never (TMP-04).
    pub auto_delete_on_idle: TimeSpan,
    /// Text for the owner's use.
    pub user_metadata: Option<Box<str>>,
    /// When a message comes again whose delivery has failed; at once without one (RTY-16).
    pub retry_policy: Option<RetryPolicy>,
    /// Whether a session waits for its Delayed messages (RTY-23).
    pub session_retry_order: SessionRetryOrder,
    /// Whether it gets only those messages that no other subscription of its topic selects (TOP-25).
    pub catch_all: bool,
    /// What administration clients have said that there is no property for, as they said it (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The properties that a create or update request names; none stands for absent (ENT-03, ENT-17).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriptionProperties {
    /// LockDuration.
    pub lock_duration: Option<TimeSpan>,
    /// RequiresSession; an update may only repeat it.
    pub requires_session: Option<bool>,
    /// DefaultMessageTimeToLive.
    pub default_message_time_to_live: Option<TimeSpan>,
    /// DeadLetteringOnMessageExpiration.
    pub dead_lettering_on_message_expiration: Option<bool>,
    /// EnableDeadLetteringOnFilterEvaluationExceptions.
    pub enable_dead_lettering_on_filter_evaluation_exceptions: Option<bool>,
    /// MaxDeliveryCount.
    pub max_delivery_count: Option<u32>,
    /// EnableBatchedOperations.
    pub enable_batched_operations: Option<bool>,
    /// Status.
    pub status: Option<EntityStatus>,
    /// ForwardTo; absent means none.
    pub forward_to: Option<Box<str>>,
    /// ForwardDeadLetteredMessagesTo; absent means none.
    pub forward_dead_lettered_messages_to: Option<Box<str>>,
    /// AutoDeleteOnIdle.
    pub auto_delete_on_idle: Option<TimeSpan>,
    /// UserMetadata; absent means none.
    pub user_metadata: Option<Box<str>>,
    /// RetryPolicy; absent keeps it, `Some(None)` takes it away (RTY-16).
    pub retry_policy: Option<Option<RetryPolicy>>,
    /// SessionRetryOrder.
    pub session_retry_order: Option<SessionRetryOrder>,
    /// CatchAll.
    pub catch_all: Option<bool>,
    /// All that there is no property for; empty for nothing (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The same, as what an update names.
pub type SubscriptionUpdate = SubscriptionProperties;

impl SubscriptionDescription {
    /// A subscription with only its names: exactly the defaults of the tier (ENT-03).
    #[must_use]
    pub fn new(topic: impl Into<Box<str>>, name: impl Into<Box<str>>, limits: &Limits) -> Self {
        Self {
            topic: topic.into(),
            name: name.into(),
            lock_duration: limits.lock_duration_default,
            requires_session: false,
            default_message_time_to_live: limits.time_to_live_max,
            dead_lettering_on_message_expiration: false,
            enable_dead_lettering_on_filter_evaluation_exceptions: true,
            max_delivery_count: limits.delivery_count_default,
            enable_batched_operations: true,
            status: EntityStatus::Active,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            auto_delete_on_idle: TimeSpan::MAX,
            user_metadata: None,
            retry_policy: None,
            session_retry_order: SessionRetryOrder::Hold,
            catch_all: false,
            extensions: None,
        }
    }

    /// The whole path (ADR-01).
    #[must_use]
    pub fn path(&self) -> String {
        let name = EntityName::Subscription { topic: self.topic.clone(), name: self.name.clone() };
        name.path().into_owned()
    }

    /// The subscription as the queue that holds its messages: what it shares with its topic is the
    /// topic's, and the lower time to live counts (EXP-06, TOP-10). Duplicates are the topic's concern
    /// (DUP-09).
    #[must_use]
    pub fn as_queue(&self, topic: &TopicDescription) -> QueueDescription {
        let Self {
            topic: _,
            name: _,
            lock_duration,
            requires_session,
            default_message_time_to_live,
            dead_lettering_on_message_expiration,
            enable_dead_lettering_on_filter_evaluation_exceptions: _,
            max_delivery_count,
            enable_batched_operations,
            status,
            forward_to,
            forward_dead_lettered_messages_to,
            auto_delete_on_idle,
            user_metadata: _,
            retry_policy,
            session_retry_order,
            catch_all: _,
            extensions: _,
        } = self;
        QueueDescription {
            path: self.path().into(),
            lock_duration: *lock_duration,
            max_size_in_megabytes: topic.max_size_in_megabytes,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: topic.duplicate_detection_history_time_window,
            requires_session: *requires_session,
            default_message_time_to_live: (*default_message_time_to_live)
                .min(topic.default_message_time_to_live),
            dead_lettering_on_message_expiration: *dead_lettering_on_message_expiration,
            max_delivery_count: *max_delivery_count,
            enable_batched_operations: *enable_batched_operations,
            status: *status,
            forward_to: forward_to.clone(),
            forward_dead_lettered_messages_to: forward_dead_lettered_messages_to.clone(),
            auto_delete_on_idle: *auto_delete_on_idle,
            enable_partitioning: topic.enable_partitioning,
            enable_express: topic.enable_express,
            max_message_size_in_kilobytes: topic.max_message_size_in_kilobytes,
            // What clients have it say is told by the subscription itself.
            user_metadata: None,
            retry_policy: *retry_policy,
            session_retry_order: *session_retry_order,
            extensions: None,
        }
    }

    /// Refuses a subscription in a tier that has none (ENT-02), a status that subscriptions lack
    /// (ENT-22, ENT-28), and values outside their bounds, which are allowed themselves (ENT-09). The
    /// names are judged elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        let path = self.path();
        refuse_in_basic(EntityKind::Subscription, &path, limits)?;
        forwarding::validate(
            EntityKind::Subscription,
            &path,
            self.requires_session,
            self.forward_to.as_deref(),
            self.forward_dead_lettered_messages_to.as_deref(),
        )?;
        self.status.validate(EntityKind::Subscription)?;
        let bounds = Bounds { kind: EntityKind::Subscription, path: &path, limits };
        bounds.lock_duration(self.lock_duration)?;
        bounds.time_to_live(self.default_message_time_to_live)?;
        bounds.delivery_count(self.max_delivery_count)?;
        bounds.auto_delete_on_idle(self.auto_delete_on_idle)?;
        bounds.user_metadata(self.user_metadata.as_deref())?;
        bounds.retry_policy(self.retry_policy.as_ref())?;
        bounds.extensions(self.extensions.as_deref())
    }

    /// The bytes of what it says in texts, whatever their lengths.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        let texts = [
            &self.forward_to,
            &self.forward_dead_lettered_messages_to,
            &self.user_metadata,
            &self.extensions,
        ];
        texts.into_iter().flatten().map(|text| text.len() as u64).sum()
    }
}

impl SubscriptionUpdate {
    /// The description of a new subscription: absent properties take the defaults of the namespace.
    pub fn create(
        self,
        topic: impl Into<Box<str>>,
        name: impl Into<Box<str>>,
        settings: &Settings,
    ) -> Result<SubscriptionDescription, Rejection> {
        let description = self.over(&settings.new_subscription(topic, name));
        description.validate(&settings.limits)?;
        Ok(description)
    }

    /// The description that replaces `current`: absent ForwardTo, ForwardDeadLetteredMessagesTo and
    /// UserMetadata mean none, other absent properties keep their value (ENT-17), and those fixed
    /// at creation cannot change (ENT-16).
    pub fn apply_to(
        self,
        current: &SubscriptionDescription,
        limits: &Limits,
    ) -> Result<SubscriptionDescription, Rejection> {
        let fixed = Fixed { kind: EntityKind::Subscription, path: &current.path() };
        fixed.keep("RequiresSession", self.requires_session, current.requires_session)?;
        let description = self.over(current);
        description.validate(limits)?;
        Ok(description)
    }

    /// What is in force when these are put over `base`, whether it can be or not (ENT-17).
    #[must_use]
    pub fn over(self, base: &SubscriptionDescription) -> SubscriptionDescription {
        // One that forwards is never idle (TMP-12).
        let auto_delete_on_idle = match &self.forward_to {
            Some(_) => TimeSpan::MAX,
            None => self.auto_delete_on_idle.unwrap_or(base.auto_delete_on_idle),
        };
        SubscriptionDescription {
            topic: base.topic.clone(),
            name: base.name.clone(),
            lock_duration: self.lock_duration.unwrap_or(base.lock_duration),
            requires_session: self.requires_session.unwrap_or(base.requires_session),
            default_message_time_to_live: self
                .default_message_time_to_live
                .unwrap_or(base.default_message_time_to_live),
            dead_lettering_on_message_expiration: self
                .dead_lettering_on_message_expiration
                .unwrap_or(base.dead_lettering_on_message_expiration),
            enable_dead_lettering_on_filter_evaluation_exceptions: self
                .enable_dead_lettering_on_filter_evaluation_exceptions
                .unwrap_or(base.enable_dead_lettering_on_filter_evaluation_exceptions),
            max_delivery_count: self.max_delivery_count.unwrap_or(base.max_delivery_count),
            enable_batched_operations: self
                .enable_batched_operations
                .unwrap_or(base.enable_batched_operations),
            status: self.status.unwrap_or(base.status),
            forward_to: self.forward_to,
            forward_dead_lettered_messages_to: self.forward_dead_lettered_messages_to,
            auto_delete_on_idle,
            user_metadata: self.user_metadata,
            retry_policy: self.retry_policy.unwrap_or(base.retry_policy),
            session_retry_order: self.session_retry_order.unwrap_or(base.session_retry_order),
            catch_all: self.catch_all.unwrap_or(base.catch_all),
            extensions: super::extended(self.extensions, &base.extensions),
        }
    }
}
