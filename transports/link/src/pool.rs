//! Room that connections share for what has not arrived whole. Who is slow yields to who waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// So long nobody is judged by the pace at which something arrives.
const GRACE: Duration = Duration::from_secs(1);
/// So long who waits is not judged again.
const AGAIN: Duration = Duration::from_millis(250);
/// So long one who was told to yield has, before another is told.
const TURN: Duration = Duration::from_millis(100);
/// Who sends less than so many bytes a second yields, if others wait.
const PACE_BYTES: u64 = 64 << 10;

/// The room, and who has it.
pub struct Pool {
    bytes_max: u64,
    state: Mutex<State>,
}

struct State {
    free_bytes: u64,
    next: u64,
    seats: HashMap<u64, Seated>,
    /// Who waits, in order.
    queue: VecDeque<u64>,
    /// When somebody was told to yield.
    told: Option<Instant>,
}

#[derive(Default)]
struct Seated {
    held_bytes: u64,
    /// Since when something arrives, and how much of it was here when room was last asked for.
    began: Option<Instant>,
    arrived_bytes: u64,
    must_yield: bool,
    waker: Option<Waker>,
}

/// The place of one connection at a pool.
pub struct Seat {
    pool: Arc<Pool>,
    key: u64,
    held_bytes: u64,
}

/// What who asks for room is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It has it.
    Granted,
    /// It waits, and asks again when it is woken, at this instant at the latest.
    Later(Instant),
    /// It is slow and others wait: what has arrived is to be given up.
    Yield,
}

impl Pool {
    /// Room for so much.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            state: Mutex::new(State {
                free_bytes: bytes_max,
                next: 0,
                seats: HashMap::new(),
                queue: VecDeque::new(),
                told: None,
            }),
        })
    }

    /// A place at it.
    #[must_use]
    pub fn seat(self: &Arc<Self>) -> Seat {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        drop(state);
        Seat { pool: Arc::clone(self), key, held_bytes: 0 }
    }

    /// The whole of it.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What nobody has.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.lock().free_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// What it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Asks for more room, for something that began to arrive at that instant and of which so much is here.
    pub fn take(
        &mut self,
        bytes: u64,
        began: Instant,
        arrived_bytes: u64,
        now: Instant,
        context: &Context<'_>,
    ) -> Room {
        let mut state = self.pool.lock();
        let seated = state.seats.entry(self.key).or_default();
        seated.began = Some(began);
        seated.arrived_bytes = arrived_bytes;
        if seated.must_yield {
            return Room::Yield;
        }
        // Whoever asks: one who waits may not be reading now, and must hold up nobody.
        if state.free_bytes >= bytes {
            state.queue.retain(|key| *key != self.key);
            state.free_bytes -= bytes;
            if let Some(seated) = state.seats.get_mut(&self.key) {
                seated.held_bytes += bytes;
                seated.waker = None;
            }
            self.held_bytes += bytes;
            return Room::Granted;
        }
        if !state.queue.contains(&self.key) {
            state.queue.push_back(self.key);
        }
        if let Some(seated) = state.seats.get_mut(&self.key) {
            seated.waker = Some(context.waker().clone());
        }
        state.have_slowest_yield(self.key, now);
        match state.seats.get(&self.key) {
            Some(seated) if seated.must_yield => Room::Yield,
            _ => Room::Later(now + AGAIN),
        }
    }

    /// Whether it has to yield; who waits for bytes asks whenever it is woken.
    pub fn must_yield(&self, arrived_bytes: u64, context: &Context<'_>) -> bool {
        if self.held_bytes == 0 {
            return false;
        }
        let mut state = self.pool.lock();
        let Some(seated) = state.seats.get_mut(&self.key) else { return false };
        seated.arrived_bytes = arrived_bytes;
        if seated.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            seated.waker = Some(context.waker().clone());
        }
        seated.must_yield
    }

    /// The same, asked by who does not wait.
    #[must_use]
    pub fn is_told_to_yield(&self) -> bool {
        self.held_bytes > 0
            && self.pool.lock().seats.get(&self.key).is_some_and(|seated| seated.must_yield)
    }

    /// Nothing passes for now, and not for the peer's want of haste: it is not judged until it
    /// [begins](Self::begin).
    pub fn rest(&self) {
        self.judge_from(None);
    }

    /// What it has the room for begins to pass at that instant.
    pub fn begin(&self, at: Instant) {
        self.judge_from(Some(at));
    }

    fn judge_from(&self, began: Option<Instant>) {
        if let Some(seated) = self.pool.lock().seats.get_mut(&self.key) {
            seated.began = began;
            seated.arrived_bytes = 0;
        }
    }

    /// Gives back what is beyond so much.
    pub fn shrink(&mut self, bytes: u64) {
        let spare = self.held_bytes.saturating_sub(bytes);
        if spare == self.held_bytes {
            return self.give_back();
        }
        let mut state = self.pool.lock();
        let Some(seated) = state.seats.get_mut(&self.key) else { return };
        seated.held_bytes -= spare;
        self.held_bytes -= spare;
        if spare > 0 {
            state.free_bytes += spare;
            state.wake_waiting();
        }
    }

    /// Gives everything back: it has arrived, or never will.
    pub fn give_back(&mut self) {
        let mut state = self.pool.lock();
        let Some(seated) = state.seats.remove(&self.key) else { return };
        state.free_bytes += seated.held_bytes;
        state.queue.retain(|key| *key != self.key);
        self.held_bytes = 0;
        state.wake_waiting();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl State {
    /// Has that one of the slow yield that is slowest; one after the other, since who is told may not be
    /// reading just now.
    fn have_slowest_yield(&mut self, asking: u64, now: Instant) {
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < TURN) {
            return;
        }
        let slowest = self
            .seats
            .iter()
            // Who waits for room itself cannot be faster.
            .filter(|(key, seated)| {
                seated.held_bytes > 0
                    && !seated.must_yield
                    && **key != asking
                    && !self.queue.contains(key)
            })
            .filter_map(|(key, seated)| Some((seated.pace(now)?, *key)))
            .min();
        // If all of them wait, nothing would ever go on: then the last that came yields.
        let stuck = || {
            let all_wait =
                |(key, seated): (&u64, &Seated)| seated.held_bytes == 0 || self.queue.contains(key);
            let last = self
                .queue
                .iter()
                .rev()
                .find(|key| self.seats.get(key).is_some_and(|seated| seated.held_bytes > 0));
            self.seats.iter().all(all_wait).then_some(last).flatten().copied()
        };
        let Some(key) = slowest.map(|(_, key)| key).or_else(stuck) else { return };
        if let Some(seated) = self.seats.get_mut(&key) {
            seated.must_yield = true;
            self.told = Some(now);
            if let Some(waker) = seated.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake_waiting(&mut self) {
        for key in &self.queue {
            let seated = self.seats.get_mut(key);
            if let Some(waker) = seated.and_then(|seated| seated.waker.take()) {
                waker.wake();
            }
        }
    }
}

impl Seated {
    /// Bytes a second, of one that is too slow.
    fn pace(&self, now: Instant) -> Option<u64> {
        let time = now.saturating_duration_since(self.began?);
        if time < GRACE {
            return None;
        }
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let pace = self.arrived_bytes.saturating_mul(1_000) / ms;
        (pace < PACE_BYTES).then_some(pace)
    }
}
