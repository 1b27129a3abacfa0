//! The runtime of scenario, consumers and handlers: one thread with paused time. It is an actix
//! system, so that actors can be started.

use std::future::Future;

/// The runtime of a world.
pub(super) struct Runtime {
    system: actix::SystemRunner,
}

impl Runtime {
    /// Creates a runtime that calls `stalled` when none of its tasks can continue.
    pub(super) fn build(stalled: impl Fn() + Send + Sync + 'static) -> std::io::Result<Self> {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(stalled)
            .build()?;
        Ok(Self { system: actix::System::with_tokio_rt(|| tokio) })
    }

    pub(super) fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.system.block_on(work)
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.system.runtime().tokio_runtime().spawn(work));
    }
}
