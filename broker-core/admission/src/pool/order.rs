//! The waiters of a pool and their order: the smallest share first, then the smallest request.
//! `pool.rs` and `share.rs` call it. Bytes are granted only in this order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::free::{Free, Holding};
use crate::pace::GRACE;

/// The shares of a pool, and the waiters.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) free: Arc<Free>,
    /// Whether a waiter for more keeps its bytes until it is granted more.
    pub(super) is_of_parts: bool,
    /// The latest instant that a caller has reported.
    pub(super) now: Instant,
    /// The last number of a share or a turn.
    last: u64,
    pub(super) shares: BTreeMap<u64, ShareState>,
    pub(super) waiting: BTreeMap<Rank, Waiter>,
    /// The turns of the waiters.
    pub(super) turns: BTreeMap<u64, Rank>,
    /// Turns whose shares hold something and are not evicted.
    pub(super) holding: BTreeSet<u64>,
    /// Sum of the bytes that all waiters want.
    pub(super) wanted_bytes: u64,
    /// A share that was seen to hold something and not to wait: while that is so, not all holders wait.
    pub(super) active: Option<u64>,
    /// Shares by the instant from which they are slow.
    pub(super) judged: BTreeSet<(Instant, u64)>,
    /// The latest evictions.
    pub(super) evicted: VecDeque<(Instant, u64)>,
    /// Number of evicted shares that have not released their bytes.
    pub(super) evicted_count: usize,
    /// Tasks to wake after the lock is released.
    pub(super) woken: Vec<Waker>,
    /// Number of shares and turns that were looked at to find a share to evict.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

/// The order of waiters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    pub(super) held_bytes: u64,
    pub(super) wanted_bytes: u64,
    pub(super) turn: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) share: Option<u64>,
    pub(super) since: Instant,
    waker: Waker,
}

/// A share as the order sees it.
#[derive(Debug)]
pub(super) struct ShareState {
    pub(super) held: Arc<Holding>,
    pub(super) slow_from: Option<Instant>,
    /// Whether it is judged from the moment at which it is granted something.
    is_paced: bool,
    pub(super) is_evicted: bool,
    pub(super) waker: Option<Waker>,
    pub(super) turns: Vec<u64>,
}

impl Order {
    pub(super) fn new(free: Arc<Free>, is_of_parts: bool) -> Self {
        Self {
            free,
            is_of_parts,
            now: Instant::now(),
            last: 0,
            shares: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            holding: BTreeSet::new(),
            wanted_bytes: 0,
            active: None,
            judged: BTreeSet::new(),
            evicted: VecDeque::new(),
            evicted_count: 0,
            woken: Vec::new(),
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// Ends a critical section: records whether the pool is short, and returns the tasks to wake.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.free.mark_short(!self.waiting.is_empty() || self.evicted_count > 0);
        std::mem::take(&mut self.woken)
    }

    pub(super) fn enter(&mut self, held: Arc<Holding>, is_paced: bool) -> u64 {
        self.last += 1;
        let state = ShareState {
            held,
            slow_from: None,
            is_paced,
            is_evicted: false,
            waker: None,
            turns: Vec::new(),
        };
        self.shares.insert(self.last, state);
        self.last
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn held_by(&self, share: Option<u64>) -> u64 {
        share.and_then(|key| self.shares.get(&key)).map_or(0, |state| state.held.bytes())
    }

    /// Grants bytes, unless there are too few or a waiter goes first.
    pub(super) fn try_grant(&mut self, share: Option<u64>, bytes: u64) -> bool {
        let rank = Rank { held_bytes: self.held_by(share), wanted_bytes: bytes, turn: u64::MAX };
        let is_first = self.waiting.first_key_value().is_none_or(|(first, _)| rank < *first);
        if !is_first || !self.free.take(bytes) {
            return false;
        }
        self.granted(share, bytes);
        true
    }

    fn granted(&mut self, share: Option<u64>, bytes: u64) {
        let Some(key) = share else { return };
        if let Some(state) = self.shares.get(&key) {
            state.held.add(bytes);
        }
        self.rank_again(key);
    }

    /// Ready when the turn of that number was granted. Takes a turn if there is none.
    pub(super) fn poll(
        &mut self,
        share: Option<u64>,
        bytes: u64,
        number: &mut Option<u64>,
        context: &Context<'_>,
    ) -> Poll<()> {
        let waker = context.waker();
        match *number {
            Some(number) => {
                let waiter = self.turns.get(&number).and_then(|rank| self.waiting.get_mut(rank));
                // It was handed over.
                let Some(waiter) = waiter else { return Poll::Ready(()) };
                if !waiter.waker.will_wake(waker) {
                    waiter.waker = waker.clone();
                }
            }
            None => {
                // First, so that bytes that are released from now on are handed over.
                self.free.mark_short(true);
                if self.try_grant(share, bytes) {
                    return Poll::Ready(());
                }
                *number = Some(self.wait(share, bytes, waker));
            }
        }
        self.evict_slowest();
        Poll::Pending
    }

    /// Number of a new turn.
    pub(super) fn wait(&mut self, share: Option<u64>, bytes: u64, waker: &Waker) -> u64 {
        self.last += 1;
        let turn = self.last;
        let rank = Rank { held_bytes: self.held_by(share), wanted_bytes: bytes, turn };
        self.pass_time(Instant::now());
        let waiter = Waiter { share, since: self.now, waker: waker.clone() };
        self.waiting.insert(rank, waiter);
        self.turns.insert(turn, rank);
        self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
        self.note_holding(turn, rank.held_bytes, share);
        if let Some(key) = share {
            if self.is_of_parts {
                // While it waits for bytes it cannot be faster.
                self.judge(key, None);
            }
            if let Some(state) = self.shares.get_mut(&key) {
                state.turns.push(turn);
            }
        }
        turn
    }

    /// Ends a turn. Releases its bytes if it was granted already.
    pub(super) fn end_wait(&mut self, turn: u64, share: Option<u64>, bytes: u64) {
        if self.end_turn(turn).is_none() {
            return self.release(share, bytes);
        }
        if let Some(state) = share.and_then(|key| self.shares.get_mut(&key)) {
            state.turns.retain(|other| *other != turn);
        }
        // It may have held up others that want less.
        self.hand_over();
    }

    /// Releases bytes, and hands them to the first waiter.
    fn release(&mut self, share: Option<u64>, bytes: u64) {
        if let Some(state) = share.and_then(|key| self.shares.get(&key)) {
            state.held.subtract(bytes);
        }
        self.free.release(bytes);
        self.released(share);
    }

    /// Releases all bytes of a share, and ends its turns.
    pub(super) fn release_all(&mut self, key: u64) {
        let Some(state) = self.shares.get_mut(&key) else { return };
        let turns = std::mem::take(&mut state.turns);
        for turn in turns {
            self.end_turn(turn);
        }
        if let Some(state) = self.shares.get(&key) {
            self.free.release(state.held.take_all());
        }
        self.judge(key, None);
        self.released(Some(key));
    }

    pub(super) fn remove(&mut self, key: u64) {
        self.release_all(key);
        self.shares.remove(&key);
    }

    /// Hands bytes that a share has released to the first waiter.
    pub(super) fn released(&mut self, share: Option<u64>) {
        if let Some(key) = share {
            self.end_eviction(key);
            self.rank_again(key);
        }
        self.hand_over();
    }

    /// Updates the order after the bytes of a share have changed.
    pub(super) fn rank_again(&mut self, key: u64) {
        let Some(state) = self.shares.get(&key) else { return };
        let held_bytes = state.held.bytes();
        let is_holding = held_bytes > 0 && !state.is_evicted;
        for turn in &state.turns {
            let Some(rank) = self.turns.get_mut(turn) else { continue };
            let Some(waiter) = self.waiting.remove(rank) else { continue };
            rank.held_bytes = held_bytes;
            self.waiting.insert(*rank, waiter);
            match is_holding {
                true => self.holding.insert(*turn),
                false => self.holding.remove(turn),
            };
        }
    }

    fn note_holding(&mut self, turn: u64, held_bytes: u64, share: Option<u64>) {
        let state = share.and_then(|key| self.shares.get(&key));
        if held_bytes > 0 && state.is_some_and(|state| !state.is_evicted) {
            self.holding.insert(turn);
        }
    }

    /// Removes the waiter of a turn, if it still waits.
    fn end_turn(&mut self, turn: u64) -> Option<Waiter> {
        let rank = self.turns.remove(&turn)?;
        self.holding.remove(&turn);
        self.wanted_bytes = self.wanted_bytes.saturating_sub(rank.wanted_bytes);
        self.waiting.remove(&rank)
    }

    /// Hands free bytes to the waiters, in their order.
    fn hand_over(&mut self) {
        while let Some((first, _)) = self.waiting.first_key_value() {
            let Rank { wanted_bytes, turn, .. } = *first;
            if !self.free.take(wanted_bytes) {
                return;
            }
            let Some(Waiter { share, waker, .. }) = self.end_turn(turn) else { return };
            self.woken.push(waker);
            let found = share.and_then(|key| Some((key, self.shares.get_mut(&key)?)));
            if let Some((key, state)) = found {
                state.turns.retain(|other| *other != turn);
                if state.is_paced {
                    // It may not be reading at the moment.
                    self.judge(key, Some(self.now + GRACE));
                }
            }
            self.granted(share, wanted_bytes);
        }
    }
}
