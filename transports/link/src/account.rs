//! What one connection holds, in bytes: against its own bound and against one that it shares with others.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use peeklock_core::permits::{Budget, Permit};

/// What every connection may hold without room of the shared budget, so that those who take what they
/// are sent go on while others who do not have used it up.
pub const FREE_BYTES: u64 = 64 << 10;
/// What is larger than this is in memory one at a time, of all accounts that share the room for that.
pub const LARGE_BYTES: u64 = 16 << 20;
/// How much of the shared budget is taken at once.
const STEP_BYTES: u64 = 64 << 10;

type Waiting = Pin<Box<dyn Future<Output = Permit> + Send>>;

/// The account of one connection. What is here is counted whether there was room or not; room is asked for
/// before anything is taken in.
pub struct Account {
    shared: Budget,
    bytes_max: u64,
    held_bytes: u64,
    /// Room of the shared budget, and how much each is.
    permits: Vec<(Permit, u64)>,
    paid_bytes: u64,
    /// Waits for so much.
    waiting: Option<(Waiting, u64)>,
    large: Option<Large>,
}

/// Room for one large content, of many accounts.
struct Large {
    shared: Budget,
    permit: Option<Permit>,
    waiting: Option<Waiting>,
    /// How often it had it.
    count: u64,
}

impl Account {
    /// An account that may hold so much of the shared budget.
    #[must_use]
    pub const fn new(shared: Budget, bytes_max: u64) -> Self {
        Self {
            shared,
            bytes_max,
            held_bytes: 0,
            permits: Vec::new(),
            paid_bytes: FREE_BYTES,
            waiting: None,
            large: None,
        }
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

    /// The same for what has its room of the shared budget already.
    pub fn hold_paid(&mut self, bytes: u64, permit: Permit) {
        self.hold(bytes);
        self.keep(permit, bytes);
    }

    /// What may still be held without room of the shared budget.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        FREE_BYTES.saturating_sub(self.held_bytes)
    }

    /// Counts it no more.
    pub fn release(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        if let Some(large) = &mut self.large
            && (bytes > LARGE_BYTES || self.held_bytes == 0)
        {
            large.permit = None;
        }
        while let Some((_, step)) = self.permits.last()
            && self.held_bytes.saturating_add(*step) <= self.paid_bytes
        {
            self.paid_bytes -= *step;
            self.permits.pop();
        }
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
        match self.shared.try_keep(missing) {
            Some(permit) => {
                self.keep(permit, missing);
                true
            }
            None => false,
        }
    }

    /// The same; who is told to wait is woken when the shared budget has room. The own bound wakes nobody:
    /// it is the connection itself that gives back.
    pub fn poll_room(&mut self, bytes: u64, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some((waiting, step)) = &mut self.waiting {
                let step = *step;
                let permit = ready!(waiting.as_mut().poll(context));
                self.waiting = None;
                self.keep(permit, step);
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
                Some(step) => {
                    let shared = self.shared.clone();
                    let wait = Box::pin(async move { shared.acquire(step).await });
                    self.waiting = Some((wait, step));
                }
            }
        }
    }

    /// How much of the shared budget is missing; none if the own bound is met.
    const fn missing(&self, bytes: u64) -> Option<u64> {
        let wanted = self.held_bytes.saturating_add(bytes);
        if self.held_bytes > 0 && wanted > self.bytes_max {
            return None;
        }
        let missing = wanted.saturating_sub(self.paid_bytes);
        Some(if missing == 0 || missing > STEP_BYTES { missing } else { STEP_BYTES })
    }

    fn keep(&mut self, permit: Permit, bytes: u64) {
        self.paid_bytes += bytes;
        self.permits.push((permit, bytes));
    }
}
