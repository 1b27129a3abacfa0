//! The bounds of properties (ENT-09), and the properties that are fixed at creation (ENT-16). Only
//! descriptions use them.

use super::EntityKind;
use super::field::{Description, Facts, FieldKind, FieldValue};
use crate::error::{Quoted, Rejection};
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

/// Maximum bytes of the unknown properties of an entity, so that a description fits into a record.
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

/// Refuses values outside their bounds; the bounds themselves are allowed (ENT-09).
pub(super) fn validate_fields<D: Description>(
    description: &D,
    limits: &Limits,
) -> Result<(), Rejection> {
    let path = description.path();
    let whose = format!("{} {}", D::KIND, Quoted(&path));
    let is_partitioned = D::FIELDS.iter().any(|field| {
        field.name == "enable_partitioning" && field.get(description) == FieldValue::Flag(true)
    });
    for field in D::FIELDS {
        let value = field.get(description);
        if let FieldValue::Retry(Some(policy)) = &value {
            policy.validate(&whose, limits)?;
        }
        if let Some(range) = field.range {
            let [min, mut max] = range(limits);
            if let (FieldKind::Megabytes, FieldValue::Size(size)) = (field.kind, &mut max) {
                *size = size.saturating_mul(limits.tier.partition_count(is_partitioned));
            }
            validate_range(field, &value, [min, max], &whose)?;
        }
    }
    let bytes = description.extensions().map_or(0, str::len);
    if bytes <= EXTENSION_BYTES_MAX {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "the unknown properties of {whose} have {bytes} bytes, the limit is {EXTENSION_BYTES_MAX}"
    )))
}

fn validate_range(
    facts: &Facts,
    value: &FieldValue,
    [min, max]: [FieldValue; 2],
    whose: &str,
) -> Result<(), Rejection> {
    use FieldValue::{Count, Size, Span, Text};
    let title = facts.title;
    let is_within = match (value, &min, &max) {
        (Count(value), Count(min), Count(max)) => (min..=max).contains(&value),
        (Size(value), Size(min), Size(max)) => (min..=max).contains(&value),
        (Span(value), Span(min), Span(max)) => (min..=max).contains(&value),
        (Text(text), _, Size(max)) => {
            let chars = text.as_deref().map_or(0, |text| text.chars().count());
            if chars as u64 <= *max {
                return Ok(());
            }
            return Err(Rejection::out_of_range(format!(
                "{title} of {whose} has {chars} characters, the limit is {max}"
            )));
        }
        _ => true,
    };
    if is_within {
        return Ok(());
    }
    let rejection = Rejection::out_of_range(format!(
        "{title} of {whose} is {value}; it must be {min} to {max}"
    ));
    // Azure has special wording for these two.
    Err(match (title, min, max) {
        ("DuplicateDetectionHistoryTimeWindow", Span(min), Span(max)) => rejection.in_cloud_words(
            &format!("The value supplied must be between {} and {}.", clock(min), clock(max)),
        ),
        (_, min, max) if facts.kind == FieldKind::Kilobytes => rejection
            .in_cloud_words(&format!("The value for '{title}' must be between {min} and {max}.")),
        _ => rejection,
    })
}

/// Refuses an update that changes a property that is fixed at creation (ENT-16).
pub(super) fn keep_fixed<D: Description>(update: &D::Update, current: &D) -> Result<(), Rejection> {
    for field in D::FIELDS.iter().filter(|field| field.is_fixed) {
        let kept = field.get(current);
        if field.named(update).is_none_or(|named| named == kept) {
            continue;
        }
        let (title, kind) = (field.title, D::KIND);
        let whose = match kind {
            EntityKind::Queue => "Queue",
            EntityKind::Topic => "Topic",
            EntityKind::Subscription => "Subscription",
        };
        let cloud = match title {
            "EnablePartitioning" => format!("Partitioning cannot be changed for {whose}."),
            _ => format!(
                "The value for the {title} property of an existing {whose} cannot be changed."
            ),
        };
        let rejection = Rejection::argument(format!(
            "{title} of {kind} {} is {kept} since its creation and cannot change",
            Quoted(&current.path())
        ));
        return Err(rejection.in_cloud_words(&cloud));
    }
    Ok(())
}

/// Refuses topics and subscriptions in the tier Basic (ENT-02).
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
        Quoted(path),
        limits.tier
    )))
}

/// A duration in the format of .NET: `7.00:00:00`, `00:00:20`.
fn clock(span: TimeSpan) -> String {
    const TICKS_PER_SECOND: i64 = 10_000_000;
    let seconds = span.ticks() / TICKS_PER_SECOND;
    let days = match seconds / 86_400 {
        0 => String::new(),
        days => format!("{days}."),
    };
    format!("{days}{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
