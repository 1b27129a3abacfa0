//! The place of something that passes.

use std::task::Context;
use std::time::{Duration, Instant};

use super::Place;
use crate::permits::pace::Pace;

/// When who waits asks again at the latest: who was told to yield may not have done it.
const AGAIN: Duration = Duration::from_millis(100);
/// And at the earliest: who is always about to be slow, and never is, has nobody ask all the time.
const SOON: Duration = Duration::from_millis(10);

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
pub enum RoomAnswer {
    /// It has it.
    Granted,
    /// It waits, and asks again when it is woken, at this instant at the latest.
    Later(Instant),
    /// It is slow and others wait: what it holds is to be given up.
    Yield,
}

impl Seat {
    pub(super) const fn new(place: Place, grace: Duration) -> Self {
        Self { place, held_bytes: 0, turn: None, pace: None, grace }
    }

    /// What it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The whole of its pool.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.place.bytes_max()
    }

    /// Asks for more room, for something of which so much is here.
    pub fn take(
        &mut self,
        bytes: u64,
        passed_bytes: u64,
        now: Instant,
        context: &Context<'_>,
    ) -> RoomAnswer {
        let Self { place, held_bytes, turn, pace, grace } = self;
        let key = place.key();
        place.pool.in_order(|order| {
            order.pass_time(now);
            if order.must_yield(key, None) {
                return RoomAnswer::Yield;
            }
            if order.poll(Some(key), bytes, turn, context).is_ready() {
                *turn = None;
                *held_bytes = place.held.bytes();
                let begun = pace.insert(Pace::begin(now, passed_bytes, *grace));
                order.judge(key, Some(begun.slow_from()));
                return RoomAnswer::Granted;
            }
            match order.must_yield(key, Some(context)) {
                true => RoomAnswer::Yield,
                false => {
                    let look = order.next_look().unwrap_or(now + AGAIN);
                    RoomAnswer::Later(look.clamp(now + SOON, now + AGAIN))
                }
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
        let key = self.place.key();
        self.place.pool.in_order(|order| {
            // Who waits for room cannot be faster.
            if self.turn.is_none() {
                order.judge(key, slow_from);
            }
            order.must_yield(key, Some(context))
        })
    }

    /// The same, asked by who does not wait.
    #[must_use]
    pub fn is_told_to_yield(&self) -> bool {
        let key = self.place.key();
        self.place.pool.in_order(|order| order.must_yield(key, None))
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
        self.place.pool.in_order(|order| order.give_all(self.place.key()));
    }
}
