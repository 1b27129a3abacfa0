//! Permits: room that is granted before something is accepted (DESIGN D6).
//!
//! A budget counts bytes. Every command costs at least [`COMMAND_BYTES`], so that a budget of 16 MiB
//! is also one of 4,096 commands. A command larger than the budget takes all of it and passes alone.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What the smallest command costs.
pub const COMMAND_BYTES: u64 = 4_096;

/// A bound on what is on its way in.
#[derive(Clone, Debug)]
pub struct Budget {
    room: Arc<Semaphore>,
    bytes_max: u32,
    /// What one command takes of it at most.
    command_bytes_max: u32,
    /// The budget of the whole broker, which a connection's draws on too.
    parent: Option<Box<Self>>,
}

/// Room that is held until this is dropped.
#[derive(Debug)]
pub struct Permit {
    _own: OwnedSemaphorePermit,
    _parent: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget of its own.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let bytes_max = u32::try_from(bytes_max.max(COMMAND_BYTES)).unwrap_or(u32::MAX >> 3);
        let room = Arc::new(Semaphore::new(bytes_max as usize));
        Self { room, bytes_max, command_bytes_max: bytes_max, parent: None }
    }

    /// The budget of a whole broker. A command, or a list of them, takes at most three quarters of it:
    /// what is larger passes alone among the large, and the small may pass beside it.
    #[must_use]
    pub fn of_broker(bytes_max: u64) -> Self {
        let whole = Self::new(bytes_max);
        Self { command_bytes_max: whole.bytes_max - whole.bytes_max / 4, ..whole }
    }

    /// A budget for what waits for the store while it holds permits of this one: half as large, so
    /// that everything else has the other half.
    #[must_use]
    pub fn parking(&self) -> Self {
        Self::new(u64::from(self.bytes_max / 2))
    }

    /// A budget that also draws on this one.
    #[must_use]
    pub fn connection(&self, bytes_max: u64) -> Self {
        Self { parent: Some(Box::new(self.clone())), ..Self::new(bytes_max) }
    }

    /// Waits for room for one command of so many bytes. Dropping the future gives up the place.
    pub async fn acquire(&self, bytes: u64) -> Permit {
        self.acquire_list(bytes.max(COMMAND_BYTES)).await
    }

    /// Waits for room for a list of commands of this cost altogether; see [`COMMAND_BYTES`].
    pub async fn acquire_list(&self, cost: u64) -> Permit {
        let own = take(&self.room, self.cost(cost)).await;
        let parent = match &self.parent {
            Some(parent) => Some(take(&parent.room, parent.cost(cost)).await),
            None => None,
        };
        Permit { _own: own, _parent: parent }
    }

    /// Takes room if there is some at once.
    #[must_use]
    pub fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        self.try_keep(bytes.max(COMMAND_BYTES))
    }

    /// Takes room at its own cost for what is kept and is no command, if there is some at once.
    #[must_use]
    pub fn try_keep(&self, bytes: u64) -> Option<Permit> {
        let own = Arc::clone(&self.room).try_acquire_many_owned(self.cost(bytes)).ok()?;
        let parent = match &self.parent {
            Some(parent) => {
                Some(Arc::clone(&parent.room).try_acquire_many_owned(parent.cost(bytes)).ok()?)
            }
            None => None,
        };
        Some(Permit { _own: own, _parent: parent })
    }

    fn cost(&self, bytes: u64) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.command_bytes_max)
    }
}

async fn take(room: &Arc<Semaphore>, cost: u32) -> OwnedSemaphorePermit {
    match Arc::clone(room).acquire_many_owned(cost).await {
        Ok(permit) => permit,
        // A budget is never closed; if it were, its users would be gone too.
        Err(_) => std::future::pending().await,
    }
}
