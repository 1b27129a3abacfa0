//! Pauses between attempts to connect. They double up to a bound, and each has a random length, so
//! that many clients do not come back at the same time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The pauses after one loss.
pub(super) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(super) const fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, max }
    }

    /// Returns the next pause: a random length between half of its nominal length and the whole.
    pub(super) fn pause(&mut self) -> Duration {
        let length = self.next.min(self.max);
        self.next = length.saturating_mul(2);
        let half = length / 2;
        half + half.mul_f64(f64::from(random_bits()) / f64::from(u32::MAX))
    }
}

/// Returns bits that differ between clients: each hasher of the standard library has random keys.
pub(super) fn random_bits() -> u32 {
    let bits = RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_vary() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.pause()).collect();
        for (pause, length) in pauses.iter().zip([100, 200, 400, 800, 1_000, 1_000]) {
            assert!(*pause <= Duration::from_millis(length), "{pauses:?}");
            assert!(*pause >= Duration::from_millis(length / 2), "{pauses:?}");
        }
        assert!(pauses.iter().skip(4).any(|pause| *pause != pauses[4]), "{pauses:?}");
    }
}
