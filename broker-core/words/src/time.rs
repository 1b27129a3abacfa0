//! Instants and durations of the broker, in ticks of 100 nanoseconds as in the .NET SDKs. All
//! crates use them.
//!
//! Not here: the system's clock. Only `clock.rs` reads it (FND-06).

use std::fmt;

/// A UTC instant in ticks since 0001-01-01T00:00:00Z (FND-07). It saturates at the end of the year
/// 9999, which means "never" (FND-09). `Display` and `Debug` write RFC 3339:
/// `2026-05-01T12:00:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// A non-negative duration in ticks of 100 nanoseconds. The largest value means "unlimited"
/// (FND-08). `Display` and `Debug` write ISO 8601: `PT1M`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(i64);

const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_MILLISECOND: i64 = 10_000;
/// 1970-01-01 in ticks since 0001-01-01.
const UNIX_EPOCH_TICKS: i64 = 621_355_968_000_000_000;

impl Timestamp {
    /// 0001-01-01T00:00:00Z, read as "not yet" (CNT-09).
    pub const NONE: Self = Self(0);
    /// 9999-12-31T23:59:59.9999999Z, read as "never" (FND-09).
    pub const NEVER: Self = Self(3_155_378_975_999_999_999);

    /// An instant from its ticks since year 1, clamped to the range of instants.
    #[must_use]
    pub const fn from_ticks(ticks: i64) -> Self {
        if ticks < 0 {
            return Self::NONE;
        }
        if ticks > Self::NEVER.0 { Self::NEVER } else { Self(ticks) }
    }

    /// Ticks since 0001-01-01T00:00:00Z, the unit of .NET and of AMQP properties.
    #[must_use]
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// An instant from milliseconds since 1970 (AMQP 1.6.17), clamped to the range of instants.
    #[must_use]
    pub const fn from_unix_ms(milliseconds: i64) -> Self {
        Self::from_ticks(
            milliseconds.saturating_mul(TICKS_PER_MILLISECOND).saturating_add(UNIX_EPOCH_TICKS),
        )
    }

    /// Milliseconds since 1970, rounded down.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        (self.0 - UNIX_EPOCH_TICKS).div_euclid(TICKS_PER_MILLISECOND)
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn unix_nanos(self) -> i128 {
        (self.0 - UNIX_EPOCH_TICKS) as i128 * 100
    }

    /// An instant from nanoseconds since 1970, clamped to the range of instants.
    #[must_use]
    pub fn from_unix_nanos(nanos: i128) -> Self {
        let ticks = nanos.div_euclid(100) + i128::from(UNIX_EPOCH_TICKS);
        Self::from_ticks(i64::try_from(ticks).unwrap_or(if ticks < 0 { 0 } else { i64::MAX }))
    }

    /// This instant later by `span`; "unlimited" and anything past the last instant give `NEVER`.
    #[must_use]
    pub const fn plus(self, span: TimeSpan) -> Self {
        Self::from_ticks(self.0.saturating_add(span.0))
    }

    /// This instant earlier by `span`, not before `NONE`.
    #[must_use]
    pub const fn minus(self, span: TimeSpan) -> Self {
        Self::from_ticks(self.0.saturating_sub(span.0))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> TimeSpan {
        TimeSpan::from_ticks(self.0.saturating_sub(earlier.0))
    }

    /// Whether this instant stands for "never".
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == Self::NEVER.0
    }

    /// Reads an RFC 3339 instant, such as `2026-05-01T12:00:00.5Z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parsed =
            time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339)
                .ok()?;
        Some(Self::from_unix_nanos(parsed.unix_timestamp_nanos()))
    }

    /// Reads an instant of HTTP, such as `Fri, 01 May 2026 12:00:00 GMT` (HTP-04).
    #[must_use]
    pub fn parse_rfc1123(text: &str) -> Option<Self> {
        let parsed =
            time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc2822)
                .ok()?;
        Some(Self::from_unix_nanos(parsed.unix_timestamp_nanos()))
    }

    /// Writes the instant as HTTP does, in whole seconds: `Fri, 01 May 2026 12:00:00 GMT` (HTP-04).
    #[must_use]
    pub fn to_rfc1123(self) -> String {
        let format = time::macros::format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        );
        self.to_date_time().format(&format).unwrap_or_default()
    }

    fn to_date_time(self) -> time::OffsetDateTime {
        time::OffsetDateTime::from_unix_timestamp_nanos(self.unix_nanos())
            .unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
    }
}

/// Rounds down to 100 ns. A duration longer than any span becomes "unlimited".
impl From<std::time::Duration> for TimeSpan {
    fn from(duration: std::time::Duration) -> Self {
        Self(i64::try_from(duration.as_nanos() / 100).unwrap_or(i64::MAX))
    }
}

impl From<TimeSpan> for std::time::Duration {
    fn from(span: TimeSpan) -> Self {
        span.to_std()
    }
}

impl TimeSpan {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// "Unlimited": the largest signed 64-bit count of ticks (FND-08).
    pub const MAX: Self = Self(i64::MAX);

    /// A span from ticks of 100 ns; a negative count becomes zero.
    #[must_use]
    pub const fn from_ticks(ticks: i64) -> Self {
        if ticks < 0 { Self::ZERO } else { Self(ticks) }
    }

    /// Ticks of 100 ns.
    #[must_use]
    pub const fn ticks(self) -> i64 {
        self.0
    }

    /// A span of whole milliseconds, saturating at "unlimited".
    #[must_use]
    pub const fn from_ms(milliseconds: i64) -> Self {
        Self::from_ticks(milliseconds.saturating_mul(TICKS_PER_MILLISECOND))
    }

    /// A span of whole seconds, saturating at "unlimited".
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self::from_ticks(seconds.saturating_mul(TICKS_PER_SECOND))
    }

    /// A span of whole minutes, saturating at "unlimited".
    #[must_use]
    pub const fn from_minutes(minutes: i64) -> Self {
        Self::from_seconds(minutes.saturating_mul(60))
    }

    /// A span of whole days, saturating at "unlimited".
    #[must_use]
    pub const fn from_days(days: i64) -> Self {
        Self::from_seconds(days.saturating_mul(86_400))
    }

    /// A span from seconds with fractions, rounded to ticks. `None` if `seconds` is negative or not
    /// a number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "float casts saturate, which is meant")]
    pub fn from_seconds_f64(seconds: f64) -> Option<Self> {
        (seconds >= 0.0).then_some(Self((seconds * TICKS_PER_SECOND as f64).round() as i64))
    }

    /// Seconds with fractions.
    #[must_use]
    pub fn as_seconds_f64(self) -> f64 {
        self.0 as f64 / TICKS_PER_SECOND as f64
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0 / TICKS_PER_MILLISECOND
    }

    /// Whether the span stands for "unlimited".
    #[must_use]
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// The sum, saturating at "unlimited".
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The n-th part of the span; `n` of zero counts as one.
    #[must_use]
    pub const fn divided_by(self, n: i64) -> Self {
        Self(self.0 / if n <= 0 { 1 } else { n })
    }

    /// The span as a duration of the standard library.
    #[must_use]
    pub fn to_std(self) -> std::time::Duration {
        let ticks = self.0.unsigned_abs();
        std::time::Duration::new(
            ticks / TICKS_PER_SECOND.unsigned_abs(),
            u32::try_from(ticks % TICKS_PER_SECOND.unsigned_abs()).unwrap_or(0) * 100,
        )
    }

    /// A span from a duration of the standard library, rounded down to 100 ns and saturating at
    /// "unlimited".
    #[must_use]
    pub fn from_std(duration: std::time::Duration) -> Self {
        Self(i64::try_from(duration.as_nanos() / 100).unwrap_or(i64::MAX))
    }

    /// Reads an ISO 8601 duration of days, hours, minutes and seconds, such as `PT1M` or
    /// `P10675199DT2H48M5.4775807S`. Returns `None` for years, months and weeks, which have no
    /// fixed length.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('P')?;
        let (date, clock) = match rest.split_once('T') {
            Some((date, clock)) if !clock.is_empty() => (date, clock),
            Some(_) => return None,
            None => (rest, ""),
        };
        if date.is_empty() && clock.is_empty() {
            return None;
        }
        let mut ticks = 0i128;
        if !date.is_empty() {
            ticks += parse_decimal_ticks(date.strip_suffix('D')?, 86_400)?;
        }
        let mut rest = clock;
        for (unit, seconds) in [('H', 3_600), ('M', 60), ('S', 1)] {
            if let Some((number, after)) = rest.split_once(unit) {
                ticks = ticks.checked_add(parse_decimal_ticks(number, seconds)?)?;
                rest = after;
            }
        }
        if !rest.is_empty() {
            return None;
        }
        i64::try_from(ticks).ok().map(Self)
    }
}

/// Reads a decimal number of units of `seconds` each, exactly, as ticks.
fn parse_decimal_ticks(text: &str, seconds: i128) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || whole.len() > 19
        || fraction.len() > 18
        || !digits(whole)
        || !digits(fraction)
    {
        return None;
    }
    let unit = seconds * i128::from(TICKS_PER_SECOND);
    let mut ticks = whole.parse::<i128>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let scale = 10i128.pow(u32::try_from(fraction.len()).ok()?);
        ticks += fraction.parse::<i128>().ok()?.checked_mul(unit)? / scale;
    }
    Some(ticks)
}

/// RFC 3339 with as many fraction digits as the instant has: `2026-05-01T12:00:00.5Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self
            .to_date_time()
            .format(&time::format_description::well_known::Rfc3339)
            .map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

/// As `Display` writes it: failed assertions then show instants, not ticks.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// ISO 8601, as management answers carry it (HTP-14): `PT1M`, `P14D`, `PT0S`.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / TICKS_PER_SECOND;
        let fraction = self.0 % TICKS_PER_SECOND;
        let (days, hours, minutes, rest) =
            (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        f.write_str("P")?;
        if days > 0 {
            write!(f, "{days}D")?;
        }
        if hours == 0 && minutes == 0 && rest == 0 && fraction == 0 {
            return f.write_str(if days > 0 { "" } else { "T0S" });
        }
        f.write_str("T")?;
        if hours > 0 {
            write!(f, "{hours}H")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}M")?;
        }
        if fraction > 0 {
            let digits = format!("{fraction:07}");
            return write!(f, "{rest}.{}S", digits.trim_end_matches('0'));
        }
        if rest > 0 {
            write!(f, "{rest}S")?;
        }
        Ok(())
    }
}

/// As `Display` writes it: `PT1M`.
impl fmt::Debug for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
