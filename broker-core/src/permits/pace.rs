//! How fast something passes, judged by the last moments alone: who was fast once and has stopped is slow.

use std::time::{Duration, Instant};

/// So long something may stand still before it is slow. Longer than 200 ms, after which a packet that was lost is sent again
/// at the earliest; shorter than 250 ms, in which others should have the room of who is slow (decision 28).
pub const GRACE: Duration = Duration::from_millis(225);
/// Who passes less than so many bytes a second is slow, whatever it holds.
const PACE_BYTES: u64 = 64 << 10;
/// And who holds more than it passes in so many seconds: so what the slow hold is bounded by what they send or read.
const PASSES_SECONDS: u64 = 8;

/// The pace of one thing that passes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So long it may stand still.
    grace: Duration,
    /// So much passes in a second at least, or it is slow.
    least_bytes: u64,
    slow_from: Instant,
    passed_bytes: u64,
}

impl Pace {
    /// Of something that begins or goes on at that instant, of which so much has passed.
    #[must_use]
    pub fn begin(at: Instant, passed_bytes: u64, grace: Duration) -> Self {
        Self { grace, least_bytes: PACE_BYTES, slow_from: at + grace, passed_bytes }
    }

    /// Judged by another least number of bytes a second.
    #[must_use]
    pub const fn at_least(self, bytes: u64) -> Self {
        Self { least_bytes: bytes, ..self }
    }

    /// So much has passed by now in all, of one who holds so much.
    pub fn pass(&mut self, passed_bytes: u64, held_bytes: u64, now: Instant) {
        let before = std::mem::replace(&mut self.passed_bytes, passed_bytes);
        // Less than before: it is counted anew.
        let more = passed_bytes.saturating_sub(before);
        if more == 0 {
            return;
        }
        let pace = self.least_bytes.max(held_bytes / PASSES_SECONDS).max(1);
        // Neither is haste saved up for a rest, nor is a rest held against who hurries now.
        let earned =
            Duration::from_micros(more.saturating_mul(1_000_000) / pace).min(2 * self.grace);
        let longest_ago = now.checked_sub(self.grace).unwrap_or(now);
        self.slow_from = (self.slow_from.max(longest_ago) + earned).min(now + self.grace);
    }

    /// For so long nothing could pass, through no fault of its own.
    pub fn put_off(&mut self, by: Duration) {
        self.slow_from += by;
    }

    /// From when on it is slow, if nothing more passes.
    #[must_use]
    pub const fn slow_from(&self) -> Instant {
        self.slow_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Who was fast and stops is slow as soon as who never was.
    #[test]
    fn haste_is_not_saved_up() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        assert_eq!(pace.slow_from(), start + GRACE);
        pace.pass(4_096 * KIB, 4_096 * KIB, start + ms(100));
        assert_eq!(pace.slow_from(), start + ms(100) + GRACE);
    }

    /// Who could not pass, for want of room, is not slower for it.
    #[test]
    fn a_wait_that_is_not_its_own_is_put_off() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        pace.pass(16 * KIB, 16 * KIB, start + ms(10));
        let slow_from = pace.slow_from();
        pace.put_off(ms(5_000));
        assert_eq!(pace.slow_from(), slow_from + ms(5_000));
        // It goes on from there: neither is the wait haste, nor has it to be made up for.
        pace.pass(17 * KIB, 16 * KIB, start + ms(5_020));
        assert!(pace.slow_from() > start + ms(5_020));
        assert!(pace.slow_from() <= start + ms(5_020) + GRACE);
    }

    /// Another least number of bytes a second is another pace.
    #[test]
    fn a_pace_is_what_it_is_set_to() {
        let start = Instant::now();
        let mut paces = [KIB, 4 * KIB].map(|bytes| Pace::begin(start, 0, GRACE).at_least(bytes));
        for step in 1..100 {
            for pace in &mut paces {
                pace.pass(step * 100, 0, start + ms(50 * step));
            }
        }
        let [slow, fast] = paces.map(|pace| pace.slow_from() < start + ms(50 * 99));
        assert!(!slow && fast);
    }

    /// Bytes that drip do not put it off; who passes enough is never slow, and after a rest soon not any more.
    #[test]
    fn who_drips_is_slow() {
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

    /// The more is held, the faster it has to pass.
    #[test]
    fn who_holds_much_passes_much() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 0, GRACE);
        for step in 1..100 {
            pace.pass(step * 4 * KIB, 8 << 20, start + ms(50 * step));
        }
        assert!(pace.slow_from() < start + ms(50 * 99));
    }
}
