//! What scenario, consumers and handlers run on: one thread whose time is paused. With the feature `actix` it is an actix
//! system, so that actors can be started.

use std::future::Future;

/// The runtime of one world.
pub(super) struct Runtime {
    #[cfg(feature = "actix")]
    system: actix::SystemRunner,
    #[cfg(not(feature = "actix"))]
    tokio: tokio::runtime::Runtime,
}

impl Runtime {
    /// One that tells when none of its tasks can go on.
    pub(super) fn build(stalled: impl Fn() + Send + Sync + 'static) -> std::io::Result<Self> {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(stalled)
            .build()?;
        #[cfg(feature = "actix")]
        let this = Self { system: actix::System::with_tokio_rt(|| tokio) };
        #[cfg(not(feature = "actix"))]
        let this = Self { tokio };
        Ok(this)
    }

    pub(super) fn block_on<F: Future>(&self, work: F) -> F::Output {
        #[cfg(feature = "actix")]
        {
            self.system.block_on(work)
        }
        #[cfg(not(feature = "actix"))]
        {
            self.tokio.block_on(work)
        }
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "actix")]
        let tokio = self.system.runtime().tokio_runtime();
        #[cfg(not(feature = "actix"))]
        let tokio = &self.tokio;
        drop(tokio.spawn(work));
    }
}
