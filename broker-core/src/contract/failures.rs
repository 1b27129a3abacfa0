//! Delays answers to failed attempts (SEC-26): longer for an address that fails often, at most one
//! second. Valid tokens are never delayed. For authorizers; each has its own counters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::authorizer::Principal;
use crate::admission::network;
use crate::clock::Clock;
use crate::time::{TimeSpan, Timestamp};

/// Maximum delay.
const WAIT_MAX: TimeSpan = TimeSpan::from_seconds(1);
/// Delay that each failure adds.
const WAIT_EACH: TimeSpan = TimeSpan::from_ms(50);
/// Time after which one failure is forgotten.
const FORGET_EACH: TimeSpan = TimeSpan::from_seconds(1);
/// Maximum number of failures that add to the delay.
const COUNT_MAX: i64 = WAIT_MAX.ticks() / WAIT_EACH.ticks();
/// Maximum number of addresses with a counter of their own; the others share one.
const ADDRESSES_MAX: usize = 4_096;

/// Failed attempts by address.
#[derive(Default)]
pub struct Failures {
    known: Mutex<FailureCounts>,
}

#[derive(Default)]
struct FailureCounts {
    by_address: HashMap<IpAddr, Level>,
    others: Level,
    /// Time of the last search for forgotten entries.
    searched_at: Option<Timestamp>,
    /// Number of searches.
    search_count: u64,
}

/// Number of failures that are not forgotten yet, and the instant of that count.
#[derive(Clone, Copy)]
struct Level {
    count: i64,
    at: Timestamp,
}

impl Default for Level {
    fn default() -> Self {
        Self { count: 0, at: Timestamp::from_ticks(0) }
    }
}

impl Level {
    fn forget(&mut self, now: Timestamp) {
        let steps = (now.ticks() - self.at.ticks()).max(0) / FORGET_EACH.ticks();
        self.count = (self.count - steps).max(0);
        self.at = match self.count {
            0 => now,
            _ => Timestamp::from_ticks(self.at.ticks() + steps * FORGET_EACH.ticks()),
        };
    }

    fn fail(&mut self, now: Timestamp) -> TimeSpan {
        self.forget(now);
        self.count = (self.count + 1).min(COUNT_MAX);
        TimeSpan::from_ticks(self.count * WAIT_EACH.ticks())
    }
}

impl FailureCounts {
    /// Removes addresses without remembered failures. Searches at most once in [`FORGET_EACH`]: an
    /// attacker with many addresses would otherwise slow down all others.
    fn forget(&mut self, now: Timestamp) {
        let is_due = |at: Timestamp| now < at || now >= at.plus(FORGET_EACH);
        if !self.searched_at.is_none_or(is_due) {
            return;
        }
        self.searched_at = Some(now);
        self.search_count += 1;
        self.by_address.retain(|_, level| {
            level.forget(now);
            level.count > 0
        });
    }
}

impl Failures {
    /// Counts a failed attempt of a principal, and waits until its answer may be sent. A principal
    /// of this process has no address and does not wait.
    pub async fn delay_answer(&self, principal: &Principal, clock: &dyn Clock) {
        let Some(peer) = principal.peer else { return };
        let until = self.note(peer.ip(), clock.now());
        clock.sleep_until(until).await;
    }

    /// Counts a failed attempt from an address; returns the instant at which it may be answered.
    fn note(&self, address: IpAddr, now: Timestamp) -> Timestamp {
        let address = network(address);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_address.len() >= ADDRESSES_MAX && !known.by_address.contains_key(&address) {
            known.forget(now);
        }
        let is_full = known.by_address.len() >= ADDRESSES_MAX;
        let wait = match known.by_address.get_mut(&address) {
            Some(level) => level.fail(now),
            None if is_full => known.others.fail(now),
            None => known.by_address.entry(address).or_default().fail(now),
        };
        now.plus(wait)
    }

    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.known.lock().unwrap().by_address.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn ms(failures: &Failures, address: &str, now: Timestamp) -> i64 {
        failures.note(address.parse().unwrap(), now).unix_ms() - now.unix_ms()
    }

    /// SEC-26: an address that fails often waits longer, up to a second, and is forgiven in time.
    #[test]
    fn frequent_failures_wait_up_to_a_second() {
        let failures = Failures::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        assert_eq!(ms(&failures, "10.0.0.1", now), 50);
        assert_eq!(ms(&failures, "10.0.0.1", now), 100);
        assert_eq!(ms(&failures, "10.0.0.2", now), 50, "another address");
        for _ in 0..100 {
            assert!(ms(&failures, "10.0.0.1", now) <= 1_000);
        }
        assert_eq!(ms(&failures, "10.0.0.1", now), 1_000);
        let later = now.plus(TimeSpan::from_seconds(10));
        assert_eq!(ms(&failures, "10.0.0.1", later), 550);
        let later = later.plus(TimeSpan::from_seconds(30));
        assert_eq!(ms(&failures, "::ffff:10.0.0.1", later), 50, "the same one");
    }

    /// SEC-26: the many IPv6 addresses of a subscriber count as one.
    #[test]
    fn addresses_of_a_network_share_a_count() {
        let failures = Failures::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        assert_eq!(ms(&failures, "2001:db8::1", now), 50);
        assert_eq!(ms(&failures, "2001:db8::2", now), 100);
        assert_eq!(ms(&failures, "2001:db8:0:1::2", now), 50);
    }

    /// SEC-26: the number of addresses has a bound; the others share one counter.
    #[test]
    fn remembered_addresses_are_bounded() {
        let failures = Failures::default();
        let now = Timestamp::from_unix_ms(1_000_000);
        for number in 0..5_000_u32 {
            let address = Ipv6Addr::from(u128::from(number) << 64 | 1 << 127);
            failures.note(address.into(), now);
        }
        assert_eq!(failures.remembered(), ADDRESSES_MAX);
        assert_eq!(failures.known.lock().unwrap().search_count, 1, "of 904 that were too many");
        assert_eq!(ms(&failures, "10.0.0.1", now), 1_000, "many of them have failed");
        let later = now.plus(TimeSpan::from_seconds(60));
        assert_eq!(ms(&failures, "10.0.0.1", later), 50);
        assert_eq!(failures.remembered(), 1, "the others are forgotten");
    }
}
