//! Budgets: bytes of commands that are on their way in (DESIGN D6).
//!
//! Each command costs at least [`COMMAND_BYTES`], so a budget of 16 MiB is also a budget of 4,096 commands. A budget
//! with a lower number of commands has a higher least cost. A command that is larger than the budget takes the whole
//! budget and passes alone.

use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::pool::{Pool, Room, Share};

/// Cost of the smallest command.
pub const COMMAND_BYTES: u64 = 4_096;

/// A bound on the bytes of commands between their arrival and their answer.
#[derive(Clone, Debug)]
pub struct Budget {
    pool: Arc<Pool>,
    /// Least cost of a command.
    command_bytes_min: u64,
    /// Highest cost of a command, or of a list of commands.
    command_bytes_max: u32,
    /// The bound of a connection, which draws on the pool too.
    own: Option<Own>,
}

/// The bound of a connection.
#[derive(Clone, Debug)]
struct Own {
    room: Arc<Semaphore>,
    bytes_max: u32,
    share: Arc<Share>,
}

/// Part of a budget. Dropping it releases the bytes.
#[derive(Debug)]
pub struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _shared: Room,
}

impl Budget {
    /// A budget that shares nothing with others.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let bytes_max = bytes_max.max(COMMAND_BYTES);
        Self {
            pool: Pool::new(bytes_max),
            command_bytes_min: COMMAND_BYTES,
            command_bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
            own: None,
        }
    }

    /// The budget of a whole broker, bounded in bytes and in commands. A command, or a list of commands, takes at most
    /// three quarters: larger ones pass one after the other, and small ones pass at the same time.
    #[must_use]
    pub fn of_broker(bytes_max: u64, count_max: usize) -> Self {
        let count_max = (count_max as u64).max(1);
        let share = bytes_max.div_ceil(count_max).max(COMMAND_BYTES);
        let whole = match share {
            COMMAND_BYTES => Self::new(bytes_max),
            // Up to whole shares, so that all fit.
            _ => Self::new(share.saturating_mul(count_max)),
        };
        let bytes_max = whole.pool.bytes_max();
        let most = bytes_max - bytes_max / 4;
        Self {
            command_bytes_min: share,
            command_bytes_max: u32::try_from(most).unwrap_or(u32::MAX),
            ..whole
        }
    }

    /// A budget for commands that wait for the store while they hold permits of this one: half as large, so that the
    /// other half stays for all other commands.
    #[must_use]
    pub fn parking(&self) -> Self {
        Self::new(self.pool.bytes_max() / 2)
    }

    /// The budget of a connection, which draws on this one too.
    #[must_use]
    pub fn connection(&self, bytes_max: u64) -> Self {
        let room = usize::try_from(bytes_max.max(COMMAND_BYTES)).unwrap_or(usize::MAX);
        let room = room.min(Semaphore::MAX_PERMITS);
        let own = Own {
            room: Arc::new(Semaphore::new(room)),
            bytes_max: u32::try_from(room).unwrap_or(u32::MAX),
            share: Arc::new(self.pool.share()),
        };
        Self { own: Some(own), ..self.clone() }
    }

    /// Waits for a permit for one command of `bytes` bytes. Dropping the future ends the wait.
    pub async fn wait(&self, bytes: u64) -> Permit {
        self.wait_list(1, bytes).await
    }

    /// Waits for a permit for `count` commands, in the unit of the cost of a command, of `bytes` bytes together.
    pub async fn wait_list(&self, count: u64, bytes: u64) -> Permit {
        let own = match &self.own {
            Some(own) => Some(wait_for_units(&own.room, own.cost(count, bytes)).await),
            None => None,
        };
        let shared = self.pool.wait(self.share(), self.cost(count, bytes)).await;
        Permit { _own: own, _shared: shared }
    }

    /// Takes a permit for one command, if there is enough free.
    #[must_use]
    pub fn try_take(&self, bytes: u64) -> Option<Permit> {
        self.try_take_list(1, bytes)
    }

    /// Takes a permit for `count` commands of `bytes` bytes together, if there is enough free.
    #[must_use]
    pub fn try_take_list(&self, count: u64, bytes: u64) -> Option<Permit> {
        let own = match &self.own {
            Some(own) => {
                let room = Arc::clone(&own.room);
                Some(room.try_acquire_many_owned(own.cost(count, bytes)).ok()?)
            }
            None => None,
        };
        let shared = self.pool.try_take(self.share(), self.cost(count, bytes))?;
        Some(Permit { _own: own, _shared: shared })
    }

    /// Takes a permit for exactly `bytes` bytes of data that is kept and is not a command, if there is enough free.
    #[must_use]
    pub fn try_keep(&self, bytes: u64) -> Option<Permit> {
        let shared = self.pool.try_take(self.share(), self.capped(bytes))?;
        Some(Permit { _own: None, _shared: shared })
    }

    /// Whether any user of the shared budget waits.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.pool.is_short()
    }

    /// Bytes that this connection holds of the shared budget.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.own.as_ref().map_or(0, |own| own.share.held_bytes())
    }

    /// Records the instant from which the client of this connection is slow; `None` if nothing waits for the client.
    pub fn judge(&self, slow_from: Option<Instant>) {
        if let Some(own) = &self.own {
            own.share.judge(slow_from);
        }
    }

    /// Whether this connection must release its bytes, because it is slow and others wait. Wakes when that changes.
    #[must_use]
    pub fn is_evicted(&self, now: Instant, context: &Context<'_>) -> bool {
        self.own.as_ref().is_some_and(|own| own.share.is_evicted(now, context))
    }

    fn share(&self) -> Option<&Arc<Share>> {
        self.own.as_ref().map(|own| &own.share)
    }

    fn cost(&self, count: u64, bytes: u64) -> u64 {
        self.capped(bytes.max(self.command_bytes_min.saturating_mul(count)))
    }

    fn capped(&self, bytes: u64) -> u64 {
        bytes.min(self.command_bytes_max.into())
    }
}

impl Own {
    fn cost(&self, count: u64, bytes: u64) -> u32 {
        let bytes = bytes.max(COMMAND_BYTES.saturating_mul(count));
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_max)
    }
}

/// Waits for units of a semaphore that is never closed.
pub(crate) async fn wait_for_units(room: &Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    match Arc::clone(room).acquire_many_owned(units).await {
        Ok(permit) => permit,
        // Closed: the users of the semaphore are gone too.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Number of commands of a size that a budget takes before it is full.
    fn taken(budget: &Budget, bytes: u64) -> usize {
        let permits = std::iter::from_fn(|| budget.try_take(bytes));
        permits.take(100_000).collect::<Vec<Permit>>().len()
    }

    /// DESIGN D6: a larger budget takes more, at any size.
    #[test]
    fn a_budget_takes_its_bytes_above_four_gib() {
        for (gib, expected) in [(1, 1), (3, 3), (4, 4), (5, 5), (64, 64)] {
            assert_eq!(taken(&Budget::new(gib * GIB), GIB), expected, "{gib} GiB");
        }
        let broker = Budget::of_broker(5 * GIB, usize::MAX);
        assert_eq!(taken(&broker, GIB), 5);
        assert_eq!(taken(&broker.parking(), GIB), 2, "parking has half of the budget");
        assert_eq!(taken(&broker.connection(64 * GIB), GIB), 5, "a connection draws on the whole");
        assert_eq!(taken(&Budget::new(u64::MAX), u64::MAX), 100_000);
    }

    /// QUO-02, DESIGN D6: the number of commands on their way in is bounded, even if all are small, and so are their
    /// bytes, even if they are few.
    #[test]
    fn the_budget_of_a_broker_bounds_commands_and_bytes() {
        let budget = Budget::of_broker(1 << 20, 10);
        assert_eq!(taken(&budget, 1), 10);
        assert_eq!(taken(&budget, 1 << 19), 2);
        let held = budget.try_take_list(8, 1);
        assert!(held.is_some());
        assert_eq!(taken(&budget.connection(1 << 20), 1), 2, "a connection has the same bound");
        drop(held);
        // A higher count allows no more than the bytes do.
        assert_eq!(taken(&Budget::of_broker(1 << 20, usize::MAX), 1), 256);
        assert_eq!(taken(&Budget::of_broker(1 << 20, 0), 1), 1);
    }
}
