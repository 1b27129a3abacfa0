//! The place of one connection.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::free::Holding;
use super::{Pool, Room};

/// The place of one connection at a pool, until this is dropped.
#[derive(Debug)]
pub struct Place {
    pub(super) pool: Arc<Pool>,
    pub(super) held: Arc<Holding>,
    key: u64,
}

impl Place {
    /// Paced is what is judged from when it is granted something.
    pub(super) fn enter(pool: &Arc<Pool>, is_paced: bool) -> Self {
        let held = Arc::new(Holding::default());
        let key = pool.in_order(|order| order.enter(Arc::clone(&held), is_paced));
        Self { pool: Arc::clone(pool), held, key }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// The whole of its pool.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.pool.bytes_max
    }

    /// What it holds.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Takes room if there is some at once.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> bool {
        self.pool.try_grant(Some(self), bytes)
    }

    /// Waits for room in a turn that is kept there from call to call, or given up by [`Self::leave`].
    pub fn poll_take(&self, bytes: u64, turn: &mut Option<u64>, context: &Context<'_>) -> Poll<()> {
        let taken = self.pool.in_order(|order| order.poll(Some(self.key), bytes, turn, context));
        if taken.is_ready() {
            *turn = None;
        }
        taken
    }

    /// Gives up a turn for so much, which may have come meanwhile.
    pub fn leave(&self, turn: u64, bytes: u64) {
        self.pool.in_order(|order| order.give_up(turn, Some(self.key), bytes));
    }

    /// Takes over what was held by nobody's place.
    pub fn adopt(&self, mut room: Room) {
        self.held.add(std::mem::take(&mut room.bytes));
        if self.pool.free.is_short() {
            self.pool.in_order(|order| order.rank_anew(self.key));
        }
    }

    /// Gives some of it back.
    pub fn give(&self, bytes: u64) {
        self.pool.give(Some(self), bytes);
    }

    /// From this instant on it is slow; never, if it is not for its own sake that nothing passes.
    pub fn judge(&self, slow_from: Option<Instant>) {
        self.pool.in_order(|order| order.judge(self.key, slow_from));
    }

    /// Whether it has to give up what it holds; looks who is slow by now, and wakes when that changes.
    #[must_use]
    pub fn must_yield(&self, now: Instant, context: &Context<'_>) -> bool {
        self.pool.in_order(|order| {
            order.pass_time(now);
            order.have_slowest_yield();
            order.must_yield(self.key, Some(context))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.in_order(|order| order.remove(self.key));
    }
}
