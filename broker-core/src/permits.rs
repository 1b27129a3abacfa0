//! Permits: room that is granted before something is accepted (DESIGN D6).
//!
//! A budget counts bytes. Every command costs at least [`COMMAND_BYTES`], so that a budget of 16 MiB
//! is also one of 4,096 commands; one that is to take fewer than its bytes allow has a higher least cost.
//! A command larger than the budget takes all of it and passes alone.
//!
//! What is shared is a [`Pool`]: who holds least of it goes first, and who is slow yields to who waits. What the broker
//! loads for itself has room of another kind ([`Loads`]).

mod arriving;
mod loads;
mod pace;
mod pool;
mod turns;

use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use arriving::arriving_step;
pub use loads::{LoadRoom, LoadedFor, Loads, loaded_bytes};
pub use pace::{GRACE, Pace};
pub use pool::{Place, Pool, Room, RoomAnswer, Seat};
pub use turns::HeldTurn;
pub(crate) use turns::{CARRIED_OUT_BYTES_MAX, EXPLANATIONS_MAX, LISTS_MAX, Large, Turns};

/// What the smallest command costs.
pub const COMMAND_BYTES: u64 = 4_096;

/// A bound on what is on its way in.
#[derive(Clone, Debug)]
pub struct Budget {
    pool: Arc<Pool>,
    /// What one command takes of it at least.
    command_bytes_min: u64,
    /// What one command, or a list of them, takes of it at most.
    command_bytes_max: u32,
    /// The bound of a connection, which draws on the pool too.
    own: Option<Own>,
}

/// What one connection may have on its way in.
#[derive(Clone, Debug)]
struct Own {
    room: Arc<Semaphore>,
    bytes_max: u32,
    place: Arc<Place>,
}

/// Room that is held until this is dropped.
#[derive(Debug)]
pub struct Permit {
    _own: Option<OwnedSemaphorePermit>,
    _shared: Room,
}

impl Budget {
    /// A budget of its own.
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

    /// The budget of a whole broker, for so many bytes and so many commands. A command, or a list of them,
    /// takes at most three quarters of it: what is larger passes alone among the large, and the small may
    /// pass beside it.
    #[must_use]
    pub fn of_broker(bytes_max: u64, count_max: usize) -> Self {
        let count_max = (count_max as u64).max(1);
        let share = bytes_max.div_ceil(count_max).max(COMMAND_BYTES);
        let whole = match share {
            COMMAND_BYTES => Self::new(bytes_max),
            // Up to whole shares, so that all of them fit.
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

    /// A budget for what waits for the store while it holds permits of this one: half as large, so
    /// that everything else has the other half.
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
            place: Arc::new(self.pool.place()),
        };
        Self { own: Some(own), ..self.clone() }
    }

    /// Waits for room for one command of so many bytes. Dropping the future gives up the place.
    pub async fn acquire(&self, bytes: u64) -> Permit {
        self.acquire_list(1, bytes).await
    }

    /// Waits for room for so many commands, as [`crate::command::Cost`] counts them, of so many bytes
    /// together.
    pub async fn acquire_list(&self, count: u64, bytes: u64) -> Permit {
        let own = match &self.own {
            Some(own) => Some(take(&own.room, own.cost(count, bytes)).await),
            None => None,
        };
        let shared = self.pool.hold(self.place(), self.cost(count, bytes)).await;
        Permit { _own: own, _shared: shared }
    }

    /// Takes room if there is some at once.
    #[must_use]
    pub fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        self.try_acquire_list(1, bytes)
    }

    /// Takes room for so many commands of so many bytes together, if there is some at once.
    #[must_use]
    pub fn try_acquire_list(&self, count: u64, bytes: u64) -> Option<Permit> {
        let own = match &self.own {
            Some(own) => {
                let room = Arc::clone(&own.room);
                Some(room.try_acquire_many_owned(own.cost(count, bytes)).ok()?)
            }
            None => None,
        };
        let shared = self.pool.try_hold(self.place(), self.cost(count, bytes))?;
        Some(Permit { _own: own, _shared: shared })
    }

    /// Whether somebody waits for room, of those who share it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.pool.is_short()
    }

    /// Takes room at its own cost for what is kept and is no command, if there is some at once.
    #[must_use]
    pub fn try_keep(&self, bytes: u64) -> Option<Permit> {
        let shared = self.pool.try_hold(self.place(), self.capped(bytes))?;
        Some(Permit { _own: None, _shared: shared })
    }

    /// What this connection holds of the room of all.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.own.as_ref().map_or(0, |own| own.place.held_bytes())
    }

    /// From this instant on the client of this connection is slow: it holds up what it has room for. Never, if
    /// nothing waits for it.
    pub fn judge(&self, slow_from: Option<Instant>) {
        if let Some(own) = &self.own {
            own.place.judge(slow_from);
        }
    }

    /// Whether this connection has to give up what it holds, because it is slow and others wait; wakes when
    /// that changes.
    #[must_use]
    pub fn must_yield(&self, now: Instant, context: &Context<'_>) -> bool {
        self.own.as_ref().is_some_and(|own| own.place.must_yield(now, context))
    }

    fn place(&self) -> Option<&Arc<Place>> {
        self.own.as_ref().map(|own| &own.place)
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

async fn take(room: &Arc<Semaphore>, cost: u32) -> OwnedSemaphorePermit {
    match Arc::clone(room).acquire_many_owned(cost).await {
        Ok(permit) => permit,
        // A budget is never closed; if it were, its users would be gone too.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// How many commands of that size a budget takes before it is full.
    fn taken(budget: &Budget, bytes: u64) -> usize {
        let permits = std::iter::from_fn(|| budget.try_acquire(bytes));
        permits.take(100_000).collect::<Vec<Permit>>().len()
    }

    /// DESIGN D6: a larger budget takes more, whatever its size.
    #[test]
    fn a_budget_above_four_gib_is_as_large_as_it_says() {
        for (gib, expected) in [(1, 1), (3, 3), (4, 4), (5, 5), (64, 64)] {
            assert_eq!(taken(&Budget::new(gib * GIB), GIB), expected, "{gib} GiB");
        }
        let broker = Budget::of_broker(5 * GIB, usize::MAX);
        assert_eq!(taken(&broker, GIB), 5);
        assert_eq!(taken(&broker.parking(), GIB), 2, "half of it is for what waits");
        assert_eq!(taken(&broker.connection(64 * GIB), GIB), 5, "a connection draws on the whole");
        assert_eq!(taken(&Budget::new(u64::MAX), u64::MAX), 100_000);
    }

    /// QUO-02, DESIGN D6: no more commands are on their way in than the broker may have, however small they
    /// are; and its bytes are not exceeded by few large ones.
    #[test]
    fn a_broker_takes_so_many_commands_and_so_many_bytes() {
        let budget = Budget::of_broker(1 << 20, 10);
        assert_eq!(taken(&budget, 1), 10);
        assert_eq!(taken(&budget, 1 << 19), 2);
        let held = budget.try_acquire_list(8, 1);
        assert!(held.is_some());
        assert_eq!(taken(&budget.connection(1 << 20), 1), 2, "of a connection too");
        drop(held);
        // What its bytes do not allow, a higher count does not either.
        assert_eq!(taken(&Budget::of_broker(1 << 20, usize::MAX), 1), 256);
        assert_eq!(taken(&Budget::of_broker(1 << 20, 0), 1), 1);
    }
}
