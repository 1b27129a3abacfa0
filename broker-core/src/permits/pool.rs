//! Room that many share, and that nobody has because it was there first.
//!
//! ```text
//!   ask ──there is enough, and nobody who has less waits──► granted
//!    │                                                         ▲
//!    ▼                                                         │ handed over in that order
//!   wait: who has least goes first, then who wants least ──────┤  (order.rs)
//!    │ too little is coming back                               │
//!    ▼                                                         │
//!   the slowest is told to yield ──gives back all it has───────┘  (yielding.rs)
//! ```
//!
//! What comes back is handed to who is first among those that wait, whether it is asking just now or not: else those
//! who ask most often would have it. Who is told to yield is slow (`Pace`), or it waits itself for the rest of
//! something and keeps what it has meanwhile ([`Pool::of_parts`]).
//!
//! While nobody waits there is no order to keep, and room is taken and given back without the lock of it.

mod free;
mod order;
mod place;
mod seat;
mod yielding;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use super::pace::GRACE;
use free::Free;
use order::Order;

pub use place::Place;
pub use seat::{RoomAnswer, Seat};

/// The room, and who has it.
#[derive(Debug)]
pub struct Pool {
    bytes_max: u64,
    free: Arc<Free>,
    order: Mutex<Order>,
}

/// Room that is held until this is dropped, by somebody's place or by nobody's.
#[derive(Debug)]
pub struct Room {
    holder: Holder,
    bytes: u64,
}

#[derive(Debug)]
enum Holder {
    Nobody(Arc<Pool>),
    Place(Arc<Place>),
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
        let free = Arc::new(Free::new(bytes_max));
        let order = Mutex::new(Order::new(Arc::clone(&free), is_of_parts));
        Arc::new(Self { bytes_max, free, order })
    }

    /// The whole of it.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What nobody has.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free.bytes()
    }

    /// Whether somebody waits for room.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.free.is_short()
    }

    /// A place for who says itself when it is slow.
    #[must_use]
    pub fn place(self: &Arc<Self>) -> Place {
        Place::enter(self, false)
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
        Seat::new(Place::enter(self, true), grace)
    }

    /// Room at once, for a place or for nobody's; none if there is too little or others are before it.
    #[must_use]
    pub fn try_hold(self: &Arc<Self>, place: Option<&Arc<Place>>, bytes: u64) -> Option<Room> {
        let is_granted = self.try_grant(place.map(Arc::as_ref), bytes);
        is_granted.then(|| Room::new(self, place, bytes))
    }

    /// The same, when its turn comes. Dropping the future gives up the turn.
    pub async fn hold(self: &Arc<Self>, place: Option<&Arc<Place>>, bytes: u64) -> Room {
        let mut turn =
            WaitingTurn { pool: self, place: place.map(Arc::as_ref), bytes, number: None };
        poll_fn(|context| turn.poll(context)).await;
        turn.number = None;
        Room::new(self, place, bytes)
    }

    fn try_grant(&self, place: Option<&Place>, bytes: u64) -> bool {
        if self.free.try_take(bytes) {
            if let Some(place) = place {
                place.held.add(bytes);
            }
            return true;
        }
        // With nobody waiting there is just too little.
        self.free.is_short() && self.in_order(|order| order.try_grant(place.map(Place::key), bytes))
    }

    fn give(&self, place: Option<&Place>, bytes: u64) {
        if let Some(place) = place {
            place.held.subtract(bytes);
        }
        if self.free.give(bytes) {
            self.in_order(|order| order.came_back(place.map(Place::key)));
        }
    }

    fn in_order<T>(&self, work: impl FnOnce(&mut Order) -> T) -> T {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut order);
        let woken = order.end();
        drop(order);
        for waker in woken {
            waker.wake();
        }
        done
    }
}

impl Room {
    fn new(pool: &Arc<Pool>, place: Option<&Arc<Place>>, bytes: u64) -> Self {
        let holder = match place {
            Some(place) => Holder::Place(Arc::clone(place)),
            None => Holder::Nobody(Arc::clone(pool)),
        };
        Self { holder, bytes }
    }

    /// How much it is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is beyond so much.
    pub fn shrink(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        if spare > 0 {
            self.give(spare);
        }
    }

    fn give(&self, bytes: u64) {
        match &self.holder {
            Holder::Nobody(pool) => pool.give(None, bytes),
            Holder::Place(place) => place.give(bytes),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

/// The turn of a future that waits.
struct WaitingTurn<'a> {
    pool: &'a Pool,
    place: Option<&'a Place>,
    bytes: u64,
    number: Option<u64>,
}

impl WaitingTurn<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let Self { pool, place, bytes, number } = self;
        if number.is_none() && pool.try_grant(*place, *bytes) {
            return Poll::Ready(());
        }
        pool.in_order(|order| order.poll(place.map(Place::key), *bytes, number, context))
    }
}

impl Drop for WaitingTurn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let key = self.place.map(Place::key);
        self.pool.in_order(|order| order.give_up(number, key, self.bytes));
    }
}

#[cfg(test)]
mod tests;
