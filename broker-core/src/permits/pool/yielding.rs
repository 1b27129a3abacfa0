//! Who has to yield to those who wait.

use std::task::Context;
use std::time::{Duration, Instant};

use super::order::{Order, Rank};
use crate::permits::pace::GRACE;

/// So long what one who was told to yield holds is counted on; it may not be reading just now.
const TURN: Duration = Duration::from_millis(100);

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
        let mut coming =
            self.free.bytes() + told.map(|occupied| occupied.held.bytes()).sum::<u64>();
        let mut first = self.waiting.first_key_value().map(|(rank, _)| *rank);
        while let Some(rank) = first {
            // Who was told itself waits no longer than until it has seen that.
            let wanted_bytes = if self.is_told(rank) { 0 } else { rank.wanted_bytes };
            while coming < wanted_bytes {
                let slowest = self.slowest();
                let longest = || self.longest_waiting(rank).filter(|_| self.is_of_parts);
                let told = slowest.or_else(longest);
                let Some(key) = told else { return };
                coming += self.tell(key);
            }
            coming -= wanted_bytes;
            let mut after = self.waiting.range(rank..).skip(1);
            first = after.next().map(|(rank, _)| *rank);
        }
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
    fn longest_waiting(&self, rank: Rank) -> Option<u64> {
        let own = self.waiting.get(&rank).and_then(|waiter| waiter.place);
        // In the order in which they began to wait.
        let holders = || {
            self.turns.values().filter_map(|rank| {
                let waiter = self.waiting.get(rank)?;
                let key = waiter.place.filter(|key| Some(*key) != own)?;
                let occupied = self.places.get(&key)?;
                let may_be = occupied.held.bytes() > 0 && !occupied.must_yield;
                may_be.then_some((waiter.since, key, occupied.held.bytes()))
            })
        };
        let (_, first, _) = holders().next()?;
        let enough = rank.held_bytes.saturating_add(rank.wanted_bytes);
        let has_waited = |since| self.now.saturating_duration_since(since) >= GRACE;
        let mut long = holders().take_while(|(since, ..)| has_waited(*since));
        let with_more = long.find(|(.., held_bytes)| *held_bytes > enough).map(|(_, key, _)| key);
        let is_stuck = || {
            self.places
                .values()
                .all(|other| other.held.bytes() == 0 || other.must_yield || !other.turns.is_empty())
        };
        // All places are looked at only where that decides something.
        if with_more != Some(first) && is_stuck() { Some(first) } else { with_more }
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
