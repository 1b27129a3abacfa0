//! The properties of a topic, their defaults, bounds and updates (ENT-03 to ENT-21).

use super::bounds::{Bounds, Fixed};
use super::{EntityKind, EntityStatus, Settings};
use crate::error::Rejection;
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

/// All properties of a topic with their effective values (ENT-31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicDescription {
    /// The path in the case given at creation (ADR-06), valid by `path::validate_entity_path`.
    pub path: Box<str>,
    /// Quota in MiB of the topic with all its subscriptions (ENT-10, TOP-10).
    pub max_size_in_megabytes: u64,
    /// Whether message ids are remembered (DUP-01); fixed at creation (ENT-16).
    pub requires_duplicate_detection: bool,
    /// How long they are remembered (DUP-04).
    pub duplicate_detection_history_time_window: TimeSpan,
    /// Time to live of messages that set none, and ceiling for the others (EXP-04 to EXP-07).
    pub default_message_time_to_live: TimeSpan,
    /// Stored, without effect.
    pub enable_batched_operations: bool,
    /// What is blocked (ENT-21).
    pub status: EntityStatus,
    /// How long the topic must be idle before it is deleted (TMP-02); unlimited: never (TMP-04).
    pub auto_delete_on_idle: TimeSpan,
    /// Stored, without effect; fixed at creation (ENT-16).
    pub enable_partitioning: bool,
    /// Stored, without effect.
    pub enable_express: bool,
    /// Stored, without effect: order is always kept.
    pub support_ordering: bool,
    /// Size of the largest message in KiB.
    pub max_message_size_in_kilobytes: u64,
    /// Text for the owner's use.
    pub user_metadata: Option<Box<str>>,
    /// What administration clients have said that there is no property for, as they said it (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The properties that a create or update request names; none stands for absent (ENT-03, ENT-17).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicProperties {
    /// MaxSizeInMegabytes.
    pub max_size_in_megabytes: Option<u64>,
    /// RequiresDuplicateDetection; an update may only repeat it.
    pub requires_duplicate_detection: Option<bool>,
    /// DuplicateDetectionHistoryTimeWindow.
    pub duplicate_detection_history_time_window: Option<TimeSpan>,
    /// DefaultMessageTimeToLive.
    pub default_message_time_to_live: Option<TimeSpan>,
    /// EnableBatchedOperations.
    pub enable_batched_operations: Option<bool>,
    /// Status.
    pub status: Option<EntityStatus>,
    /// AutoDeleteOnIdle.
    pub auto_delete_on_idle: Option<TimeSpan>,
    /// EnablePartitioning; an update may only repeat it.
    pub enable_partitioning: Option<bool>,
    /// EnableExpress.
    pub enable_express: Option<bool>,
    /// SupportOrdering.
    pub support_ordering: Option<bool>,
    /// MaxMessageSizeInKilobytes.
    pub max_message_size_in_kilobytes: Option<u64>,
    /// UserMetadata; absent means none.
    pub user_metadata: Option<Box<str>>,
    /// All that there is no property for; empty for nothing (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// The same, as what an update names.
pub type TopicUpdate = TopicProperties;

impl TopicDescription {
    /// A topic with only a path: exactly the defaults of the tier (ENT-03, ENT-08).
    #[must_use]
    pub fn new(path: impl Into<Box<str>>, limits: &Limits) -> Self {
        Self {
            path: path.into(),
            max_size_in_megabytes: limits.entity_megabytes_default,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: limits.duplicate_window_default,
            default_message_time_to_live: limits.time_to_live_max,
            enable_batched_operations: true,
            status: EntityStatus::Active,
            auto_delete_on_idle: TimeSpan::MAX,
            enable_partitioning: false,
            enable_express: false,
            support_ordering: true,
            max_message_size_in_kilobytes: limits.message_bytes_default / 1_024,
            user_metadata: None,
            extensions: None,
        }
    }

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

    /// Refuses a topic in a tier that has none (ENT-02), a status that topics lack (ENT-21, ENT-28),
    /// and values outside their bounds, which are allowed themselves (ENT-09). The path is judged
    /// elsewhere.
    pub fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        refuse_in_basic(EntityKind::Topic, &self.path, limits)?;
        self.status.validate(EntityKind::Topic)?;
        let bounds = Bounds { kind: EntityKind::Topic, path: &self.path, limits };
        bounds.megabytes(self.max_size_in_megabytes, self.enable_partitioning)?;
        bounds.duplicate_window(self.duplicate_detection_history_time_window)?;
        bounds.time_to_live(self.default_message_time_to_live)?;
        bounds.auto_delete_on_idle(self.auto_delete_on_idle)?;
        bounds.message_kilobytes(self.max_message_size_in_kilobytes)?;
        bounds.user_metadata(self.user_metadata.as_deref())?;
        bounds.extensions(self.extensions.as_deref())
    }

    /// The bytes of what it says in texts, whatever their lengths.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        let texts = [&self.user_metadata, &self.extensions];
        texts.into_iter().flatten().map(|text| text.len() as u64).sum()
    }
}

impl TopicUpdate {
    /// The description of a new topic: absent properties take the defaults of the namespace.
    pub fn create(
        self,
        path: impl Into<Box<str>>,
        settings: &Settings,
    ) -> Result<TopicDescription, Rejection> {
        let description = self.over(&settings.new_topic(path));
        description.validate(&settings.limits)?;
        Ok(description)
    }

    /// The description that replaces `current`: an absent UserMetadata means none, other absent
    /// properties keep their value (ENT-17), and those fixed at creation cannot change (ENT-16).
    pub fn apply_to(
        self,
        current: &TopicDescription,
        limits: &Limits,
    ) -> Result<TopicDescription, Rejection> {
        let fixed = Fixed { kind: EntityKind::Topic, path: &current.path };
        fixed.keep(
            "RequiresDuplicateDetection",
            self.requires_duplicate_detection,
            current.requires_duplicate_detection,
        )?;
        fixed.keep("EnablePartitioning", self.enable_partitioning, current.enable_partitioning)?;
        let description = self.over(current);
        description.validate(limits)?;
        Ok(description)
    }

    /// What is in force when these are put over `base`, whether it can be or not (ENT-17).
    #[must_use]
    pub fn over(self, base: &TopicDescription) -> TopicDescription {
        TopicDescription {
            path: base.path.clone(),
            max_size_in_megabytes: self.max_size_in_megabytes.unwrap_or(base.max_size_in_megabytes),
            requires_duplicate_detection: self
                .requires_duplicate_detection
                .unwrap_or(base.requires_duplicate_detection),
            duplicate_detection_history_time_window: self
                .duplicate_detection_history_time_window
                .unwrap_or(base.duplicate_detection_history_time_window),
            default_message_time_to_live: self
                .default_message_time_to_live
                .unwrap_or(base.default_message_time_to_live),
            enable_batched_operations: self
                .enable_batched_operations
                .unwrap_or(base.enable_batched_operations),
            status: self.status.unwrap_or(base.status),
            auto_delete_on_idle: self.auto_delete_on_idle.unwrap_or(base.auto_delete_on_idle),
            enable_partitioning: self.enable_partitioning.unwrap_or(base.enable_partitioning),
            enable_express: self.enable_express.unwrap_or(base.enable_express),
            support_ordering: self.support_ordering.unwrap_or(base.support_ordering),
            max_message_size_in_kilobytes: self
                .max_message_size_in_kilobytes
                .unwrap_or(base.max_message_size_in_kilobytes),
            user_metadata: self.user_metadata,
            extensions: super::extended(self.extensions, &base.extensions),
        }
    }
}

/// ENT-02
pub(super) fn refuse_in_basic(
    kind: EntityKind,
    path: &str,
    limits: &Limits,
) -> Result<(), Rejection> {
    if limits.tier != Tier::Basic {
        return Ok(());
    }
    Err(Rejection::argument(format!(
        "{kind} {} cannot be created: the tier {} has queues only; use a higher tier",
        crate::error::Quoted(path),
        limits.tier
    )))
}
