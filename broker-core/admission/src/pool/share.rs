//! The share of a connection in a pool: the bytes that it holds, and its wait for more.
//! [`Pool`](super::Pool) makes it; accounts and paced shares contain one. Dropping a share releases
//! all its bytes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::free::Holding;
use super::{Pool, Room};

/// Part of a pool that one connection holds. Dropping it releases everything.
#[derive(Debug)]
pub struct Share {
    pub(super) pool: Arc<Pool>,
    pub(super) held: Arc<Holding>,
    key: u64,
}

impl Share {
    /// An empty share. A paced one is judged from the moment at which it is granted something.
    pub(super) fn enter(pool: &Arc<Pool>, is_paced: bool) -> Self {
        let held = Arc::new(Holding::default());
        let key = pool.in_order(|order| order.enter(Arc::clone(&held), is_paced));
        Self { pool: Arc::clone(pool), held, key }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// Size of the pool.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.pool.bytes_max
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Takes bytes, if there are enough free.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        self.pool.try_grant(Some(self), bytes)
    }

    /// Waits for bytes in a turn, which lasts from call to call until it is ready or [ended](Self::end_wait).
    pub fn poll_wait(&self, bytes: u64, turn: &mut Option<u64>, context: &Context<'_>) -> Poll<()> {
        let taken = self.pool.in_order(|order| order.poll(Some(self.key), bytes, turn, context));
        if taken.is_ready() {
            *turn = None;
        }
        taken
    }

    /// Ends a wait for `bytes` bytes. Releases them if they were granted meanwhile.
    pub fn end_wait(&self, turn: u64, bytes: u64) {
        self.pool.in_order(|order| order.end_wait(turn, Some(self.key), bytes));
    }

    /// Takes over bytes that no share holds.
    pub fn adopt(&self, mut room: Room) {
        self.held.add(std::mem::take(&mut room.bytes));
        if self.pool.free.is_short() {
            self.pool.in_order(|order| order.rank_again(self.key));
        }
    }

    /// Releases some of its bytes.
    pub fn release(&self, bytes: u64) {
        self.pool.release(Some(self), bytes);
    }

    /// Records the instant from which it is slow; `None` if it is not its own fault that nothing passes.
    pub fn judge(&self, slow_from: Option<Instant>) {
        self.pool.in_order(|order| order.judge(self.key, slow_from));
    }

    /// Whether it must release its bytes. Evicts shares that are slow by now, and wakes when the answer changes.
    #[must_use]
    pub fn is_evicted(&self, now: Instant, context: &Context<'_>) -> bool {
        self.pool.in_order(|order| {
            order.pass_time(now);
            order.evict_slowest();
            order.is_evicted(self.key, Some(context))
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.in_order(|order| order.remove(self.key));
    }
}
