//! What one connection holds, in bytes: against its own bound and against room that it shares with others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use peeklock_core::permits::{Budget, Permit, Place, Pool, Room};

/// What every connection may hold without room that is shared, so that those who take what they
/// are sent go on while others who do not have used it up.
pub const FREE_BYTES: u64 = 64 << 10;
/// What is larger than this is in memory one at a time, of all accounts that share the room for that.
pub const LARGE_BYTES: u64 = 16 << 20;
/// How much of the shared room is taken at once, and kept before some goes back.
const STEP_BYTES: u64 = 64 << 10;

/// The account of one connection. What is here is counted whether there was room or not; room is asked for
/// before anything is taken in.
pub struct Account {
    place: Place,
    bytes_max: u64,
    /// By how much what is asked for is more at most than what will be held of it.
    told_factor: u64,
    held_bytes: u64,
    /// What may be held: the free part, and what was paid for.
    paid_bytes: u64,
    /// How much of the shared room that is: less, where all of it is less.
    taken_bytes: u64,
    /// Waits for so much.
    waiting: Option<Waiting>,
    large: Option<Large>,
}

/// A turn at the shared room.
struct Waiting {
    turn: Option<u64>,
    missing_bytes: u64,
    taken_bytes: u64,
}

/// Room for one large content, of many accounts.
struct Large {
    shared: Budget,
    permit: Option<Permit>,
    waiting: Option<Pin<Box<dyn Future<Output = Permit> + Send + Sync>>>,
    /// How often it had it.
    count: u64,
}

impl Account {
    /// An account that may hold so much of the shared room.
    #[must_use]
    pub fn new(shared: &Arc<Pool>, bytes_max: u64) -> Self {
        Self {
            place: shared.place(),
            bytes_max,
            told_factor: 1,
            held_bytes: 0,
            paid_bytes: FREE_BYTES,
            taken_bytes: 0,
            waiting: None,
            large: None,
        }
    }

    /// This account, of one who asks for so many times as much at most as he will hold, since what he is told is made
    /// then: the shared room has to have all of that, and the own bound the least that it may be, or else one who holds
    /// anything would wait for ever. So it is met with one thing more.
    #[must_use]
    pub const fn with_told(mut self, factor: u64) -> Self {
        self.told_factor = if factor == 0 { 1 } else { factor };
        self
    }

    /// This account, which takes something large in only while no other does that shares this room.
    #[must_use]
    pub fn with_large(mut self, shared: Budget) -> Self {
        self.large = Some(Large { shared, permit: None, waiting: None, count: 0 });
        self
    }

    /// The number of the large thing that it holds, for which all others wait; each has another.
    #[must_use]
    pub fn large(&self) -> Option<u64> {
        self.large.as_ref().filter(|large| large.permit.is_some()).map(|large| large.count)
    }

    /// What is held.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What may be held.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts what is here from now on.
    pub const fn hold(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// The same for what has its shared room already.
    pub fn hold_paid(&mut self, bytes: u64, room: Room) {
        self.hold(bytes);
        self.paid_bytes += bytes;
        self.taken_bytes += room.bytes();
        self.place.adopt(room);
    }

    /// What may still be held without shared room.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        FREE_BYTES.saturating_sub(self.held_bytes)
    }

    /// Counts it no more.
    pub fn release(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        if let Some(large) = &mut self.large
            && (self.held_bytes == 0 || (bytes > LARGE_BYTES && self.held_bytes <= LARGE_BYTES))
        {
            large.permit = None;
        }
        let least = self.held_bytes.max(FREE_BYTES);
        let spare = self.paid_bytes.saturating_sub(least);
        if spare == 0 || (spare < STEP_BYTES && least > FREE_BYTES) {
            return;
        }
        self.paid_bytes = least;
        let before = self.taken_bytes;
        self.taken_bytes = before.min(least - FREE_BYTES);
        self.place.give(before - self.taken_bytes);
    }

    /// Nothing waits for room any more: a turn for it is given up, and what came of one goes back.
    pub fn want_nothing(&mut self) {
        if let Some(Waiting { turn: Some(turn), taken_bytes, .. }) = self.waiting.take() {
            self.place.leave(turn, taken_bytes);
        }
        self.release(0);
    }

    /// Counts nothing any more: what was held is gone.
    pub fn clear(&mut self) {
        self.held_bytes = 0;
        self.want_nothing();
    }

    /// Whether so much more may be taken in. One thing alone always may, whatever its size, as far as the
    /// own bound goes.
    #[must_use]
    pub fn has_room(&mut self, bytes: u64) -> bool {
        let Some(missing) = self.missing(bytes) else { return false };
        if let Some(large) = &mut self.large
            && bytes > LARGE_BYTES
            && large.permit.is_none()
        {
            large.permit = large.shared.try_keep(u64::MAX);
            large.count += 1;
            if large.permit.is_none() {
                return false;
            }
        }
        if missing == 0 {
            return true;
        }
        let taken_bytes = self.within(missing);
        let is_taken = self.place.try_take(taken_bytes);
        if is_taken {
            self.paid_bytes += missing;
            self.taken_bytes += taken_bytes;
        }
        is_taken
    }

    /// The same; who is told to wait is woken when there is shared room. The own bound wakes nobody:
    /// it is the connection itself that gives back.
    pub fn poll_room(&mut self, bytes: u64, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(Waiting { turn, missing_bytes, taken_bytes }) = &mut self.waiting {
                ready!(self.place.poll_take(*taken_bytes, turn, context));
                self.paid_bytes += *missing_bytes;
                self.taken_bytes += *taken_bytes;
                self.waiting = None;
            }
            let missing = self.missing(bytes);
            if let Some(large) = &mut self.large
                && missing.is_some()
                && bytes > LARGE_BYTES
                && large.permit.is_none()
            {
                let shared = large.shared.clone();
                let waiting = large
                    .waiting
                    .get_or_insert_with(|| Box::pin(async move { shared.acquire(u64::MAX).await }));
                large.permit = Some(ready!(waiting.as_mut().poll(context)));
                large.waiting = None;
                large.count += 1;
            }
            match missing {
                None => return Poll::Pending,
                Some(0) => return Poll::Ready(()),
                Some(missing_bytes) => {
                    let taken_bytes = self.within(missing_bytes);
                    self.waiting = Some(Waiting { turn: None, missing_bytes, taken_bytes });
                }
            }
        }
    }

    /// From this instant on the client is slow: it holds up what it has room for. Never, if nothing waits for it.
    pub fn judge(&self, slow_from: Option<Instant>) {
        self.place.judge(slow_from);
    }

    /// Whether it has to give up what it holds, because it is slow and others wait; wakes when that changes.
    #[must_use]
    pub fn must_yield(&self, now: Instant, context: &Context<'_>) -> bool {
        self.place.must_yield(now, context)
    }

    /// How much of the shared room is missing; none if the own bound is met, or if this account alone has so much of
    /// the shared room that there is not enough beside it.
    fn missing(&self, bytes: u64) -> Option<u64> {
        let wanted = self.held_bytes.saturating_add(bytes);
        let missing = match wanted.saturating_sub(self.paid_bytes) {
            0 => 0,
            missing => missing.max(STEP_BYTES),
        };
        let own = self.held_bytes.saturating_add(bytes / self.told_factor);
        let is_beyond = own > self.bytes_max || missing > self.within(missing);
        (self.held_bytes == 0 || !is_beyond).then_some(missing)
    }

    /// What of it is taken: what is larger than all of the shared room takes all of that.
    fn within(&self, bytes: u64) -> u64 {
        bytes.min(self.place.bytes_max().saturating_sub(self.taken_bytes))
    }
}
