//! Who has to yield to those who wait.

use std::task::Context;
use std::time::{Duration, Instant};

use super::order::{Occupied, Order, Rank, Waiter};
use crate::permits::pace::GRACE;

/// So long what one who was told to yield holds is counted on; it may not be reading just now.
pub(super) const TURN: Duration = Duration::from_millis(100);

impl Order {
    /// Whether it is to yield; who is to be woken when it is, is remembered.
    pub(super) fn must_yield(&mut self, key: u64, context: Option<&Context<'_>>) -> bool {
        let Some(occupied) = self.places.get_mut(&key) else { return false };
        if let Some(context) = context
            && occupied.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()))
        {
            occupied.waker = Some(context.waker().clone());
        }
        occupied.must_yield
    }

    pub(super) fn judge(&mut self, key: u64, slow_from: Option<Instant>) {
        let Some(occupied) = self.places.get_mut(&key) else { return };
        // Who was told is not told again.
        if occupied.slow_from == slow_from || occupied.must_yield {
            return;
        }
        if let Some(before) = std::mem::replace(&mut occupied.slow_from, slow_from) {
            self.judged.remove(&(before, key));
        }
        if let Some(slow_from) = slow_from {
            self.judged.insert((slow_from, key));
        }
    }

    /// Has the slowest yield, one after the other, until enough is coming back for those who wait.
    pub(super) fn have_slowest_yield(&mut self) {
        let now = self.now;
        while self.told.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= TURN) {
            self.told.pop_front();
        }
        let told = self.told.iter().filter_map(|(_, key)| self.places.get(key));
        let told = told.filter(|occupied| occupied.must_yield);
        let told = told.inspect(|_| self.step()).map(|occupied| occupied.held.bytes());
        let mut coming = self.free.bytes() + told.sum::<u64>();
        if coming >= self.wanted_bytes {
            // All who wait have enough coming.
            return;
        }
        let mut first = self.waiting.first_key_value().map(|(rank, _)| *rank);
        while let Some(rank) = first {
            self.step();
            // Who was told itself waits no longer than until it has seen that.
            let wanted_bytes = if self.is_told(rank) { 0 } else { rank.wanted_bytes };
            while coming < wanted_bytes {
                let mut told = self.slowest();
                if told.is_none() && self.is_of_parts {
                    told = self.longest_waiting(rank);
                }
                let Some(key) = told else { return };
                coming += self.tell(key);
            }
            coming -= wanted_bytes;
            let mut after = self.waiting.range(rank..).skip(1);
            first = after.next().map(|(rank, _)| *rank);
        }
    }

    /// When somebody will be slow, or will have waited for long, if nothing changes: then who waits looks again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let slow =
            self.judged.range((self.now, u64::MAX)..).next().map(|(slow_from, _)| *slow_from);
        let first = self.holding.first().and_then(|turn| self.waiting.get(self.turns.get(turn)?));
        let long = first.filter(|_| self.is_of_parts).map(|waiter| waiter.since + GRACE);
        slow.into_iter().chain(long).filter(|at| *at > self.now).min()
    }

    fn is_told(&self, rank: Rank) -> bool {
        let place = self.waiting.get(&rank).and_then(|waiter| waiter.place);
        place.and_then(|key| self.places.get(&key)).is_some_and(|occupied| occupied.must_yield)
    }

    /// Who has been slow for longest.
    fn slowest(&self) -> Option<u64> {
        let slow = self.judged.iter().take_while(|(slow_from, _)| *slow_from <= self.now);
        let mut slow = slow.map(|(_, key)| *key);
        slow.find(|key| self.held_by(Some(*key)) > 0)
    }

    /// Who waits longest of those that wait for the rest of something: if it has waited for long and has more than who
    /// is to have room; or at once, if all who hold something wait.
    fn longest_waiting(&mut self, rank: Rank) -> Option<u64> {
        let own = self.waiting.get(&rank).and_then(|waiter| waiter.place);
        let is_other = |waiter: &&Waiter| waiter.place != own;
        // In the order in which they began to wait.
        let first = self.holding.iter().find_map(|turn| {
            self.step();
            let waiter = self.waiting.get(self.turns.get(turn)?)?;
            Some(waiter).filter(is_other)
        })?;
        let (first_since, first) = (first.since, first.place);
        let has_waited = |since| self.now.saturating_duration_since(since) >= GRACE;
        let mut with_more = None;
        if has_waited(first_since) {
            let more_bytes = rank.held_bytes.saturating_add(rank.wanted_bytes).saturating_add(1);
            let more = Rank { held_bytes: more_bytes, wanted_bytes: 0, turn: 0 };
            let with_more_of = self.waiting.range(more..).inspect(|_| self.step());
            let long = with_more_of
                .filter(|(rank, _)| self.holding.contains(&rank.turn))
                .filter(|(_, waiter)| is_other(waiter) && has_waited(waiter.since));
            with_more = long.min_by_key(|(rank, _)| rank.turn).and_then(|(_, other)| other.place);
        }
        // All places are looked at only where that decides something.
        if with_more != first && self.is_stuck() { first } else { with_more }
    }

    /// Whether all who hold something wait, or were told to yield.
    fn is_stuck(&mut self) -> bool {
        let goes_on = |occupied: &Occupied| {
            occupied.held.bytes() > 0 && !occupied.must_yield && occupied.turns.is_empty()
        };
        let known = self.going_on.and_then(|key| self.places.get(&key));
        if known.is_some_and(goes_on) {
            return false;
        }
        // From there on: those before it mostly wait, as it does now.
        let after = self.going_on.map_or(0, |key| key + 1);
        let places = self.places.range(after..).chain(self.places.range(..after));
        let mut places = places.inspect(|_| self.step());
        self.going_on = places.find(|(_, occupied)| goes_on(occupied)).map(|(key, _)| *key);
        self.going_on.is_none()
    }

    /// Counts what is looked at.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, clippy::missing_const_for_fn, reason = "counted in tests")
    )]
    fn step(&self) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
    }

    /// Tells one to yield; how much it holds.
    fn tell(&mut self, key: u64) -> u64 {
        self.judge(key, None);
        let Some(occupied) = self.places.get_mut(&key) else { return 0 };
        if !std::mem::replace(&mut occupied.must_yield, true) {
            self.yielding_count += 1;
        }
        self.woken.extend(occupied.waker.take());
        self.told.push_back((self.now, key));
        for turn in &occupied.turns {
            self.holding.remove(turn);
        }
        occupied.held.bytes()
    }

    /// Who holds nothing any more has done what it was told.
    pub(super) fn has_yielded(&mut self, key: u64) {
        let Some(occupied) = self.places.get_mut(&key) else { return };
        if occupied.must_yield && occupied.held.bytes() == 0 {
            occupied.must_yield = false;
            self.yielding_count -= 1;
        }
    }
}
