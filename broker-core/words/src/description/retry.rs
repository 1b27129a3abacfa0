//! Redelivery after failures: the retry policy of a queue or subscription, and whether a session
//! waits for its Delayed messages (RTY-16 to RTY-23). The queue's machine computes delays with it.

use crate::error::Rejection;
use crate::limits::Limits;
use crate::time::TimeSpan;

/// Number of parts of a jitter, an integer so that descriptions can be compared.
const JITTER_PARTS: u32 = 1_000_000;

/// Growth of the delay with the failed deliveries of a message (RTY-18).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RetryKind {
    /// The same delay each time.
    Fixed,
    /// The delay times the number of failures.
    Linear,
    /// The delay doubles with each failure.
    Exponential,
}

/// Delays of the redelivery of a message after failed deliveries (RTY-16).
///
/// ```
/// # use peeklock_words as peeklock;
/// use std::time::Duration;
///
/// use peeklock::description::{Jitter, RetryKind, RetryPolicy};
/// use peeklock::time::TimeSpan;
///
/// // After 1, 2, 4, 8 seconds and so on, finally every 5 minutes.
/// let policy = RetryPolicy::exponential(Duration::from_secs(1))
///     .with_delay_max(TimeSpan::from_minutes(5));
/// assert_eq!((policy.kind, policy.delay), (RetryKind::Exponential, TimeSpan::from_seconds(1)));
/// assert_eq!(policy.delay_max, Some(TimeSpan::from_minutes(5)));
/// assert_eq!(policy.jitter, Jitter::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetryPolicy {
    /// Growth of the delay.
    pub kind: RetryKind,
    /// The delay after the first failure.
    pub delay: TimeSpan,
    /// Maximum delay; `None` is the limit `retry_delay_max`.
    pub delay_max: Option<TimeSpan>,
    /// Maximum part by which a delay is shortened at random.
    pub jitter: Jitter,
}

/// A part of a delay, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Jitter(u32);

/// Whether later messages of a session wait for a Delayed one (RTY-22, RTY-23).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SessionRetryOrder {
    /// They wait, so that the order is kept.
    #[default]
    Hold,
    /// They overtake it.
    Pass,
}

impl RetryKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Linear, Self::Exponential];

    /// The name in all transports and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl SessionRetryOrder {
    /// All orders.
    pub const ALL: [Self; 2] = [Self::Hold, Self::Pass];

    /// The name in all transports and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Pass => "pass",
        }
    }

    /// The order of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self(0);

    /// A part from 0 to 1, rounded to millionths.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for any other number.
    pub fn of(part: f64) -> Result<Self, Rejection> {
        if !(0.0..=1.0).contains(&part) {
            return Err(Rejection::out_of_range(format!(
                "the jitter of a retry policy is {part}; it must be 0 to 1"
            )));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to a million"
        )]
        Ok(Self((part * f64::from(JITTER_PARTS)).round() as u32))
    }

    /// The part, from 0 to 1.
    #[must_use]
    pub fn part(self) -> f64 {
        f64::from(self.0) / f64::from(JITTER_PARTS)
    }

    /// The part in millionths, the stored form.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// A jitter of `millionths`; `None` if that is more than 1.
    #[must_use]
    pub const fn of_millionths(millionths: u32) -> Option<Self> {
        if millionths <= JITTER_PARTS { Some(Self(millionths)) } else { None }
    }
}

impl RetryPolicy {
    /// The same delay each time, from 1 ms to the limit `retry_delay_max` (by default 7 days),
    /// without jitter (RTY-18). A value out of range is refused when an entity gets the policy
    /// (RTY-16).
    #[must_use]
    pub fn fixed(delay: impl Into<TimeSpan>) -> Self {
        Self::of(RetryKind::Fixed, delay.into())
    }

    /// The delay times 1, 2, 3 and so on, up to the limit. Otherwise as [`RetryPolicy::fixed`].
    #[must_use]
    pub fn linear(delay: impl Into<TimeSpan>) -> Self {
        Self::of(RetryKind::Linear, delay.into())
    }

    /// The delay times 1, 2, 4 and so on, up to the limit. Otherwise as [`RetryPolicy::fixed`].
    #[must_use]
    pub fn exponential(delay: impl Into<TimeSpan>) -> Self {
        Self::of(RetryKind::Exponential, delay.into())
    }

    const fn of(kind: RetryKind, delay: TimeSpan) -> Self {
        Self { kind, delay, delay_max: None, jitter: Jitter::NONE }
    }

    /// Sets the maximum delay, which must be at least the first delay.
    #[must_use]
    pub fn with_delay_max(mut self, span: impl Into<TimeSpan>) -> Self {
        self.delay_max = Some(span.into());
        self
    }

    /// Shortens delays at random.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The delay after the `failures`-th failed delivery; `random` is 64 random bits (RTY-18).
    #[must_use]
    pub fn delay_after(&self, failures: u32, random: u64, limits: &Limits) -> TimeSpan {
        let delay = i128::from(self.delay.ticks());
        let nominal = match self.kind {
            RetryKind::Fixed => delay,
            RetryKind::Linear => delay * i128::from(failures),
            // A delay has at most 2^43 ticks, so the doubling is bounded by the maximum delay.
            RetryKind::Exponential => delay << failures.saturating_sub(1).min(60),
        };
        let most = self.delay_max.unwrap_or(limits.retry_delay_max).min(limits.retry_delay_max);
        let nominal = nominal.min(i128::from(most.ticks()));
        let widest = nominal * i128::from(self.jitter.0) / i128::from(JITTER_PARTS);
        // From 0 to `widest`; each tick has the same probability, within 2^-64.
        let shorter = ((widest + 1) * i128::from(random)) >> 64;
        TimeSpan::from_ticks(i64::try_from(nominal - shorter).unwrap_or(i64::MAX))
    }

    /// Refuses values outside their ranges (RTY-16); `whose` names the entity.
    pub(super) fn validate(&self, whose: &str, limits: &Limits) -> Result<(), Rejection> {
        let most = limits.retry_delay_max;
        let ranges = [
            ("delay", Some(self.delay), TimeSpan::from_ms(1)),
            ("delayMax", self.delay_max, self.delay),
        ];
        for (name, value, least) in ranges {
            if let Some(value) = value
                && !(least..=most).contains(&value)
            {
                return Err(Rejection::out_of_range(format!(
                    "{name} of the retry policy of {whose} is {value}; it must be {least} to {most}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn policy(kind: RetryKind) -> RetryPolicy {
        RetryPolicy {
            kind,
            delay: TimeSpan::from_seconds(10),
            delay_max: Some(TimeSpan::from_seconds(60)),
            jitter: Jitter::NONE,
        }
    }

    /// RTY-18: each kind by the number of failures, up to the maximum delay, without overflow for
    /// any number.
    #[test]
    fn a_delay_grows_as_its_kind_says() {
        let limits = Limits::default();
        for (kind, expected) in [
            (RetryKind::Fixed, [10, 10, 10, 10, 10]),
            (RetryKind::Linear, [10, 20, 30, 40, 60]),
            (RetryKind::Exponential, [10, 20, 40, 60, 60]),
        ] {
            let delays = [1, 2, 3, 4, u32::MAX]
                .map(|failures| policy(kind).delay_after(failures, u64::MAX, &limits));
            assert_eq!(delays, expected.map(TimeSpan::from_seconds), "{kind:?}");
        }
        let open = RetryPolicy { delay_max: None, ..policy(RetryKind::Exponential) };
        assert_eq!(open.delay_after(40, 0, &limits), limits.retry_delay_max);
        // A lowered limit applies to older policies.
        let most = TimeSpan::from_seconds(15);
        let lowered = Limits { retry_delay_max: most, ..Limits::default() };
        assert_eq!(policy(RetryKind::Linear).delay_after(9, 0, &lowered), most);
    }

    /// RTY-18: jitter j makes it uniform from 1-j to 1 times the delay, both ends included.
    #[test]
    fn jitter_shortens_a_delay_by_its_part_at_most() {
        let limits = Limits::default();
        let policy = RetryPolicy { jitter: Jitter::of(0.2).unwrap(), ..policy(RetryKind::Fixed) };
        let after = |random| policy.delay_after(1, random, &limits);
        assert_eq!(after(0), TimeSpan::from_seconds(10));
        assert_eq!(after(u64::MAX), TimeSpan::from_seconds(8));
        assert_eq!(after(1 << 63), TimeSpan::from_seconds(9));
        let whole = RetryPolicy { jitter: Jitter::of(1.0).unwrap(), ..policy };
        assert_eq!(whole.delay_after(1, u64::MAX, &limits), TimeSpan::ZERO);
    }

    /// RTY-16: values outside their range are refused, and the error names the range; the bounds
    /// themselves are allowed.
    #[test]
    fn values_out_of_range_are_refused() {
        for part in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
            assert!(Jitter::of(part).unwrap_err().detail().ends_with("must be 0 to 1"));
        }
        assert_eq!(Jitter::of(0.25).unwrap().part(), 0.25);
        let limits = Limits::default();
        let most = limits.retry_delay_max;
        let with = |delay, delay_max| RetryPolicy { delay, delay_max, ..policy(RetryKind::Fixed) };
        let least = TimeSpan::from_ms(1);
        for fine in [with(least, None), with(most, Some(most)), with(least, Some(least))] {
            fine.validate("queue q", &limits).unwrap();
        }
        let beyond = TimeSpan::from_ticks(most.ticks() + 1);
        for wrong in [
            with(TimeSpan::ZERO, None),
            with(TimeSpan::from_ticks(9_999), None),
            with(beyond, None),
            with(least, Some(beyond)),
            with(most, Some(least)),
        ] {
            let refused = wrong.validate("queue q", &limits).unwrap_err();
            assert_eq!(refused.condition(), crate::condition::Condition::ArgumentOutOfRange);
            assert!(refused.detail().ends_with("to P7D"), "{}", refused.detail());
        }
    }
}
