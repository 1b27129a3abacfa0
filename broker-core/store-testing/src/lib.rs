//! Test kit for stores and for all that stands on one.
//!
//! | Item, in reading order | Purpose |
//! |---|---|
//! | [`store_conformance`] | the suite that every store must pass |
//! | [`FaultStore`] | a store that completes, fails and forgets at the command of a test |
//! | [`Member`] | its registry, for several brokers over one image |
//! | [`SimulatedDisk`] | a disk in memory that loses, tears and refuses writes |
//! | [`manual_journal`] | a journal without threads, one step at a time |
//! | [`visit_records`], [`block_on`] | read records, and await a store, on the thread of a test |
//! | [`Random`] | numbers that look random and repeat from a seed |
//!
//! Programs that embed a broker find it in `peeklock::testing`.

pub mod fault_store;
mod faults;
mod held_calls;
mod members;
pub mod random;
pub mod simulated_disk;
pub mod store_conformance;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

pub use fault_store::FaultStore;
pub use faults::{Crash, Fate, Odds, Room};
pub use members::Member;
use peeklock_store::journal::disk::Disk;
use peeklock_store::{Journal, JournalConfig, Key, Store, StoreError};
pub use random::Random;
pub use simulated_disk::{Call, Fault, Lost, Names, SimulatedDisk};

/// Opens a journal on a disk, without threads. The identity of a new journal and the seeds of its segments repeat from
/// `seed`.
///
/// # Errors
/// See [`Journal::open`].
pub fn manual_journal(
    disk: Arc<dyn Disk>,
    config: JournalConfig,
    seed: u64,
) -> Result<Arc<Journal>, StoreError> {
    let mut random = Random::new(seed);
    let identity = u128::from(random.bits());
    let seeds = Box::new(move || u32::try_from(random.below(1 << 32)).unwrap_or(0));
    Journal::manual(disk, config, identity, seeds)
}

/// Passes the key and value of each record under a prefix to `visit`, ascending by key.
///
/// # Errors
/// See [`Store::scan`].
pub fn visit_records(
    store: &dyn Store,
    prefix: &Key,
    visit: impl FnMut(&[u8], &[u8]),
) -> Result<(), StoreError> {
    block_on(store.scan(prefix).for_each(visit))
}

/// Runs a future of a store on this thread, also within a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
