//! Paces: how fast something passes, judged by the last moments only. Data that was fast and has stopped is slow.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Something may stand still for this time before it is slow. Longer than 200 ms, after which a lost packet is sent
/// again at the earliest; shorter than 250 ms, in which others should get the bytes of a slow share (decision 28).
pub const GRACE: Duration = Duration::from_millis(225);
/// Least bytes per second by default: less is slow, at any number of held bytes.
const PACE_BYTES: u64 = 64 << 10;
/// A holder is slow if it passes less than its bytes in this number of seconds, so the bytes of slow holders are bounded
/// by the bytes that they send or read.
const PASSES_SECONDS: u64 = 8;
/// Data of at most this size takes all its bytes at once, so that it waits once and holds nothing meanwhile: the size of a
/// message in the standard tier of Azure Service Bus.
const AT_ONCE_BYTES: u64 = 256 << 10;
/// Larger data, or data of unknown size, takes this number of bytes at a time: announced bytes cost nothing.
const STEP_BYTES: u64 = 64 << 10;

/// The pace of something that passes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time for which it may stand still.
    grace: Duration,
    /// Least bytes per second.
    least_bytes: u64,
    slow_from: Instant,
    passed_bytes: u64,
}

impl Pace {
    /// The pace of something that begins or goes on at that instant, after `passed_bytes` have passed.
    #[must_use]
    pub fn begin(at: Instant, passed_bytes: u64, grace: Duration) -> Self {
        Self { grace, least_bytes: PACE_BYTES, slow_from: at + grace, passed_bytes }
    }

    /// The same pace with another least number of bytes per second.
    #[must_use]
    pub const fn at_least(self, bytes: u64) -> Self {
        Self { least_bytes: bytes, ..self }
    }

    /// Records that `passed_bytes` have passed in all, of a holder of `held_bytes`.
    pub fn pass(&mut self, passed_bytes: u64, held_bytes: u64, now: Instant) {
        let before = std::mem::replace(&mut self.passed_bytes, passed_bytes);
        // A lower number than before begins a new count.
        let more = passed_bytes.saturating_sub(before);
        if more == 0 {
            return;
        }
        let pace = self.least_bytes.max(held_bytes / PASSES_SECONDS).max(1);
        // Neither is haste saved for a rest, nor is a rest held against later haste.
        let earned =
            Duration::from_micros(more.saturating_mul(1_000_000) / pace).min(2 * self.grace);
        let longest_ago = now.checked_sub(self.grace).unwrap_or(now);
        self.slow_from = (self.slow_from.max(longest_ago) + earned).min(now + self.grace);
    }

    /// Adds a time in which nothing could pass, through no fault of its own.
    pub fn put_off(&mut self, by: Duration) {
        self.slow_from += by;
    }

    /// The instant from which it is slow, if nothing more passes.
    #[must_use]
    pub const fn slow_from(&self) -> Instant {
        self.slow_from
    }

    /// Whether it is slow at that instant.
    #[must_use]
    pub fn is_slow(&self, now: Instant) -> bool {
        self.slow_from <= now
    }

    /// Ready when it is slow.
    pub fn poll_slow(&self, timer: &mut Timer, context: &mut Context<'_>) -> Poll<()> {
        timer.poll(self.slow_from, context)
    }
}

/// Number of bytes to take next for data that arrives, of which `held_bytes` are taken and which has `whole_bytes` in all,
/// if that is known.
#[must_use]
pub const fn arriving_step(whole_bytes: Option<u64>, held_bytes: u64) -> u64 {
    match whole_bytes {
        Some(whole) if whole <= AT_ONCE_BYTES && whole > held_bytes => whole - held_bytes,
        _ => STEP_BYTES,
    }
}

/// A timer that is set again only where it would be late: most instants are put off long before they come.
#[derive(Debug, Default)]
pub struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready from that instant on.
    pub fn poll(&mut self, at: Instant, context: &mut Context<'_>) -> Poll<()> {
        let wanted = tokio::time::Instant::from_std(at);
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted)));
        if sleep.deadline() > wanted {
            sleep.as_mut().reset(wanted);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if tokio::time::Instant::now() >= wanted {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(wanted);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Something that was fast and stops is slow as soon as something that never was fast.
    #[test]
    fn haste_is_not_saved() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        assert_eq!(pace.slow_from(), start + GRACE);
        pace.pass(4_096 * KIB, 4_096 * KIB, start + ms(100));
        assert_eq!(pace.slow_from(), start + ms(100) + GRACE);
    }

    /// A wait for bytes of the pool does not make a pace slower.
    #[test]
    fn a_wait_for_others_is_put_off() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        pace.pass(16 * KIB, 16 * KIB, start + ms(10));
        let slow_from = pace.slow_from();
        pace.put_off(ms(5_000));
        assert_eq!(pace.slow_from(), slow_from + ms(5_000));
        // It goes on from there: the wait neither counts as haste nor has to be made up for.
        pace.pass(17 * KIB, 16 * KIB, start + ms(5_020));
        assert!(pace.slow_from() > start + ms(5_020));
        assert!(pace.slow_from() <= start + ms(5_020) + GRACE);
    }

    /// Another least number of bytes per second is another pace.
    #[test]
    fn a_pace_has_the_least_bytes_that_it_is_set_to() {
        let start = Instant::now();
        let mut paces = [KIB, 4 * KIB].map(|bytes| Pace::begin(start, 0, GRACE).at_least(bytes));
        for step in 1..100 {
            for pace in &mut paces {
                pace.pass(step * 100, 0, start + ms(50 * step));
            }
        }
        let [slow, fast] = paces.map(|pace| pace.is_slow(start + ms(50 * 99)));
        assert!(!slow && fast);
    }

    /// A few bytes do not put it off; something that passes enough is never slow, and after a rest soon not any more.
    #[test]
    fn dripping_bytes_are_slow() {
        let start = Instant::now();
        let mut drips = Pace::begin(start, 0, GRACE);
        let mut steady = Pace::begin(start, 0, GRACE);
        for step in 1..100 {
            let now = start + ms(50 * step);
            drips.pass(step, 64 * KIB, now);
            steady.pass(step * 4 * KIB, 64 * KIB, now);
            assert!(steady.slow_from() > now, "{step}");
        }
        assert!(drips.slow_from() < start + ms(50 * 99));
        let later = start + ms(60_000);
        drips.pass(100 * KIB, 64 * KIB, later);
        assert!(drips.slow_from() > later);
    }

    /// A larger holder has to pass its bytes faster.
    #[test]
    fn a_large_holder_must_be_faster() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        for step in 1..100 {
            pace.pass(step * 4 * KIB, 8 << 20, start + ms(50 * step));
        }
        assert!(pace.slow_from() < start + ms(50 * 99));
    }

    /// Small data of known size takes all its bytes at once, everything else one step after the other.
    #[test]
    fn small_data_takes_its_bytes_at_once() {
        let step = |whole, held| arriving_step(whole, held);
        assert_eq!(step(Some(100_000), 16 << 10), 100_000 - (16 << 10));
        assert_eq!(step(Some(AT_ONCE_BYTES), 0), AT_ONCE_BYTES);
        assert_eq!(step(Some(AT_ONCE_BYTES + 1), 0), STEP_BYTES);
        assert_eq!(step(None, 0), STEP_BYTES);
        // It goes on beyond the announced size, as the next frame of a message may.
        assert_eq!(step(Some(100_000), 100_000), STEP_BYTES);
    }

    /// A timer is ready at the last instant that it was set to, whether that is later or earlier than before.
    #[tokio::test(start_paused = true)]
    async fn a_timer_is_ready_at_the_last_instant() {
        let start = tokio::time::Instant::now();
        let mut timer = Timer::default();
        for (first, last) in [(50, 400), (900, 200)] {
            let begun = tokio::time::Instant::now();
            let at = |after: u64| begun.into_std() + ms(after);
            let mut is_first = true;
            poll_fn(|context| {
                if std::mem::take(&mut is_first) {
                    assert!(timer.poll(at(first), context).is_pending());
                }
                timer.poll(at(last), context)
            })
            .await;
            assert!(begun.elapsed() >= ms(last) && begun.elapsed() < ms(last + 20));
        }
        assert!(start.elapsed() >= ms(600));
    }
}
