//! Eviction of shares that must release their bytes for waiters. `order.rs` and paced shares call
//! it. The share that has been slow for longest is evicted first, and only while others wait.

use std::task::Context;
use std::time::{Duration, Instant};

use super::order::{Order, Rank, ShareState, Waiter};
use crate::pace::GRACE;

/// The bytes of an evicted share count as coming for this time; its user may not be reading at the moment.
pub(super) const EVICTION_TIME: Duration = Duration::from_millis(100);

impl Order {
    /// Whether a share is evicted. Remembers the task to wake when it is.
    pub(super) fn is_evicted(&mut self, key: u64, context: Option<&Context<'_>>) -> bool {
        let Some(state) = self.shares.get_mut(&key) else { return false };
        if let Some(context) = context
            && state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()))
        {
            state.waker = Some(context.waker().clone());
        }
        state.is_evicted
    }

    pub(super) fn judge(&mut self, key: u64, slow_from: Option<Instant>) {
        let Some(state) = self.shares.get_mut(&key) else { return };
        // An evicted share is not evicted again.
        if state.slow_from == slow_from || state.is_evicted {
            return;
        }
        if let Some(before) = std::mem::replace(&mut state.slow_from, slow_from) {
            self.judged.remove(&(before, key));
        }
        if let Some(slow_from) = slow_from {
            self.judged.insert((slow_from, key));
        }
    }

    /// Evicts the slowest shares, one after the other, until enough bytes are coming back for the waiters.
    pub(super) fn evict_slowest(&mut self) {
        let now = self.now;
        let is_over = |at: Instant| now.saturating_duration_since(at) >= EVICTION_TIME;
        while self.evicted.front().is_some_and(|(at, _)| is_over(*at)) {
            self.evicted.pop_front();
        }
        let evicted = self.evicted.iter().filter_map(|(_, key)| self.shares.get(key));
        let evicted = evicted.filter(|state| state.is_evicted);
        let evicted = evicted.inspect(|_| self.step()).map(|state| state.held.bytes());
        let mut coming = self.free.bytes() + evicted.sum::<u64>();
        if coming >= self.wanted_bytes {
            // There is enough for all waiters.
            return;
        }
        let mut first = self.waiting.first_key_value().map(|(rank, _)| *rank);
        while let Some(rank) = first {
            self.step();
            // An evicted waiter waits only until it has noticed that.
            let wanted_bytes = if self.is_waiter_evicted(rank) { 0 } else { rank.wanted_bytes };
            while coming < wanted_bytes {
                let mut next = self.slowest();
                if next.is_none() && self.is_of_parts {
                    next = self.longest_waiting(rank);
                }
                let Some(key) = next else { return };
                coming += self.evict(key);
            }
            coming -= wanted_bytes;
            let mut after = self.waiting.range(rank..).skip(1);
            first = after.next().map(|(rank, _)| *rank);
        }
    }

    /// The instant at which a share becomes slow, or has waited for the grace, if nothing changes: a waiter looks again
    /// then.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let slow =
            self.judged.range((self.now, u64::MAX)..).next().map(|(slow_from, _)| *slow_from);
        let first = self.holding.first().and_then(|turn| self.waiting.get(self.turns.get(turn)?));
        let long = first.filter(|_| self.is_of_parts).map(|waiter| waiter.since + GRACE);
        slow.into_iter().chain(long).filter(|at| *at > self.now).min()
    }

    fn is_waiter_evicted(&self, rank: Rank) -> bool {
        let share = self.waiting.get(&rank).and_then(|waiter| waiter.share);
        share.and_then(|key| self.shares.get(&key)).is_some_and(|state| state.is_evicted)
    }

    /// The share that has been slow for longest.
    fn slowest(&self) -> Option<u64> {
        let slow = self.judged.iter().take_while(|(slow_from, _)| *slow_from <= self.now);
        let mut slow = slow.map(|(_, key)| *key);
        slow.find(|key| self.held_by(Some(*key)) > 0)
    }

    /// The share that has waited longest for the rest of something: if it has waited for the grace and has more than
    /// the waiter that is to have the bytes; or at once, if all holders wait.
    fn longest_waiting(&mut self, rank: Rank) -> Option<u64> {
        let own = self.waiting.get(&rank).and_then(|waiter| waiter.share);
        let is_other = |waiter: &&Waiter| waiter.share != own;
        // In the order in which they began to wait.
        let first = self.holding.iter().find_map(|turn| {
            self.step();
            let waiter = self.waiting.get(self.turns.get(turn)?)?;
            Some(waiter).filter(is_other)
        })?;
        let (first_since, first) = (first.since, first.share);
        let has_waited = |since| self.now.saturating_duration_since(since) >= GRACE;
        let mut with_more = None;
        if has_waited(first_since) {
            let more_bytes = rank.held_bytes.saturating_add(rank.wanted_bytes).saturating_add(1);
            let more = Rank { held_bytes: more_bytes, wanted_bytes: 0, turn: 0 };
            let with_more_of = self.waiting.range(more..).inspect(|_| self.step());
            let long = with_more_of
                .filter(|(rank, _)| self.holding.contains(&rank.turn))
                .filter(|(_, waiter)| is_other(waiter) && has_waited(waiter.since));
            with_more = long.min_by_key(|(rank, _)| rank.turn).and_then(|(_, other)| other.share);
        }
        // All shares are looked at only where that decides something.
        if with_more != first && self.is_stuck() { first } else { with_more }
    }

    /// Whether all holders wait, or are evicted.
    fn is_stuck(&mut self) -> bool {
        let is_active = |state: &ShareState| {
            state.held.bytes() > 0 && !state.is_evicted && state.turns.is_empty()
        };
        let known = self.active.and_then(|key| self.shares.get(&key));
        if known.is_some_and(is_active) {
            return false;
        }
        // From the known one on: most shares in front wait, as the known one does now.
        let after = self.active.map_or(0, |key| key + 1);
        let shares = self.shares.range(after..).chain(self.shares.range(..after));
        let mut shares = shares.inspect(|_| self.step());
        self.active = shares.find(|(_, state)| is_active(state)).map(|(key, _)| *key);
        self.active.is_none()
    }

    /// Counts a share or turn that is looked at.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, clippy::missing_const_for_fn, reason = "counted in tests")
    )]
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }

    /// Evicts a share. Returns the bytes that it holds.
    fn evict(&mut self, key: u64) -> u64 {
        self.judge(key, None);
        let Some(state) = self.shares.get_mut(&key) else { return 0 };
        if !std::mem::replace(&mut state.is_evicted, true) {
            self.evicted_count += 1;
        }
        self.woken.extend(state.waker.take());
        self.evicted.push_back((self.now, key));
        for turn in &state.turns {
            self.holding.remove(turn);
        }
        state.held.bytes()
    }

    /// Ends the eviction of a share that holds nothing any more.
    pub(super) fn end_eviction(&mut self, key: u64) {
        let Some(state) = self.shares.get_mut(&key) else { return };
        if state.is_evicted && state.held.bytes() == 0 {
            state.is_evicted = false;
            self.evicted_count -= 1;
        }
    }
}
