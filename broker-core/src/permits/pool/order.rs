//! Who waits, and who is before whom.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::free::{Free, Holding};
use crate::permits::pace::GRACE;

/// The places at a pool, and those who wait.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) free: Arc<Free>,
    /// Whether who waits for more keeps what it has until it gets it.
    pub(super) is_of_parts: bool,
    /// The latest instant that somebody has told.
    pub(super) now: Instant,
    /// The last number that a place or a turn was given.
    last: u64,
    pub(super) places: BTreeMap<u64, Occupied>,
    pub(super) waiting: BTreeMap<Rank, Waiter>,
    /// The turns of those that wait.
    pub(super) turns: BTreeMap<u64, Rank>,
    /// Those of them whose places hold something and were not told to yield.
    pub(super) holding: BTreeSet<u64>,
    /// What all that wait want together.
    pub(super) wanted_bytes: u64,
    /// Who was found last to hold something and not to wait: while that is so, not all wait.
    pub(super) going_on: Option<u64>,
    /// By the instant from which on they are slow.
    pub(super) judged: BTreeSet<(Instant, u64)>,
    /// Who was told to yield lately, and when.
    pub(super) told: VecDeque<(Instant, u64)>,
    /// How many were told and have not done it.
    pub(super) yielding_count: usize,
    /// To be woken when nothing is locked any more.
    pub(super) woken: Vec<Waker>,
    /// How many places and turns were looked at to find who yields.
    #[cfg(test)]
    pub(super) steps: std::cell::Cell<u64>,
}

/// Who is before whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    pub(super) held_bytes: u64,
    pub(super) wanted_bytes: u64,
    pub(super) turn: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) place: Option<u64>,
    pub(super) since: Instant,
    waker: Waker,
}

/// A place that is in use.
#[derive(Debug)]
pub(super) struct Occupied {
    pub(super) held: Arc<Holding>,
    pub(super) slow_from: Option<Instant>,
    /// Whether it is judged from when it is granted something.
    is_paced: bool,
    pub(super) must_yield: bool,
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
            places: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            holding: BTreeSet::new(),
            wanted_bytes: 0,
            going_on: None,
            judged: BTreeSet::new(),
            told: VecDeque::new(),
            yielding_count: 0,
            woken: Vec::new(),
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }

    /// Ends a look at it: says whether room is short, and who is to be woken.
    pub(super) fn end(&mut self) -> Vec<Waker> {
        self.free.say_short(!self.waiting.is_empty() || self.yielding_count > 0);
        std::mem::take(&mut self.woken)
    }

    pub(super) fn enter(&mut self, held: Arc<Holding>, is_paced: bool) -> u64 {
        self.last += 1;
        let occupied = Occupied {
            held,
            slow_from: None,
            is_paced,
            must_yield: false,
            waker: None,
            turns: Vec::new(),
        };
        self.places.insert(self.last, occupied);
        self.last
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn held_by(&self, place: Option<u64>) -> u64 {
        place.and_then(|key| self.places.get(&key)).map_or(0, |occupied| occupied.held.bytes())
    }

    /// Room at once, unless somebody waits who is before it.
    pub(super) fn try_grant(&mut self, place: Option<u64>, bytes: u64) -> bool {
        let rank = Rank { held_bytes: self.held_by(place), wanted_bytes: bytes, turn: u64::MAX };
        let is_first = self.waiting.first_key_value().is_none_or(|(first, _)| rank < *first);
        if !is_first || !self.free.take(bytes) {
            return false;
        }
        self.granted(place, bytes);
        true
    }

    fn granted(&mut self, place: Option<u64>, bytes: u64) {
        let Some(key) = place else { return };
        if let Some(occupied) = self.places.get(&key) {
            occupied.held.add(bytes);
        }
        self.rank_anew(key);
    }

    /// Ready when the turn of that number has come; it is taken first if there is none.
    pub(super) fn poll(
        &mut self,
        place: Option<u64>,
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
                // First, so that what comes back from now on is handed over.
                self.free.say_short(true);
                if self.try_grant(place, bytes) {
                    return Poll::Ready(());
                }
                *number = Some(self.wait(place, bytes, waker));
            }
        }
        self.have_slowest_yield();
        Poll::Pending
    }

    /// The number of a new turn.
    pub(super) fn wait(&mut self, place: Option<u64>, bytes: u64, waker: &Waker) -> u64 {
        self.last += 1;
        let turn = self.last;
        let rank = Rank { held_bytes: self.held_by(place), wanted_bytes: bytes, turn };
        self.pass_time(Instant::now());
        let waiter = Waiter { place, since: self.now, waker: waker.clone() };
        self.waiting.insert(rank, waiter);
        self.turns.insert(turn, rank);
        self.wanted_bytes = self.wanted_bytes.saturating_add(bytes);
        self.note_holding(turn, rank.held_bytes, place);
        if let Some(key) = place {
            if self.is_of_parts {
                // Who waits for room cannot be faster.
                self.judge(key, None);
            }
            if let Some(occupied) = self.places.get_mut(&key) {
                occupied.turns.push(turn);
            }
        }
        turn
    }

    /// Ends a turn; if it has come already, what came of it goes back.
    pub(super) fn give_up(&mut self, turn: u64, place: Option<u64>, bytes: u64) {
        if self.end_turn(turn).is_none() {
            return self.give(place, bytes);
        }
        if let Some(occupied) = place.and_then(|key| self.places.get_mut(&key)) {
            occupied.turns.retain(|other| *other != turn);
        }
        // It may have held up others who want less.
        self.hand_over();
    }

    /// Takes room back, and hands it to who is first.
    fn give(&mut self, place: Option<u64>, bytes: u64) {
        if let Some(occupied) = place.and_then(|key| self.places.get(&key)) {
            occupied.held.subtract(bytes);
        }
        self.free.give(bytes);
        self.came_back(place);
    }

    /// Takes back all that is held at a place, and the turns of who waits there.
    pub(super) fn give_all(&mut self, key: u64) {
        let Some(occupied) = self.places.get_mut(&key) else { return };
        let turns = std::mem::take(&mut occupied.turns);
        for turn in turns {
            self.end_turn(turn);
        }
        if let Some(occupied) = self.places.get(&key) {
            self.free.give(occupied.held.take_all());
        }
        self.judge(key, None);
        self.came_back(Some(key));
    }

    pub(super) fn remove(&mut self, key: u64) {
        self.give_all(key);
        self.places.remove(&key);
    }

    /// Some of what was held at that place is free: hands it to who is first.
    pub(super) fn came_back(&mut self, place: Option<u64>) {
        if let Some(key) = place {
            self.has_yielded(key);
            self.rank_anew(key);
        }
        self.hand_over();
    }

    /// What is held at a place has changed, and so has the order.
    pub(super) fn rank_anew(&mut self, key: u64) {
        let Some(occupied) = self.places.get(&key) else { return };
        let held_bytes = occupied.held.bytes();
        let is_holding = held_bytes > 0 && !occupied.must_yield;
        for turn in &occupied.turns {
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

    fn note_holding(&mut self, turn: u64, held_bytes: u64, place: Option<u64>) {
        let occupied = place.and_then(|key| self.places.get(&key));
        if held_bytes > 0 && occupied.is_some_and(|occupied| !occupied.must_yield) {
            self.holding.insert(turn);
        }
    }

    /// Forgets who waits in that turn, if somebody does.
    fn end_turn(&mut self, turn: u64) -> Option<Waiter> {
        let rank = self.turns.remove(&turn)?;
        self.holding.remove(&turn);
        self.wanted_bytes = self.wanted_bytes.saturating_sub(rank.wanted_bytes);
        self.waiting.remove(&rank)
    }

    /// Hands what is free to those who wait, in their order.
    fn hand_over(&mut self) {
        while let Some((first, _)) = self.waiting.first_key_value() {
            let Rank { wanted_bytes, turn, .. } = *first;
            if !self.free.take(wanted_bytes) {
                return;
            }
            let Some(Waiter { place, waker, .. }) = self.end_turn(turn) else { return };
            self.woken.push(waker);
            let occupied = place.and_then(|key| Some((key, self.places.get_mut(&key)?)));
            if let Some((key, occupied)) = occupied {
                occupied.turns.retain(|other| *other != turn);
                if occupied.is_paced {
                    // It may not be reading just now.
                    self.judge(key, Some(self.now + GRACE));
                }
            }
            self.granted(place, wanted_bytes);
        }
    }
}
