//! The properties of a queue, their defaults, bounds and updates (ENT-03 to ENT-19).

use super::bounds::{Bounds, Fixed};
use super::{EntityKind, EntityStatus, RetryPolicy, SessionRetryOrder, Settings, forwarding};
use crate::error::{Quoted, Rejection};
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

/// All properties of a queue with their effective values (ENT-31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueDescription {
    /// The path in the case given at creation (ADR-06), valid by `path::validate_entity_path`.
    pub path: Box<str>,
    /// How long a peek-lock lasts (ENT-06); applies to locks taken or renewed from now on (ENT-18).
    pub lock_duration: TimeSpan,
    /// Quota of the queue in MiB (ENT-10).
    pub max_size_in_megabytes: u64,
    /// Whether message ids are remembered (DUP-01); fixed at creation (ENT-16).
    pub requires_duplicate_detection: bool,
    /// How long they are remembered (DUP-04).
    pub duplicate_detection_history_time_window: TimeSpan,
    /// Whether messages belong to sessions; fixed at creation (ENT-16).
    pub requires_session: bool,
    /// Time to live of messages that set none, and ceiling for the others (EXP-04, EXP-05).
    pub default_message_time_to_live: TimeSpan,
    /// Whether expired messages are dead-lettered instead of removed (ENT-05).
    pub dead_lettering_on_message_expiration: bool,
    /// Failed deliveries after which a message is dead-lettered (ENT-04, ENT-19).
    pub max_delivery_count: u32,
    /// Stored, without effect.
    pub enable_batched_operations: bool,
    /// What is blocked (ENT-20).
    pub status: EntityStatus,
    /// Where messages are forwarded to (file 10).
    pub forward_to: Option<Box<str>>,
    /// Where dead-lettered messages are forwarded to (file 10).
    pub forward_dead_lettered_messages_to: Option<Box<str>>,
    /// How long the queue must be idle before it is deleted (TMP-02); unlimited: never (TMP-04).
    pub auto_delete_on_idle: TimeSpan,
    /// Stored, without effect; fixed at creation (ENT-16).
    pub enable_partitioning: bool,
    /// Stored, without effect.
    pub enable_express: bool,
    /// Size of the largest message in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// Text for the owner's use.
    pub user_metadata: Option<Box<str>>,
    /// When a message comes again whose delivery has failed; at once without one (RTY-16).
    pub retry_policy: Option<RetryPolicy>,
    /// Whether a session waits for its Delayed messages (RTY-23).
    pub session_retry_order: SessionRetryOrder,
    /// What administration clients have said that there is no property for, as they said it (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The properties that a create or update request names; none stands for absent (ENT-03, ENT-17).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueProperties {
    /// LockDuration.
    pub lock_duration: Option<TimeSpan>,
    /// MaxSizeInMegabytes.
    pub max_size_in_megabytes: Option<u64>,
    /// RequiresDuplicateDetection; an update may only repeat it.
    pub requires_duplicate_detection: Option<bool>,
    /// DuplicateDetectionHistoryTimeWindow.
    pub duplicate_detection_history_time_window: Option<TimeSpan>,
    /// RequiresSession; an update may only repeat it.
    pub requires_session: Option<bool>,
    /// DefaultMessageTimeToLive.
    pub default_message_time_to_live: Option<TimeSpan>,
    /// DeadLetteringOnMessageExpiration.
    pub dead_lettering_on_message_expiration: Option<bool>,
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
    /// EnablePartitioning; an update may only repeat it.
    pub enable_partitioning: Option<bool>,
    /// EnableExpress.
    pub enable_express: Option<bool>,
    /// MaxMessageSizeInKilobytes.
    pub max_message_size_in_kilobytes: Option<u64>,
    /// UserMetadata; absent means none.
    pub user_metadata: Option<Box<str>>,
    /// RetryPolicy; absent keeps it, `Some(None)` takes it away (RTY-16).
    pub retry_policy: Option<Option<RetryPolicy>>,
    /// SessionRetryOrder.
    pub session_retry_order: Option<SessionRetryOrder>,
    /// All that there is no property for; empty for nothing (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The same, as what an update names.
pub type QueueUpdate = QueueProperties;

impl QueueDescription {
    /// A queue with only a path: exactly the defaults of the tier (ENT-03, ENT-08).
    #[must_use]
    pub fn new(path: impl Into<Box<str>>, limits: &Limits) -> Self {
        Self {
            path: path.into(),
            lock_duration: limits.lock_duration_default,
            max_size_in_megabytes: limits.entity_megabytes_default,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: limits.duplicate_window_default,
            requires_session: false,
            default_message_time_to_live: limits.time_to_live_max,
            dead_lettering_on_message_expiration: false,
            max_delivery_count: limits.delivery_count_default,
            enable_batched_operations: true,
            status: EntityStatus::Active,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            auto_delete_on_idle: TimeSpan::MAX,
            enable_partitioning: false,
            enable_express: false,
            max_message_size_in_kilobytes: limits.message_bytes_default / 1_024,
            user_metadata: None,
            retry_policy: None,
            session_retry_order: SessionRetryOrder::Hold,
            extensions: None,
        }
    }

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

    /// Refuses features that the tier lacks (ENT-02), impossible destinations (FWD-03, FWD-04), a status of the system (ENT-28), and values
    /// outside their bounds, which are allowed themselves (ENT-09). The path is judged elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        self.validate_features(limits.tier)?;
        forwarding::validate(
            EntityKind::Queue,
            &self.path,
            self.requires_session,
            self.forward_to.as_deref(),
            self.forward_dead_lettered_messages_to.as_deref(),
        )?;
        self.status.validate(EntityKind::Queue)?;
        let bounds = Bounds { kind: EntityKind::Queue, path: &self.path, limits };
        bounds.lock_duration(self.lock_duration)?;
        bounds.megabytes(self.max_size_in_megabytes, self.enable_partitioning)?;
        bounds.duplicate_window(self.duplicate_detection_history_time_window)?;
        bounds.time_to_live(self.default_message_time_to_live)?;
        bounds.delivery_count(self.max_delivery_count)?;
        bounds.auto_delete_on_idle(self.auto_delete_on_idle)?;
        bounds.message_kilobytes(self.max_message_size_in_kilobytes)?;
        bounds.user_metadata(self.user_metadata.as_deref())?;
        bounds.retry_policy(self.retry_policy.as_ref())?;
        bounds.extensions(self.extensions.as_deref())
    }

    fn validate_features(&self, tier: Tier) -> Result<(), Rejection> {
        if tier != Tier::Basic {
            return Ok(());
        }
        let features = [
            (self.requires_session, "RequiresSession"),
            (self.requires_duplicate_detection, "RequiresDuplicateDetection"),
            (self.forward_to.is_some(), "ForwardTo"),
            (self.forward_dead_lettered_messages_to.is_some(), "ForwardDeadLetteredMessagesTo"),
            (!self.auto_delete_on_idle.is_unlimited(), "AutoDeleteOnIdle"),
        ];
        for (wanted, property) in features {
            if wanted {
                return Err(Rejection::argument(format!(
                    "{property} of queue {} is not part of the tier {tier}; use a higher tier",
                    Quoted(&self.path)
                )));
            }
        }
        Ok(())
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

impl QueueUpdate {
    /// The description of a new queue: absent properties take the defaults of the namespace.
    pub fn create(
        self,
        path: impl Into<Box<str>>,
        settings: &Settings,
    ) -> Result<QueueDescription, Rejection> {
        let description = self.over(&settings.new_queue(path));
        description.validate(&settings.limits)?;
        Ok(description)
    }

    /// The description that replaces `current`: absent ForwardTo, ForwardDeadLetteredMessagesTo and
    /// UserMetadata mean none, other absent properties keep their value (ENT-17), and those fixed
    /// at creation cannot change (ENT-16).
    pub fn apply_to(
        self,
        current: &QueueDescription,
        limits: &Limits,
    ) -> Result<QueueDescription, Rejection> {
        self.keeps_what_is_fixed(current)?;
        let description = self.over(current);
        description.validate(limits)?;
        Ok(description)
    }

    fn keeps_what_is_fixed(&self, current: &QueueDescription) -> Result<(), Rejection> {
        let fixed = Fixed { kind: EntityKind::Queue, path: &current.path };
        fixed.keep("RequiresSession", self.requires_session, current.requires_session)?;
        fixed.keep(
            "RequiresDuplicateDetection",
            self.requires_duplicate_detection,
            current.requires_duplicate_detection,
        )?;
        fixed.keep("EnablePartitioning", self.enable_partitioning, current.enable_partitioning)
    }

    /// What is in force when these are put over `base`, whether it can be or not (ENT-17).
    #[must_use]
    pub fn over(self, base: &QueueDescription) -> QueueDescription {
        QueueDescription {
            path: base.path.clone(),
            lock_duration: self.lock_duration.unwrap_or(base.lock_duration),
            max_size_in_megabytes: self.max_size_in_megabytes.unwrap_or(base.max_size_in_megabytes),
            requires_duplicate_detection: self
                .requires_duplicate_detection
                .unwrap_or(base.requires_duplicate_detection),
            duplicate_detection_history_time_window: self
                .duplicate_detection_history_time_window
                .unwrap_or(base.duplicate_detection_history_time_window),
            requires_session: self.requires_session.unwrap_or(base.requires_session),
            default_message_time_to_live: self
                .default_message_time_to_live
                .unwrap_or(base.default_message_time_to_live),
            dead_lettering_on_message_expiration: self
                .dead_lettering_on_message_expiration
                .unwrap_or(base.dead_lettering_on_message_expiration),
            max_delivery_count: self.max_delivery_count.unwrap_or(base.max_delivery_count),
            enable_batched_operations: self
                .enable_batched_operations
                .unwrap_or(base.enable_batched_operations),
            status: self.status.unwrap_or(base.status),
            forward_to: self.forward_to,
            forward_dead_lettered_messages_to: self.forward_dead_lettered_messages_to,
            auto_delete_on_idle: self.auto_delete_on_idle.unwrap_or(base.auto_delete_on_idle),
            enable_partitioning: self.enable_partitioning.unwrap_or(base.enable_partitioning),
            enable_express: self.enable_express.unwrap_or(base.enable_express),
            max_message_size_in_kilobytes: self
                .max_message_size_in_kilobytes
                .unwrap_or(base.max_message_size_in_kilobytes),
            user_metadata: self.user_metadata,
            retry_policy: self.retry_policy.unwrap_or(base.retry_policy),
            session_retry_order: self.session_retry_order.unwrap_or(base.session_retry_order),
            extensions: super::extended(self.extensions, &base.extensions),
        }
    }
}
