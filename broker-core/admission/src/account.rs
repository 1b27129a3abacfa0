//! Accounts of connections: the bytes that it holds, compared with its own bound and with a pool that it shares.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::budget::{Budget, Permit};
use crate::pool::{Pool, Room, Share};

/// Bytes taken from the pool at once, and kept before some are released.
const STEP_BYTES: u64 = 64 << 10;

/// The account of a connection. Data that is here counts in any case; bytes of the pool are taken before further data is
/// taken in.
pub struct Account {
    share: Share,
    bytes_max: u64,
    /// Upper bound on the ratio of requested bytes to bytes that are held in the end.
    expansion_factor: u64,
    held_bytes: u64,
    /// Bytes that may be held: the free part, and the part that was taken from the pool.
    paid_bytes: u64,
    /// Bytes taken from the pool: less than paid, where the whole pool is less.
    taken_bytes: u64,
    /// A wait for the pool.
    waiting: Option<QueuedRequest>,
    large: Option<Large>,
}

/// A turn at the pool.
struct QueuedRequest {
    turn: Option<u64>,
    missing_bytes: u64,
    taken_bytes: u64,
}

/// The budget for one large content, shared by many accounts.
struct Large {
    shared: Budget,
    permit: Option<Permit>,
    waiting: Option<Pin<Box<dyn Future<Output = Permit> + Send + Sync>>>,
    /// Number of large contents until now.
    count: u64,
}

impl Account {
    /// Bytes that each connection may hold without the pool, so that clients that take their deliveries go on while others
    /// that do not have used the pool up.
    pub const FREE_BYTES: u64 = 64 << 10;
    /// Contents above this size are in memory one at a time, of all accounts that share the budget for them.
    pub const LARGE_BYTES: u64 = 16 << 20;

    /// An account that may hold up to `bytes_max` bytes of the pool.
    #[must_use]
    pub fn new(shared: &Arc<Pool>, bytes_max: u64) -> Self {
        Self {
            share: shared.share(),
            bytes_max,
            expansion_factor: 1,
            held_bytes: 0,
            paid_bytes: Self::FREE_BYTES,
            taken_bytes: 0,
            waiting: None,
            large: None,
        }
    }

    /// This account, whose requests are up to `factor` times the bytes that it holds in the end, because the encoding is
    /// made later. The pool must have all requested bytes, and the own bound the least that they may become, or else a
    /// connection that holds anything would wait without end. So the own bound is met with one thing more.
    #[must_use]
    pub const fn with_expansion(mut self, factor: u64) -> Self {
        self.expansion_factor = if factor == 0 { 1 } else { factor };
        self
    }

    /// This account, which takes a large content in only while no other does that shares this budget.
    #[must_use]
    pub fn with_large(mut self, shared: Budget) -> Self {
        self.large = Some(Large { shared, permit: None, waiting: None, count: 0 });
        self
    }

    /// The number of the large content that it holds, for which all others wait; each has another.
    #[must_use]
    pub fn large(&self) -> Option<u64> {
        self.large.as_ref().filter(|large| large.permit.is_some()).map(|large| large.count)
    }

    /// Bytes that it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes that it may hold.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts data that is here from now on.
    pub const fn hold(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// Counts data whose bytes were taken from the pool already.
    pub fn hold_paid(&mut self, bytes: u64, room: Room) {
        self.hold(bytes);
        self.paid_bytes += bytes;
        self.taken_bytes += room.bytes();
        self.share.adopt(room);
    }

    /// Bytes that it may still hold without the pool.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        Self::FREE_BYTES.saturating_sub(self.held_bytes)
    }

    /// Counts data no longer.
    pub fn release(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        if let Some(large) = &mut self.large
            && (self.held_bytes == 0
                || (bytes > Self::LARGE_BYTES && self.held_bytes <= Self::LARGE_BYTES))
        {
            large.permit = None;
        }
        let least = self.held_bytes.max(Self::FREE_BYTES);
        let spare = self.paid_bytes.saturating_sub(least);
        if spare == 0 || (spare < STEP_BYTES && least > Self::FREE_BYTES) {
            return;
        }
        self.paid_bytes = least;
        let before = self.taken_bytes;
        self.taken_bytes = before.min(least - Self::FREE_BYTES);
        self.share.release(before - self.taken_bytes);
    }

    /// Ends a wait for the pool, and releases the bytes that it was granted.
    pub fn end_wait(&mut self) {
        if let Some(QueuedRequest { turn: Some(turn), taken_bytes, .. }) = self.waiting.take() {
            self.share.end_wait(turn, taken_bytes);
        }
        self.release(0);
    }

    /// Counts nothing any more.
    pub fn clear(&mut self) {
        self.held_bytes = 0;
        self.end_wait();
    }

    /// Takes bytes of the pool for data of `bytes` bytes, if it may be taken in now. The own bound lets one thing pass, at
    /// any size.
    #[must_use]
    pub fn try_take(&mut self, bytes: u64) -> bool {
        let Some(missing) = self.missing(bytes) else { return false };
        if let Some(large) = &mut self.large
            && bytes > Self::LARGE_BYTES
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
        let taken_bytes = self.takeable_bytes(missing);
        let is_taken = self.share.try_take(taken_bytes);
        if is_taken {
            self.paid_bytes += missing;
            self.taken_bytes += taken_bytes;
        }
        is_taken
    }

    /// Waits for bytes of the pool. The own bound wakes no task: the connection itself releases.
    pub fn poll_wait(&mut self, bytes: u64, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(QueuedRequest { turn, missing_bytes, taken_bytes }) = &mut self.waiting {
                ready!(self.share.poll_wait(*taken_bytes, turn, context));
                self.paid_bytes += *missing_bytes;
                self.taken_bytes += *taken_bytes;
                self.waiting = None;
            }
            let missing = self.missing(bytes);
            if let Some(large) = &mut self.large
                && missing.is_some()
                && bytes > Self::LARGE_BYTES
                && large.permit.is_none()
            {
                let shared = large.shared.clone();
                let waiting = large
                    .waiting
                    .get_or_insert_with(|| Box::pin(async move { shared.wait(u64::MAX).await }));
                large.permit = Some(ready!(waiting.as_mut().poll(context)));
                large.waiting = None;
                large.count += 1;
            }
            match missing {
                None => return Poll::Pending,
                Some(0) => return Poll::Ready(()),
                Some(missing_bytes) => {
                    let taken_bytes = self.takeable_bytes(missing_bytes);
                    self.waiting = Some(QueuedRequest { turn: None, missing_bytes, taken_bytes });
                }
            }
        }
    }

    /// Records the instant from which the client is slow; `None` if nothing waits for the client.
    pub fn set_slow_from(&self, slow_from: Option<Instant>) {
        self.share.judge(slow_from);
    }

    /// Whether it must release its bytes, because its client is slow and others wait. Wakes when that changes.
    #[must_use]
    pub fn is_evicted(&self, now: Instant, context: &Context<'_>) -> bool {
        self.share.is_evicted(now, context)
    }

    /// Bytes of the pool that are missing; `None` if the own bound is met, or if the rest of the pool is not enough because of
    /// this account itself.
    fn missing(&self, bytes: u64) -> Option<u64> {
        let wanted = self.held_bytes.saturating_add(bytes);
        let missing = match wanted.saturating_sub(self.paid_bytes) {
            0 => 0,
            missing => missing.max(STEP_BYTES),
        };
        let own = self.held_bytes.saturating_add(bytes / self.expansion_factor);
        let is_beyond = own > self.bytes_max || missing > self.takeable_bytes(missing);
        (self.held_bytes == 0 || !is_beyond).then_some(missing)
    }

    /// Bytes to take of the pool: a request that is larger than the pool takes the whole pool.
    fn takeable_bytes(&self, bytes: u64) -> u64 {
        bytes.min(self.share.bytes_max().saturating_sub(self.taken_bytes))
    }
}

#[cfg(test)]
mod tests;
