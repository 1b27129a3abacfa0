//! The broker of a simulated world, with its store and its clock. `run.rs` drives it one step at a
//! time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Crash, Fate, FaultStore, Random};

use peeklock_client::testing::InProcess;

const SHARD: Shard = Shard(0);

/// A broker that finishes each request before the next step.
pub(super) struct House {
    broker: Broker,
    store: Arc<FaultStore>,
    clock: Arc<ManualClock>,
    seed: u64,
    restarts: u32,
    is_slow: bool,
}

impl House {
    pub(super) fn build(seed: u64, now: Timestamp) -> Result<Self, String> {
        let store = FaultStore::at_once(1, u64::MAX);
        Self::start(seed, 0, store, now)
    }

    fn start(
        seed: u64,
        restarts: u32,
        store: Arc<FaultStore>,
        now: Timestamp,
    ) -> Result<Self, String> {
        // The previous broker may still have sleepers on its own clock.
        let clock = Arc::new(ManualClock::at(now));
        let key = (u128::from(seed) << 64) | u128::from(restarts);
        let starting = Broker::builder()
            .store(Arc::clone(&store) as _)
            .clock(Arc::clone(&clock) as _)
            .arbiters(1)
            .count_internal_work()
            .random_key(key.to_be_bytes())
            .start();
        let broker = wait(starting).map_err(|error| error.to_string())?;
        Ok(Self { broker, store, clock, seed, restarts, is_slow: false })
    }

    pub(super) fn port(&self) -> Arc<InProcess> {
        InProcess::over(self.broker.full_access())
    }

    /// Waits until the broker has done everything that is possible now.
    pub(super) fn settle(&self) {
        if self.is_slow {
            wait(self.broker.idle_except_store());
        } else {
            wait(self.broker.idle());
        }
    }

    /// Runs a future to its end.
    pub(super) fn finish<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        // Each answer of the broker advances the future by one step.
        for _ in 0..1_000 {
            if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(done);
            }
            self.settle();
        }
        None
    }

    pub(super) const fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Stops storing.
    pub(super) fn slow_down(&mut self) {
        self.store.complete_at_once(false);
        self.is_slow = true;
    }

    /// Stores the pending writes one by one, and continues.
    pub(super) fn speed_up(&mut self) {
        while self.store.complete_next(SHARD, Fate::Store) {
            self.settle();
        }
        self.store.complete_at_once(true);
        self.is_slow = false;
    }

    /// Crashes and immediately restarts with the stored data. Some of the pending writes are
    /// stored.
    pub(super) fn crash(&mut self, random: &mut Random) -> Result<usize, String> {
        let waiting = self.store.queued(SHARD);
        self.broker.abandon();
        let store = self.store.crash(Crash::KeepsSome(random));
        store.complete_at_once(true);
        let now = self.broker.now();
        *self = Self::start(self.seed, self.restarts + 1, store, now)?;
        Ok(waiting)
    }

    /// Returns the next time at which the broker acts by itself.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.clock.next_wake()
    }

    /// Advances the time; sleepers wake one by one.
    pub(super) fn pass(&self, span: TimeSpan) {
        self.clock.advance_silently(span);
        self.settle();
        while self.clock.wake_next() {
            self.settle();
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.broker.abandon();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for work of other threads, without a runtime, whose time would advance meanwhile.
pub(super) fn wait<T>(work: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
