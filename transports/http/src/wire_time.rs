//! Instants and durations as HTTP clients of the field write them (HTP-04).

use peeklock_core::time::{TimeSpan, Timestamp};

/// Reads an RFC 1123 date or an ISO 8601 instant.
pub(crate) fn parse_instant(text: &str) -> Option<Timestamp> {
    Timestamp::parse_rfc1123(text).or_else(|| Timestamp::parse(text))
}

/// Reads a duration as .NET writes it: `[d.]hh:mm:ss[.fffffff]`.
pub(crate) fn parse_time_span(text: &str) -> Option<TimeSpan> {
    let mut parts = text.split(':');
    let (first, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (days, hours) = first.split_once('.').unwrap_or(("0", first));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if fraction.len() > 7 {
        return None;
    }
    let ticks_of_fraction = number(fraction, i64::MAX)?
        .checked_mul(10_i64.pow(7_u32.saturating_sub(u32::try_from(fraction.len()).ok()?)))?;
    let minutes_in_all = number(days, 10_675_199)?
        .checked_mul(24)?
        .checked_add(number(hours, 23)?)?
        .checked_mul(60)?
        .checked_add(number(minutes, 59)?)?;
    let seconds_in_all = minutes_in_all.checked_mul(60)?.checked_add(number(seconds, 59)?)?;
    let ticks = seconds_in_all.checked_mul(10_000_000)?.checked_add(ticks_of_fraction)?;
    Some(TimeSpan::from_ticks(ticks))
}

fn number(digits: &str, most: i64) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number <= most)
}
