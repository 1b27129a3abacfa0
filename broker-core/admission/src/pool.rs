//! Pools: bytes that many connections share. No connection keeps them because it came first.
//!
//! ```text
//!   try, wait ──enough free, no smaller holder waits──► granted
//!       │                                                    ▲
//!       ▼                                                    │ handed over in that order
//!   waiting: the smallest share first, then the smallest ────┤  (order.rs)
//!       │    request; too little is coming back              │
//!       ▼                                                    │
//!   the slowest share is evicted ──releases all it holds─────┘  (eviction.rs)
//! ```
//!
//! Released bytes go to the first waiter, even if it is not polling at that moment. Otherwise the most frequent poller
//! would get them. An evicted share is slow ([`Pace`](crate::Pace)), or it waits itself for the rest of something and
//! keeps the part that has arrived ([`Pool::of_parts`]).
//!
//! While no request waits there is no order to keep, and bytes are taken and released without its lock.

mod eviction;
mod free;
mod order;
mod paced;
mod share;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::pace::GRACE;
use free::Free;
use order::Order;

pub use paced::{Evicted, NotGranted, PacedShare};
pub use share::Share;

/// A bounded number of bytes, and its holders.
#[derive(Debug)]
pub struct Pool {
    bytes_max: u64,
    free: Arc<Free>,
    order: Mutex<Order>,
}

/// Bytes of a pool, held by a share or by none. Dropping it releases them.
#[derive(Debug)]
pub struct Room {
    holder: Holder,
    bytes: u64,
}

#[derive(Debug)]
enum Holder {
    Nobody(Arc<Pool>),
    Share(Arc<Share>),
}

impl Pool {
    /// A pool for things that are whole: a holder that waits for more releases its bytes in time by itself.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Self::with(bytes_max, false)
    }

    /// A pool for things that arrive in parts: a holder that waits for the next part keeps the parts that are here, so
    /// all holders could wait for each other without end.
    #[must_use]
    pub fn of_parts(bytes_max: u64) -> Arc<Self> {
        Self::with(bytes_max, true)
    }

    fn with(bytes_max: u64, is_of_parts: bool) -> Arc<Self> {
        let free = Arc::new(Free::new(bytes_max));
        let order = Mutex::new(Order::new(Arc::clone(&free), is_of_parts));
        Arc::new(Self { bytes_max, free, order })
    }

    /// Size of the pool.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes without a holder.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free.bytes()
    }

    /// Whether a request waits.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.free.is_short()
    }

    /// A share whose user reports when it is slow.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Share {
        Share::enter(self, false)
    }

    /// A share of something that passes, judged by its pace.
    #[must_use]
    pub fn paced_share(self: &Arc<Self>) -> PacedShare {
        self.patient_share(GRACE)
    }

    /// A paced share that may stand still for `grace` before it is slow: for things whose loss costs more than the wait
    /// of others.
    #[must_use]
    pub fn patient_share(self: &Arc<Self>, grace: Duration) -> PacedShare {
        PacedShare::new(Share::enter(self, true), grace)
    }

    /// Takes bytes for a share, or for none, if there are enough free and no waiter goes first.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, share: Option<&Arc<Share>>, bytes: u64) -> Option<Room> {
        let is_granted = self.try_grant(share.map(Arc::as_ref), bytes);
        is_granted.then(|| Room::new(self, share, bytes))
    }

    /// Waits for bytes. Dropping the future ends the wait.
    pub async fn wait(self: &Arc<Self>, share: Option<&Arc<Share>>, bytes: u64) -> Room {
        let mut turn =
            WaitingTurn { pool: self, share: share.map(Arc::as_ref), bytes, number: None };
        poll_fn(|context| turn.poll(context)).await;
        turn.number = None;
        Room::new(self, share, bytes)
    }

    fn try_grant(&self, share: Option<&Share>, bytes: u64) -> bool {
        if self.free.try_take(bytes) {
            if let Some(share) = share {
                share.held.add(bytes);
            }
            return true;
        }
        // If no request waits, there are too few bytes.
        self.free.is_short() && self.in_order(|order| order.try_grant(share.map(Share::key), bytes))
    }

    fn release(&self, share: Option<&Share>, bytes: u64) {
        if let Some(share) = share {
            share.held.subtract(bytes);
        }
        if self.free.release(bytes) {
            self.in_order(|order| order.released(share.map(Share::key)));
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
    fn new(pool: &Arc<Pool>, share: Option<&Arc<Share>>, bytes: u64) -> Self {
        let holder = match share {
            Some(share) => Holder::Share(Arc::clone(share)),
            None => Holder::Nobody(Arc::clone(pool)),
        };
        Self { holder, bytes }
    }

    /// Number of bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases all but `bytes` bytes.
    pub fn release_beyond(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        if spare > 0 {
            self.release(spare);
        }
    }

    fn release(&self, bytes: u64) {
        match &self.holder {
            Holder::Nobody(pool) => pool.release(None, bytes),
            Holder::Share(share) => share.release(bytes),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// The turn of a future that waits.
struct WaitingTurn<'a> {
    pool: &'a Pool,
    share: Option<&'a Share>,
    bytes: u64,
    number: Option<u64>,
}

impl WaitingTurn<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let Self { pool, share, bytes, number } = self;
        if number.is_none() && pool.try_grant(*share, *bytes) {
            return Poll::Ready(());
        }
        pool.in_order(|order| order.poll(share.map(Share::key), *bytes, number, context))
    }
}

impl Drop for WaitingTurn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let key = self.share.map(Share::key);
        self.pool.in_order(|order| order.end_wait(number, key, self.bytes));
    }
}

#[cfg(test)]
mod tests;
