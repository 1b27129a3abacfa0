//! Questions about series, and their answers.

use super::row::Row;
use crate::flows::{FLOW_COUNT, bucket_micros};
use crate::time::Timestamp;

/// Maximum number of points in an answer: an hour of seconds.
pub const POINT_COUNT_MAX: u64 = 3_600;
/// Maximum number of points if the question names no resolution.
pub(super) const POINT_COUNT_DEFAULT: u64 = 720;

/// Time span of a series.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeriesQuery {
    /// Start of the span; by default an hour before its end.
    pub from: Option<Timestamp>,
    /// End of the span; by default now.
    pub until: Option<Timestamp>,
    /// Length of a slot; by default the finest one that is kept for the span and gives at most 720
    /// points.
    pub resolution: Option<Resolution>,
    /// Columns of the answer; without one, all.
    pub columns: Vec<SeriesColumn>,
}

/// Length of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// 1 s.
    Second,
    /// 1 min.
    Minute,
    /// 15 min.
    QuarterHour,
}

/// Values of an entity over time (CON-31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// Start of the first slot.
    pub from: Timestamp,
    /// Length of a slot.
    pub resolution: Resolution,
    /// The values of each column by slot; `None` if the value is not known.
    pub columns: Vec<SeriesValues>,
}

/// Values of a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesValues {
    /// The column.
    pub column: SeriesColumn,
    /// One value for each slot.
    pub values: Vec<Option<u64>>,
}

/// Column of a series. Counts are sums over a slot, gauges are values at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesColumn {
    /// Messages stored.
    Accepted,
    /// Messages handed to receivers.
    Delivered,
    /// Messages completed, or received and deleted.
    Completed,
    /// Failed deliveries.
    Failed,
    /// Messages expired, removed or dead-lettered.
    Expired,
    /// Messages that another entity forwarded to this one.
    ForwardedIn,
    /// Messages forwarded to another entity.
    ForwardedOut,
    /// Messages dropped as duplicates.
    Duplicates,
    /// Dead letters because of expiry.
    DeadLetteredExpired,
    /// Dead letters because of the delivery count.
    DeadLetteredDeliveryCount,
    /// Dead letters of receivers.
    DeadLetteredApplication,
    /// Dead letters because a rule failed.
    DeadLetteredRule,
    /// Dead letters because a rule made the header too large.
    DeadLetteredHeaderSize,
    /// Dead letters without a session.
    DeadLetteredNoSession,
    /// Dead letters that could not be forwarded.
    DeadLetteredForwarding,
    /// Dead letters because of the limit of copies.
    DeadLetteredCopyCount,
    /// Dead letters that an operator asked for.
    DeadLetteredOperator,
    /// Active messages.
    Active,
    /// Locked messages.
    Locked,
    /// Deferred messages.
    Deferred,
    /// Scheduled messages.
    Scheduled,
    /// Messages in the dead-letter queue and the transfer dead-letter queue.
    DeadLetters,
    /// Stored bytes.
    Bytes,
    /// Age of the oldest available message in milliseconds, 0 if there is none.
    OldestAge,
    /// Median of the wait until the first delivery in microseconds, like the next five.
    WaitP50,
    /// 95th percentile of the wait.
    WaitP95,
    /// 99th percentile of the wait.
    WaitP99,
    /// Median of the time under lock.
    LockP50,
    /// 95th percentile of the time under lock.
    LockP95,
    /// 99th percentile of the time under lock.
    LockP99,
}

impl Resolution {
    /// All resolutions, finest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::QuarterHour];

    /// Length of a slot in seconds.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::QuarterHour => 900,
        }
    }

    /// Time for which rows of a busy entity are kept, in seconds.
    pub(super) const fn keep_seconds(self) -> u64 {
        match self {
            Self::Second => 3_600,
            Self::Minute | Self::QuarterHour => 7 * 86_400,
        }
    }
}

impl SeriesColumn {
    /// All columns: first counts, then gauges, then percentiles.
    pub const ALL: [Self; 30] = [
        Self::Accepted,
        Self::Delivered,
        Self::Completed,
        Self::Failed,
        Self::Expired,
        Self::ForwardedIn,
        Self::ForwardedOut,
        Self::Duplicates,
        Self::DeadLetteredExpired,
        Self::DeadLetteredDeliveryCount,
        Self::DeadLetteredApplication,
        Self::DeadLetteredRule,
        Self::DeadLetteredHeaderSize,
        Self::DeadLetteredNoSession,
        Self::DeadLetteredForwarding,
        Self::DeadLetteredCopyCount,
        Self::DeadLetteredOperator,
        Self::Active,
        Self::Locked,
        Self::Deferred,
        Self::Scheduled,
        Self::DeadLetters,
        Self::Bytes,
        Self::OldestAge,
        Self::WaitP50,
        Self::WaitP95,
        Self::WaitP99,
        Self::LockP50,
        Self::LockP95,
        Self::LockP99,
    ];

    /// Returns the value of a row whose slot ends at an instant in milliseconds since 1970.
    pub(super) fn value(self, row: &Row, end_ms: u64) -> Option<u64> {
        let time = |times: Option<[u8; 3]>, place: usize| {
            times?.get(place).map(|bucket| bucket_micros(*bucket))
        };
        match self {
            Self::OldestAge => {
                let oldest_at = row.gauges.last().copied()?;
                Some(if oldest_at == 0 { 0 } else { end_ms.saturating_sub(oldest_at) })
            }
            Self::WaitP50 => time(row.waits, 0),
            Self::WaitP95 => time(row.waits, 1),
            Self::WaitP99 => time(row.waits, 2),
            Self::LockP50 => time(row.locks, 0),
            Self::LockP95 => time(row.locks, 1),
            Self::LockP99 => time(row.locks, 2),
            _ => row.counts.iter().chain(&row.gauges).nth(self as usize).copied(),
        }
    }
}

const _: () = assert!(SeriesColumn::Active as usize == FLOW_COUNT, "counts come first");
