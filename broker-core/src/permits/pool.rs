//! Room that many share, and that nobody has because it was there first.
//!
//! ```text
//!   ask ──there is enough, and nobody who has less waits──► granted
//!    │                                                         ▲
//!    ▼                                                         │ handed over in that order
//!   wait: who has least goes first, then who wants least ──────┤
//!    │ too little is coming back                               │
//!    ▼                                                         │
//!   the slowest is told to yield ──gives back all it has───────┘
//! ```
//!
//! What comes back is handed to who is first among those that wait, whether it is asking just now or not: else those
//! who ask most often would have it. Who is told to yield is slow (`Pace`), or it waits itself for the rest of
//! something and keeps what it has meanwhile ([`Pool::of_parts`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::pace::{GRACE, Pace};

/// When who waits asks again: others may have become slow.
const AGAIN: Duration = Duration::from_millis(100);
/// So long what one who was told to yield holds is counted on; it may not be reading just now.
const TURN: Duration = Duration::from_millis(100);

/// The room, and who has it.
#[derive(Debug)]
pub struct Pool {
    bytes_max: u64,
    /// Whether who waits for more keeps what it has until it gets it.
    is_of_parts: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The latest instant that somebody has told.
    now: Instant,
    free_bytes: u64,
    /// The last number that a place or a turn was given.
    last: u64,
    places: BTreeMap<u64, Occupied>,
    waiting: BTreeMap<Rank, Waiter>,
    /// The turns of those that wait.
    turns: BTreeMap<u64, Rank>,
    /// By the instant from which on they are slow.
    judged: BTreeSet<(Instant, u64)>,
    /// Who was told to yield lately, and when.
    told: VecDeque<(Instant, u64)>,
    /// To be woken when nothing is locked any more.
    woken: Vec<Waker>,
}

/// Who is before whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    held_bytes: u64,
    wanted_bytes: u64,
    turn: u64,
}

#[derive(Debug)]
struct Waiter {
    place: Option<u64>,
    since: Instant,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Occupied {
    held_bytes: u64,
    slow_from: Option<Instant>,
    /// Whether it is judged from when it is granted something.
    is_paced: bool,
    must_yield: bool,
    waker: Option<Waker>,
    turns: Vec<u64>,
}

/// The place of one connection at a pool, until this is dropped.
#[derive(Debug)]
pub struct Place {
    pool: Arc<Pool>,
    key: u64,
}

/// Room that is held until this is dropped, by somebody's place or by nobody's.
#[derive(Debug)]
pub struct Held {
    pool: Arc<Pool>,
    place: Option<Arc<Place>>,
    bytes: u64,
}

/// The place of something that passes: judged by its pace from when it has room.
#[derive(Debug)]
pub struct Seat {
    place: Place,
    held_bytes: u64,
    turn: Option<u64>,
    pace: Option<Pace>,
    grace: Duration,
}

/// What who asks for room is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It has it.
    Granted,
    /// It waits, and asks again when it is woken, at this instant at the latest.
    Later(Instant),
    /// It is slow and others wait: what it holds is to be given up.
    Yield,
}

impl Pool {
    /// So much room for things that are whole: who waits for more lets go of what it has all the same.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Self::with(bytes_max, false)
    }

    /// So much room for things that arrive in parts: who waits for the next part keeps those that are here, and all
    /// who wait could do so for good.
    #[must_use]
    pub fn of_parts(bytes_max: u64) -> Arc<Self> {
        Self::with(bytes_max, true)
    }

    fn with(bytes_max: u64, is_of_parts: bool) -> Arc<Self> {
        let state = State {
            now: Instant::now(),
            free_bytes: bytes_max,
            last: 0,
            places: BTreeMap::new(),
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            judged: BTreeSet::new(),
            told: VecDeque::new(),
            woken: Vec::new(),
        };
        Arc::new(Self { bytes_max, is_of_parts, state: Mutex::new(state) })
    }

    /// The whole of it.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What nobody has.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.with_state(|state| state.free_bytes)
    }

    /// A place for who says itself when it is slow.
    #[must_use]
    pub fn place(self: &Arc<Self>) -> Place {
        self.enter(false)
    }

    /// A place for something that passes.
    #[must_use]
    pub fn seat(self: &Arc<Self>) -> Seat {
        self.patient_seat(GRACE)
    }

    /// The same for something that may stand still for so long before it is slow: what is lost with it weighs more than
    /// the wait of others.
    #[must_use]
    pub fn patient_seat(self: &Arc<Self>, grace: Duration) -> Seat {
        Seat { place: self.enter(true), held_bytes: 0, turn: None, pace: None, grace }
    }

    fn enter(self: &Arc<Self>, is_paced: bool) -> Place {
        let key = self.with_state(|state| {
            state.last += 1;
            state.places.insert(state.last, Occupied { is_paced, ..Occupied::default() });
            state.last
        });
        Place { pool: Arc::clone(self), key }
    }

    /// Room at once, for a place or for nobody's; none if there is too little or others are before it.
    #[must_use]
    pub fn try_hold(self: &Arc<Self>, place: Option<&Arc<Place>>, bytes: u64) -> Option<Held> {
        let key = place.map(|place| place.key);
        let is_granted = self.with_state(|state| state.try_grant(key, bytes));
        let place = place.map(Arc::clone);
        is_granted.then(|| Held { pool: Arc::clone(self), place, bytes })
    }

    /// The same, when its turn comes. Dropping the future gives up the turn.
    pub async fn hold(self: &Arc<Self>, place: Option<&Arc<Place>>, bytes: u64) -> Held {
        let key = place.map(|place| place.key);
        let mut turn = Turn { pool: self, place: key, bytes, number: None };
        poll_fn(|context| turn.poll(context)).await;
        turn.number = None;
        Held { pool: Arc::clone(self), place: place.map(Arc::clone), bytes }
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut state);
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        for waker in woken {
            waker.wake();
        }
        done
    }
}

/// The turn of a future that waits.
struct Turn<'a> {
    pool: &'a Pool,
    place: Option<u64>,
    bytes: u64,
    number: Option<u64>,
}

impl Turn<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let Self { pool, place, bytes, number } = self;
        pool.with_state(|state| state.poll(pool.is_of_parts, *place, *bytes, number, context))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        self.pool.with_state(|state| state.give_up(number, self.place, self.bytes));
    }
}

impl Held {
    /// How much it is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let key = self.place.as_ref().map(|place| place.key);
        self.pool.with_state(|state| state.give(key, self.bytes));
    }
}

impl Place {
    /// The whole of its pool.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.pool.bytes_max
    }

    /// Takes room if there is some at once.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        self.pool.with_state(|state| state.try_grant(Some(self.key), bytes))
    }

    /// Waits for room in a turn that is kept there from call to call, or given up by [`Self::leave`].
    pub fn poll_take(&self, bytes: u64, turn: &mut Option<u64>, context: &Context<'_>) -> Poll<()> {
        let pool = &self.pool;
        let taken = pool
            .with_state(|state| state.poll(pool.is_of_parts, Some(self.key), bytes, turn, context));
        if taken.is_ready() {
            *turn = None;
        }
        taken
    }

    /// Gives up a turn for so much, which may have come meanwhile.
    pub fn leave(&self, turn: u64, bytes: u64) {
        self.pool.with_state(|state| state.give_up(turn, Some(self.key), bytes));
    }

    /// Takes over what was held by nobody's place.
    pub fn adopt(&self, mut held: Held) {
        let bytes = std::mem::take(&mut held.bytes);
        self.pool.with_state(|state| {
            if let Some(own) = state.places.get_mut(&self.key) {
                own.held_bytes += bytes;
            }
            state.rank_anew(self.key);
        });
    }

    /// Gives some of it back.
    pub fn give(&self, bytes: u64) {
        self.pool.with_state(|state| state.give(Some(self.key), bytes));
    }

    /// From this instant on it is slow; never, if it is not for its own sake that nothing passes.
    pub fn judge(&self, slow_from: Option<Instant>) {
        self.pool.with_state(|state| state.judge(self.key, slow_from));
    }

    /// Whether it has to give up what it holds; looks who is slow by now, and wakes when that changes.
    #[must_use]
    pub fn must_yield(&self, now: Instant, context: &Context<'_>) -> bool {
        let pool = &self.pool;
        pool.with_state(|state| {
            state.now = state.now.max(now);
            state.have_slowest_yield(pool.is_of_parts);
            state.must_yield(self.key, Some(context))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.with_state(|state| state.remove(self.key));
    }
}

impl Seat {
    /// What it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Asks for more room, for something of which so much is here.
    pub fn take(
        &mut self,
        bytes: u64,
        passed_bytes: u64,
        now: Instant,
        context: &Context<'_>,
    ) -> Room {
        let Self { place: Place { pool, key }, held_bytes, turn, pace, grace } = self;
        pool.with_state(|state| {
            state.now = state.now.max(now);
            if state.must_yield(*key, None) {
                return Room::Yield;
            }
            if state.poll(pool.is_of_parts, Some(*key), bytes, turn, context).is_ready() {
                *turn = None;
                *held_bytes = state.held_by(Some(*key));
                let begun = pace.insert(Pace::begin(now, passed_bytes, *grace));
                state.judge(*key, Some(begun.slow_from()));
                return Room::Granted;
            }
            match state.must_yield(*key, Some(context)) {
                true => Room::Yield,
                false => Room::Later(now + AGAIN),
            }
        })
    }

    /// Whether it has to yield, now that so much has passed; who waits for bytes asks whenever it is woken.
    pub fn must_yield(&mut self, passed_bytes: u64, now: Instant, context: &Context<'_>) -> bool {
        if self.held_bytes == 0 {
            return false;
        }
        let pace = self.pace.get_or_insert_with(|| Pace::begin(now, passed_bytes, self.grace));
        pace.pass(passed_bytes, self.held_bytes, now);
        let slow_from = Some(pace.slow_from());
        let key = self.place.key;
        self.place.pool.with_state(|state| {
            // Who waits for room cannot be faster.
            if self.turn.is_none() {
                state.judge(key, slow_from);
            }
            state.must_yield(key, Some(context))
        })
    }

    /// The same, asked by who does not wait.
    #[must_use]
    pub fn is_told_to_yield(&self) -> bool {
        let key = self.place.key;
        self.place.pool.with_state(|state| state.must_yield(key, None))
    }

    /// Nothing passes for now, and not for the peer's want of haste: it is not judged until it
    /// [begins](Self::begin), or it is asked whether it has to yield.
    pub fn rest(&mut self) {
        if self.pace.take().is_some() {
            self.place.judge(None);
        }
    }

    /// What it has the room for begins to pass at that instant.
    pub fn begin(&mut self, at: Instant) {
        let pace = self.pace.insert(Pace::begin(at, 0, self.grace));
        self.place.judge(Some(pace.slow_from()));
    }

    /// Gives back what is beyond so much.
    pub fn shrink(&mut self, bytes: u64) {
        if bytes == 0 {
            return self.give_back();
        }
        let spare = self.held_bytes.saturating_sub(bytes);
        self.held_bytes -= spare;
        if spare > 0 {
            self.place.give(spare);
        }
    }

    /// Gives everything back, and its turn if it waits: all has passed, or never will.
    pub fn give_back(&mut self) {
        if self.held_bytes == 0 && self.turn.is_none() {
            return;
        }
        (self.held_bytes, self.turn, self.pace) = (0, None, None);
        self.place.pool.with_state(|state| state.give_all(self.place.key));
    }
}

impl State {
    fn held_by(&self, place: Option<u64>) -> u64 {
        place.and_then(|key| self.places.get(&key)).map_or(0, |occupied| occupied.held_bytes)
    }

    /// Whether it is to yield; who is to be woken when it is, is remembered.
    fn must_yield(&mut self, key: u64, context: Option<&Context<'_>>) -> bool {
        let Some(occupied) = self.places.get_mut(&key) else { return false };
        if let Some(context) = context
            && occupied.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker()))
        {
            occupied.waker = Some(context.waker().clone());
        }
        occupied.must_yield
    }

    /// Room at once, unless somebody waits who is before it.
    fn try_grant(&mut self, place: Option<u64>, bytes: u64) -> bool {
        let rank = Rank { held_bytes: self.held_by(place), wanted_bytes: bytes, turn: u64::MAX };
        let is_first = self.waiting.first_key_value().is_none_or(|(first, _)| rank < *first);
        if self.free_bytes < bytes || !is_first {
            return false;
        }
        self.grant(place, bytes);
        true
    }

    fn grant(&mut self, place: Option<u64>, bytes: u64) {
        self.free_bytes -= bytes;
        let Some(key) = place else { return };
        if let Some(occupied) = self.places.get_mut(&key) {
            occupied.held_bytes += bytes;
        }
        self.rank_anew(key);
    }

    /// Ready when the turn of that number has come; it is taken first if there is none.
    fn poll(
        &mut self,
        is_of_parts: bool,
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
            None if self.try_grant(place, bytes) => return Poll::Ready(()),
            None => {
                self.last += 1;
                let turn = self.last;
                *number = Some(turn);
                let rank = Rank { held_bytes: self.held_by(place), wanted_bytes: bytes, turn };
                self.now = self.now.max(Instant::now());
                let waiter = Waiter { place, since: self.now, waker: waker.clone() };
                self.waiting.insert(rank, waiter);
                self.turns.insert(turn, rank);
                if let Some(key) = place {
                    if is_of_parts {
                        // Who waits for room cannot be faster.
                        self.judge(key, None);
                    }
                    if let Some(occupied) = self.places.get_mut(&key) {
                        occupied.turns.push(turn);
                    }
                }
            }
        }
        self.have_slowest_yield(is_of_parts);
        Poll::Pending
    }

    /// Ends a turn; if it has come already, what came of it goes back.
    fn give_up(&mut self, turn: u64, place: Option<u64>, bytes: u64) {
        let Some(rank) = self.turns.remove(&turn) else { return self.give(place, bytes) };
        self.waiting.remove(&rank);
        if let Some(occupied) = place.and_then(|key| self.places.get_mut(&key)) {
            occupied.turns.retain(|other| *other != turn);
        }
        // It may have held up others who want less.
        self.hand_over();
    }

    /// Takes room back, and hands it to who is first.
    fn give(&mut self, place: Option<u64>, bytes: u64) {
        self.free_bytes += bytes;
        if let Some(key) = place {
            if let Some(occupied) = self.places.get_mut(&key) {
                occupied.held_bytes = occupied.held_bytes.saturating_sub(bytes);
                occupied.must_yield &= occupied.held_bytes > 0;
            }
            self.rank_anew(key);
        }
        self.hand_over();
    }

    /// Takes back all that is held at a place, and the turns of who waits there.
    fn give_all(&mut self, key: u64) {
        let Some(occupied) = self.places.get_mut(&key) else { return };
        let bytes = occupied.held_bytes;
        for turn in std::mem::take(&mut occupied.turns) {
            if let Some(rank) = self.turns.remove(&turn) {
                self.waiting.remove(&rank);
            }
        }
        self.judge(key, None);
        self.give(Some(key), bytes);
    }

    fn remove(&mut self, key: u64) {
        self.give_all(key);
        self.places.remove(&key);
    }

    fn judge(&mut self, key: u64, slow_from: Option<Instant>) {
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

    /// What is held at a place has changed, and so has the order.
    fn rank_anew(&mut self, key: u64) {
        let Some(occupied) = self.places.get(&key) else { return };
        for turn in &occupied.turns {
            let Some(rank) = self.turns.get_mut(turn) else { continue };
            let Some(waiter) = self.waiting.remove(rank) else { continue };
            rank.held_bytes = occupied.held_bytes;
            self.waiting.insert(*rank, waiter);
        }
    }

    /// Hands what is free to those who wait, in their order.
    fn hand_over(&mut self) {
        while let Some(first) = self.waiting.first_entry() {
            let Rank { wanted_bytes, turn, .. } = *first.key();
            if wanted_bytes > self.free_bytes {
                return;
            }
            let Waiter { place, waker, .. } = first.remove();
            self.turns.remove(&turn);
            self.woken.push(waker);
            let occupied = place.and_then(|key| Some((key, self.places.get_mut(&key)?)));
            if let Some((key, occupied)) = occupied {
                occupied.turns.retain(|other| *other != turn);
                if occupied.is_paced {
                    // It may not be reading just now.
                    self.judge(key, Some(self.now + GRACE));
                }
            }
            self.grant(place, wanted_bytes);
        }
    }

    /// Has the slowest yield, one after the other, until enough is coming back for those who wait.
    fn have_slowest_yield(&mut self, is_of_parts: bool) {
        let now = self.now;
        while self.told.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= TURN) {
            self.told.pop_front();
        }
        let told = self.told.iter().filter_map(|(_, key)| self.places.get(key));
        let told = told.filter(|occupied| occupied.must_yield);
        let mut coming = self.free_bytes + told.map(|occupied| occupied.held_bytes).sum::<u64>();
        let mut first = self.waiting.first_key_value().map(|(rank, _)| *rank);
        while let Some(rank) = first {
            // Who was told itself waits no longer than until it has seen that.
            let wanted_bytes = if self.is_told(rank) { 0 } else { rank.wanted_bytes };
            while coming < wanted_bytes {
                let slowest = self.slowest();
                let longest = || self.longest_waiting(rank).filter(|_| is_of_parts);
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
                let may_be = occupied.held_bytes > 0 && !occupied.must_yield;
                may_be.then_some((waiter.since, key, occupied.held_bytes))
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
                .all(|other| other.held_bytes == 0 || other.must_yield || !other.turns.is_empty())
        };
        // All places are looked at only where that decides something.
        if with_more != Some(first) && is_stuck() { Some(first) } else { with_more }
    }

    /// Tells one to yield; how much it holds.
    fn tell(&mut self, key: u64) -> u64 {
        self.judge(key, None);
        let Some(occupied) = self.places.get_mut(&key) else { return 0 };
        occupied.must_yield = true;
        self.woken.extend(occupied.waker.take());
        self.told.push_back((self.now, key));
        occupied.held_bytes
    }
}

#[cfg(test)]
mod tests;
