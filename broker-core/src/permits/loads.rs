//! Room for contents that the broker loads for itself: of messages on their way to another entity or to a forwarder, and
//! of scheduled ones that are due at topics (decision 34).
//!
//! It goes to who has waited longest, and not to who has least, as what clients share ([`super::Pool`]): no client holds
//! it, and what is large is to have its turn too. What is larger than all of it takes all, and passes alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted as one: a semaphore is asked in 32 bits.
const UNIT: u64 = 1 << 10;
/// What a message takes while it is loaded, beside its content.
const MESSAGE_BYTES: u64 = 1 << 10;

/// The room of a broker.
#[derive(Clone, Debug)]
pub struct Loads {
    all: Part,
    /// The part of it that forwarders may have: one that does not answer has it until its time is over, and messages
    /// that stay in the broker are not to wait for that.
    of_forwarders: Part,
}

/// What contents are loaded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadedFor {
    /// An entity of this broker.
    Entity,
    /// A forwarder.
    Forwarder,
}

/// Room that is held until this is dropped.
#[derive(Debug)]
pub struct LoadRoom {
    _all: OwnedSemaphorePermit,
    of_forwarders: Option<OwnedSemaphorePermit>,
}

impl LoadRoom {
    /// Gives back the part of forwarders: theirs has answered, and what is held is for an entity of this broker.
    pub fn has_answered(&mut self) {
        drop(self.of_forwarders.take());
    }
}

/// What so many messages take while they are loaded, whose contents are of so many bytes.
#[must_use]
pub const fn loaded_bytes(count: usize, bytes: u64) -> u64 {
    bytes.saturating_add(MESSAGE_BYTES.saturating_mul(count as u64))
}

impl Loads {
    /// So much room.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { all: Part::new(bytes_max), of_forwarders: Part::new(bytes_max / 2) }
    }

    /// Whether somebody waits for what others hold; who waits for the part of forwarders alone does not.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.all.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes room if there is some at once and nobody waits for it.
    #[must_use]
    pub fn try_take(&self, bytes: u64, wanted: LoadedFor) -> Option<LoadRoom> {
        let of_forwarders = match wanted {
            LoadedFor::Entity => None,
            LoadedFor::Forwarder => Some(self.of_forwarders.try_take(bytes)?),
        };
        Some(LoadRoom { _all: self.all.try_take(bytes)?, of_forwarders })
    }

    /// Waits for room, behind all who have asked before. Dropping the future gives up the place.
    pub async fn take(&self, bytes: u64, wanted: LoadedFor) -> LoadRoom {
        let of_forwarders = match wanted {
            LoadedFor::Entity => None,
            LoadedFor::Forwarder => Some(self.of_forwarders.take(bytes).await),
        };
        LoadRoom { _all: self.all.take(bytes).await, of_forwarders }
    }
}

/// Somebody waits as long as this is there.
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
    /// What one takes of it at most: all.
    units_max: u32,
    /// How many wait.
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

    /// A semaphore has none to give as long as somebody waits: what comes back is his.
    fn try_take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(self.units(bytes)).ok()
    }

    async fn take(&self, bytes: u64) -> OwnedSemaphorePermit {
        let _waits = Waits::begin(&self.waiting);
        super::take(&self.room, self.units(bytes)).await
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

    /// DESIGN D6: who has waited longest goes first, however much he wants; what is small does not pass what is large.
    #[tokio::test]
    async fn room_goes_to_who_has_waited_longest() {
        let loads = Loads::new(4 * MIB);
        let held = loads.try_take(3 * MIB, LoadedFor::Entity).unwrap();
        let mut large = pin!(loads.take(4 * MIB, LoadedFor::Entity));
        assert!(poll(large.as_mut()).await.is_none());
        assert!(loads.try_take(1, LoadedFor::Entity).is_none(), "somebody waits");
        let mut small = pin!(loads.take(1, LoadedFor::Entity));
        assert!(poll(small.as_mut()).await.is_none());
        assert!(loads.is_short());
        drop(held);
        assert!(poll(small.as_mut()).await.is_none(), "it has come later");
        drop(poll(large.as_mut()).await.unwrap());
        assert!(poll(small.as_mut()).await.is_some());
        assert!(!loads.is_short());
    }

    /// DESIGN D6: what is larger than all there is waits until nobody has any, and has all of it then.
    #[tokio::test]
    async fn what_is_larger_passes_alone() {
        let loads = Loads::new(MIB);
        let alone = loads.try_take(100 * MIB, LoadedFor::Entity).unwrap();
        assert!(loads.try_take(1, LoadedFor::Entity).is_none());
        drop(alone);
        let held = loads.try_take(1, LoadedFor::Entity);
        let mut large = pin!(loads.take(u64::MAX, LoadedFor::Forwarder));
        assert!(poll(large.as_mut()).await.is_none());
        drop(held);
        assert!(poll(large.as_mut()).await.is_some());
        assert!(Loads::new(u64::MAX).try_take(u64::MAX, LoadedFor::Forwarder).is_some());
    }

    /// DESIGN D6: forwarders have half, so that none that hangs holds up messages that stay in the broker.
    #[tokio::test]
    async fn forwarders_have_half() {
        let loads = Loads::new(4 * MIB);
        let hangs = loads.try_take(2 * MIB, LoadedFor::Forwarder).unwrap();
        assert!(loads.try_take(1, LoadedFor::Forwarder).is_none());
        let mut next = pin!(loads.take(1, LoadedFor::Forwarder));
        assert!(poll(next.as_mut()).await.is_none());
        assert!(loads.try_take(2 * MIB, LoadedFor::Entity).is_some(), "nobody waits for this");
        drop(hangs);
        assert!(poll(next.as_mut()).await.is_some());
    }

    /// DESIGN D6: who gives up his place leaves nothing of it behind.
    #[tokio::test]
    async fn a_place_that_is_given_up_is_free() {
        let loads = Loads::new(4 * MIB);
        let held = loads.try_take(MIB, LoadedFor::Entity).unwrap();
        {
            let mut waits = pin!(loads.take(4 * MIB, LoadedFor::Entity));
            assert!(poll(waits.as_mut()).await.is_none());
        }
        assert!(loads.try_take(3 * MIB, LoadedFor::Entity).is_some());
        drop(held);
        assert!(loads.try_take(4 * MIB, LoadedFor::Entity).is_some());
    }
}
