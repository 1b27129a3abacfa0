//! The bounds of properties that several kinds of entities have (ENT-09), and what is fixed at
//! creation (ENT-16).

use std::fmt;

use super::{EntityKind, RetryPolicy};
use crate::error::{Quoted, Rejection};
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

/// What one entity may have beside the properties that are known, so that a description fits into a record.
const EXTENSION_BYTES_MAX: usize = 8_192;

/// Partitions of a partitioned queue or topic in the tiers that have such entities.
const PARTITION_COUNT: u64 = 16;

impl Tier {
    /// Number of partitions that together have the size of a queue or topic (ADM-68).
    #[must_use]
    pub const fn partition_count(self, is_partitioned: bool) -> u64 {
        match self {
            Self::Basic | Self::Standard if is_partitioned => PARTITION_COUNT,
            Self::Basic | Self::Standard | Self::Premium => 1,
        }
    }
}

/// Judges the values of one entity.
pub(super) struct Bounds<'a> {
    pub(super) kind: EntityKind,
    pub(super) path: &'a str,
    pub(super) limits: &'a Limits,
}

impl Bounds<'_> {
    pub(super) fn lock_duration(&self, value: TimeSpan) -> Result<(), Rejection> {
        let limits = self.limits;
        self.within("LockDuration", value, limits.lock_duration_min, limits.lock_duration_max)
    }

    pub(super) fn megabytes(&self, value: u64, is_partitioned: bool) -> Result<(), Rejection> {
        let limits = self.limits;
        let partition_count = limits.tier.partition_count(is_partitioned);
        let max = limits.entity_megabytes_max.saturating_mul(partition_count);
        self.within("MaxSizeInMegabytes", value, limits.entity_megabytes_min, max)
    }

    pub(super) fn duplicate_window(&self, value: TimeSpan) -> Result<(), Rejection> {
        let (min, max) = (self.limits.duplicate_window_min, self.limits.duplicate_window_max);
        let within = self.within("DuplicateDetectionHistoryTimeWindow", value, min, max);
        within.map_err(|rejection| {
            let (min, max) = (clock(min), clock(max));
            rejection
                .in_cloud_words(&format!("The value supplied must be between {min} and {max}."))
        })
    }

    pub(super) fn time_to_live(&self, value: TimeSpan) -> Result<(), Rejection> {
        let (min, max) = (self.limits.time_to_live_min, self.limits.time_to_live_max);
        self.within("DefaultMessageTimeToLive", value, min, max)
    }

    pub(super) fn delivery_count(&self, value: u32) -> Result<(), Rejection> {
        self.within("MaxDeliveryCount", value, 1, self.limits.delivery_count_max)
    }

    pub(super) fn auto_delete_on_idle(&self, value: TimeSpan) -> Result<(), Rejection> {
        let min = self.limits.auto_delete_on_idle_min;
        self.within("AutoDeleteOnIdle", value, min, TimeSpan::MAX)
    }

    pub(super) fn message_kilobytes(&self, value: u64) -> Result<(), Rejection> {
        let (min, max) = (self.limits.message_bytes_min, self.limits.message_bytes_max);
        let (property, min, max) = ("MaxMessageSizeInKilobytes", min / 1_024, max / 1_024);
        self.within(property, value, min, max).map_err(|rejection| {
            rejection.in_cloud_words(&format!(
                "The value for '{property}' must be between {min} and {max}."
            ))
        })
    }

    pub(super) fn user_metadata(&self, text: Option<&str>) -> Result<(), Rejection> {
        let chars = text.map_or(0, |text| text.chars().count());
        if chars <= self.limits.user_metadata_chars_max {
            return Ok(());
        }
        Err(Rejection::out_of_range(format!(
            "UserMetadata of {} {} has {chars} characters, the limit is {}",
            self.kind,
            Quoted(self.path),
            self.limits.user_metadata_chars_max
        )))
    }

    pub(super) fn retry_policy(&self, policy: Option<&RetryPolicy>) -> Result<(), Rejection> {
        let Some(policy) = policy else { return Ok(()) };
        policy.validate(&format!("{} {}", self.kind, Quoted(self.path)), self.limits)
    }

    pub(super) fn extensions(&self, text: Option<&str>) -> Result<(), Rejection> {
        let bytes = text.map_or(0, str::len);
        if bytes <= EXTENSION_BYTES_MAX {
            return Ok(());
        }
        Err(Rejection::out_of_range(format!(
            "the unknown properties of {} {} have {bytes} bytes, the limit is \
             {EXTENSION_BYTES_MAX}",
            self.kind,
            Quoted(self.path)
        )))
    }

    fn within<T: PartialOrd + fmt::Display>(
        &self,
        property: &str,
        value: T,
        min: T,
        max: T,
    ) -> Result<(), Rejection> {
        if min <= value && value <= max {
            return Ok(());
        }
        Err(Rejection::out_of_range(format!(
            "{property} of {} {} is {value}; it must be {min} to {max}",
            self.kind,
            Quoted(self.path)
        )))
    }
}

/// Judges what an update says of properties that cannot change.
pub(super) struct Fixed<'a> {
    pub(super) kind: EntityKind,
    pub(super) path: &'a str,
}

impl Fixed<'_> {
    pub(super) fn keep(
        &self,
        property: &str,
        wanted: Option<bool>,
        kept: bool,
    ) -> Result<(), Rejection> {
        if wanted.is_none_or(|wanted| wanted == kept) {
            return Ok(());
        }
        Err(cannot_change(self.kind, property, self.path, kept))
    }
}

/// The refusal of an update that changes what is fixed at creation (ENT-16).
fn cannot_change(
    kind: EntityKind,
    property: &str,
    path: &str,
    kept: impl fmt::Display,
) -> Rejection {
    let named = match kind {
        EntityKind::Queue => "Queue",
        EntityKind::Topic => "Topic",
        EntityKind::Subscription => "Subscription",
    };
    let cloud = match property {
        "EnablePartitioning" => format!("Partitioning cannot be changed for {named}."),
        _ => format!(
            "The value for the {property} property of an existing {named} cannot be changed."
        ),
    };
    Rejection::argument(format!(
        "{property} of {kind} {} is {kept} since its creation and cannot change",
        Quoted(path)
    ))
    .in_cloud_words(&cloud)
}

/// A duration as .NET writes it: `7.00:00:00`, `00:00:20`.
fn clock(span: TimeSpan) -> String {
    const TICKS_PER_SECOND: i64 = 10_000_000;
    let seconds = span.ticks() / TICKS_PER_SECOND;
    let days = match seconds / 86_400 {
        0 => String::new(),
        days => format!("{days}."),
    };
    format!("{days}{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
