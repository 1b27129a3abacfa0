//! Loads: bytes of contents that the broker loads for itself: of messages on their way to another entity or to a forwarder,
//! and of scheduled messages that are due at topics (decision 34).
//!
//! They go to the longest waiter, not to the smallest holder as in a [`Pool`](crate::Pool): no client holds them, and large
//! contents are to have their turn too. Contents that are larger than all of the room take the whole room and pass alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::wait_for_units;

/// Bytes in one unit of a semaphore, which counts in 32 bits.
const UNIT: u64 = 1 << 10;
/// Cost of a loaded message in addition to its content.
const MESSAGE_BYTES: u64 = 1 << 10;

/// The room for loaded contents of a broker.
#[derive(Clone, Debug)]
pub struct Loads {
    all: Part,
    /// The part for forwarders: one that does not answer keeps it until its time is over, and messages that stay in the
    /// broker must not wait for that.
    of_forwarders: Part,
}

/// The target of loaded contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadedFor {
    /// An entity of this broker.
    Entity,
    /// A forwarder.
    Forwarder,
}

/// Room for loaded contents. Dropping it releases the bytes.
#[derive(Debug)]
pub struct LoadRoom {
    _all: OwnedSemaphorePermit,
    of_forwarders: Option<OwnedSemaphorePermit>,
}

impl LoadRoom {
    /// Releases the part of forwarders after the forwarder has answered: the contents are held for an entity of this
    /// broker from now on.
    pub fn release_forwarder_part(&mut self) {
        drop(self.of_forwarders.take());
    }
}

/// Cost of `count` loaded messages whose contents have `bytes` bytes.
#[must_use]
pub const fn loaded_bytes(count: usize, bytes: u64) -> u64 {
    bytes.saturating_add(MESSAGE_BYTES.saturating_mul(count as u64))
}

impl Loads {
    /// Room for `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { all: Part::new(bytes_max), of_forwarders: Part::new(bytes_max / 2) }
    }

    /// Whether a waiter needs bytes of other holders. A waiter for the part of forwarders does not
    /// count.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.all.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes room if enough is free and no request waits.
    #[must_use]
    pub fn try_take(&self, bytes: u64, wanted: LoadedFor) -> Option<LoadRoom> {
        let of_forwarders = match wanted {
            LoadedFor::Entity => None,
            LoadedFor::Forwarder => Some(self.of_forwarders.try_take(bytes)?),
        };
        Some(LoadRoom { _all: self.all.try_take(bytes)?, of_forwarders })
    }

    /// Waits for room, after all earlier waiters. Dropping the future ends the wait.
    pub async fn wait(&self, bytes: u64, wanted: LoadedFor) -> LoadRoom {
        let of_forwarders = match wanted {
            LoadedFor::Entity => None,
            LoadedFor::Forwarder => Some(self.of_forwarders.wait(bytes).await),
        };
        LoadRoom { _all: self.all.wait(bytes).await, of_forwarders }
    }
}

/// Counts a waiter until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
struct Part {
    room: Arc<Semaphore>,
    /// Most units for a holder: all.
    units_max: u32,
    /// Number of waiters.
    waiting: Arc<AtomicUsize>,
}

impl Part {
    fn new(bytes_max: u64) -> Self {
        let units = usize::try_from(bytes_max / UNIT).unwrap_or(usize::MAX);
        let units = units.clamp(1, Semaphore::MAX_PERMITS);
        let units_max = u32::try_from(units).unwrap_or(u32::MAX);
        Self { room: Arc::new(Semaphore::new(units)), units_max, waiting: Arc::default() }
    }

    fn units(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.units_max)
    }

    /// Takes room. A semaphore grants nothing while a request waits: released units go to the waiter.
    fn try_take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(self.units(bytes)).ok()
    }

    async fn wait(&self, bytes: u64) -> OwnedSemaphorePermit {
        let _waits = Waits::begin(&self.waiting);
        wait_for_units(&self.room, self.units(bytes)).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;

    const MIB: u64 = 1 << 20;

    async fn poll<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|context| {
            Poll::Ready(match future.as_mut().poll(context) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// DESIGN D6: the longest waiter goes first, at any size; a small request does not pass a large one.
    #[tokio::test]
    async fn room_goes_to_the_longest_waiter() {
        let loads = Loads::new(4 * MIB);
        let held = loads.try_take(3 * MIB, LoadedFor::Entity).unwrap();
        let mut large = pin!(loads.wait(4 * MIB, LoadedFor::Entity));
        assert!(poll(large.as_mut()).await.is_none());
        assert!(loads.try_take(1, LoadedFor::Entity).is_none(), "somebody waits");
        let mut small = pin!(loads.wait(1, LoadedFor::Entity));
        assert!(poll(small.as_mut()).await.is_none());
        assert!(loads.is_short());
        drop(held);
        assert!(poll(small.as_mut()).await.is_none(), "it has come later");
        drop(poll(large.as_mut()).await.unwrap());
        assert!(poll(small.as_mut()).await.is_some());
        assert!(!loads.is_short());
    }

    /// DESIGN D6: a request that is larger than the room waits until the whole room is free, and takes it.
    #[tokio::test]
    async fn larger_contents_pass_alone() {
        let loads = Loads::new(MIB);
        let alone = loads.try_take(100 * MIB, LoadedFor::Entity).unwrap();
        assert!(loads.try_take(1, LoadedFor::Entity).is_none());
        drop(alone);
        let held = loads.try_take(1, LoadedFor::Entity);
        let mut large = pin!(loads.wait(u64::MAX, LoadedFor::Forwarder));
        assert!(poll(large.as_mut()).await.is_none());
        drop(held);
        assert!(poll(large.as_mut()).await.is_some());
        assert!(Loads::new(u64::MAX).try_take(u64::MAX, LoadedFor::Forwarder).is_some());
    }

    /// DESIGN D6: forwarders have half, so that one that hangs does not hold up messages that stay in the broker.
    #[tokio::test]
    async fn forwarders_have_half() {
        let loads = Loads::new(4 * MIB);
        let hangs = loads.try_take(2 * MIB, LoadedFor::Forwarder).unwrap();
        assert!(loads.try_take(1, LoadedFor::Forwarder).is_none());
        let mut next = pin!(loads.wait(1, LoadedFor::Forwarder));
        assert!(poll(next.as_mut()).await.is_none());
        assert!(loads.try_take(2 * MIB, LoadedFor::Entity).is_some(), "nobody waits for this");
        drop(hangs);
        assert!(poll(next.as_mut()).await.is_some());
    }

    /// DESIGN D6: a wait that ends leaves nothing behind.
    #[tokio::test]
    async fn an_ended_wait_leaves_nothing_behind() {
        let loads = Loads::new(4 * MIB);
        let held = loads.try_take(MIB, LoadedFor::Entity).unwrap();
        {
            let mut waits = pin!(loads.wait(4 * MIB, LoadedFor::Entity));
            assert!(poll(waits.as_mut()).await.is_none());
        }
        assert!(loads.try_take(3 * MIB, LoadedFor::Entity).is_some());
        drop(held);
        assert!(loads.try_take(4 * MIB, LoadedFor::Entity).is_some());
    }
}
