//! Bytes that one connection holds, counted against its own bound and against room that it shares
//! with other connections. The engine and the arrivals of a connection use it. Invariant: paid
//! bytes cover held bytes, except where the caller counts bytes that are already in memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use peeklock_core::permits::{Budget, Permit, Place, Pool, Room};

/// Bytes that every connection may hold without shared room. A client that keeps reading goes on
/// even if other clients have used up the shared room.
pub const FREE_BYTES: u64 = 64 << 10;
/// Size above which contents are in memory one at a time, across all accounts that share a budget
/// for large contents.
pub const LARGE_BYTES: u64 = 16 << 20;
/// Bytes of shared room that are taken in one step, and kept in reserve before some are returned.
const STEP_BYTES: u64 = 64 << 10;

/// Account of a connection. Held bytes are counted whether there was room or not; the caller
/// requests room before it takes anything in.
pub struct Account {
    place: Place,
    bytes_max: u64,
    /// Upper bound on how many times larger a request for room is than the bytes finally held.
    told_factor: u64,
    held_bytes: u64,
    /// Bytes that may be held: the free part and the bytes that were paid for.
    paid_bytes: u64,
    /// Shared bytes behind `paid_bytes`: fewer if the whole pool is smaller than a single request.
    taken_bytes: u64,
    /// A request for shared room that waits.
    waiting: Option<Waiting>,
    large: Option<Large>,
}

/// Queued request for shared room.
struct Waiting {
    turn: Option<u64>,
    missing_bytes: u64,
    taken_bytes: u64,
}

/// Budget for one large content at a time, shared by several accounts.
struct Large {
    shared: Budget,
    permit: Option<Permit>,
    waiting: Option<Pin<Box<dyn Future<Output = Permit> + Send + Sync>>>,
    /// Number of permits that this account has had.
    count: u64,
}

impl Account {
    /// Creates an account that may hold up to `bytes_max`.
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

    /// Declares that requests for room may be up to `factor` times the bytes finally held, such as
    /// stored contents that are encoded as JSON. The shared room must cover the whole request. The
    /// own bound counts only `bytes / factor`, because otherwise a connection that holds anything
    /// could wait forever; it can be exceeded by one content.
    #[must_use]
    pub const fn with_told(mut self, factor: u64) -> Self {
        self.told_factor = if factor == 0 { 1 } else { factor };
        self
    }

    /// Limits contents over [`LARGE_BYTES`] to one at a time among all accounts that share this
    /// budget.
    #[must_use]
    pub fn with_large(mut self, shared: Budget) -> Self {
        self.large = Some(Large { shared, permit: None, waiting: None, count: 0 });
        self
    }

    /// Number of the large content that it holds, which blocks the large contents of other
    /// accounts; each has another number. None if it holds none.
    #[must_use]
    pub fn large(&self) -> Option<u64> {
        self.large.as_ref().filter(|large| large.permit.is_some()).map(|large| large.count)
    }

    /// Bytes that are held.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Maximum bytes that may be held.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts `bytes` as held.
    pub const fn hold(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// Counts `bytes` as held whose shared room was taken already.
    pub fn hold_paid(&mut self, bytes: u64, room: Room) {
        self.hold(bytes);
        self.paid_bytes += bytes;
        self.taken_bytes += room.bytes();
        self.place.adopt(room);
    }

    /// Bytes that may still be held without shared room.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        FREE_BYTES.saturating_sub(self.held_bytes)
    }

    /// Counts `bytes` as no longer held, and returns shared room that is not needed.
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

    /// Cancels a waiting request for room, and returns unused shared room.
    pub fn want_nothing(&mut self) {
        if let Some(Waiting { turn: Some(turn), taken_bytes, .. }) = self.waiting.take() {
            self.place.leave(turn, taken_bytes);
        }
        self.release(0);
    }

    /// Counts everything as no longer held.
    pub fn clear(&mut self) {
        self.held_bytes = 0;
        self.want_nothing();
    }

    /// Whether `bytes` more may be taken in. If nothing is held, the own bound admits any size.
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

    /// Ready when `bytes` more may be taken in. Wakes when there is shared room; the own bound does
    /// not wake, since only the connection itself releases bytes.
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

    /// Sets the instant from which the client counts as slow, so that it blocks the room it holds.
    /// None if the client has nothing to read.
    pub fn judge(&self, slow_from: Option<Instant>) {
        self.place.judge(slow_from);
    }

    /// Whether the client must give up all it holds, because it is slow and others wait; wakes when
    /// that changes.
    #[must_use]
    pub fn must_yield(&self, now: Instant, context: &Context<'_>) -> bool {
        self.place.must_yield(now, context)
    }

    /// Shared bytes that are missing for `bytes` more. None if the own bound is reached, or if this
    /// account already holds most of the shared room, so that the rest cannot suffice.
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

    /// Shared bytes to take for `bytes`: a request larger than the whole pool takes all that this
    /// account does not hold.
    fn within(&self, bytes: u64) -> u64 {
        bytes.min(self.place.bytes_max().saturating_sub(self.taken_bytes))
    }
}
