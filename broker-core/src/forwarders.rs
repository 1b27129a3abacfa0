//! Forwarders of a broker by their schemes (FWD-02, FWD-31). The builder registers them, and
//! transfers to other schemes than queues use them. Forwarders run on threads of their own, at most
//! the configured number.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::contract::Forwarder;
use crate::error::{Quoted, Rejection};

/// All forwarders, and permits for their threads.
pub(crate) struct Forwarders {
    by_scheme: BTreeMap<&'static str, Arc<dyn Forwarder>>,
    threads: Arc<Semaphore>,
}

impl Forwarders {
    /// Creates the collection, with at most `thread_count_max` threads in all. If two forwarders
    /// have the same scheme, the later one serves it.
    pub(crate) fn new(forwarders: Vec<Arc<dyn Forwarder>>, thread_count_max: usize) -> Self {
        let mut by_scheme = BTreeMap::new();
        for forwarder in forwarders {
            for scheme in forwarder.schemes() {
                by_scheme.insert(*scheme, Arc::clone(&forwarder));
            }
        }
        let threads = Arc::new(Semaphore::new(thread_count_max.min(Semaphore::MAX_PERMITS)));
        Self { by_scheme, threads }
    }

    /// Returns all forwarders; one with several schemes appears once per scheme.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Forwarder>> {
        self.by_scheme.values().map(Arc::clone).collect()
    }

    /// Returns the forwarder of a scheme.
    pub(crate) fn get(&self, scheme: &str) -> Option<&Arc<dyn Forwarder>> {
        self.by_scheme.get(scheme)
    }

    /// Checks a destination with its forwarder (FWD-02).
    pub(crate) fn check(&self, scheme: &str, destination: &str) -> Result<(), Rejection> {
        let Some(forwarder) = self.get(scheme) else {
            let known: Vec<String> =
                self.by_scheme.keys().map(|known| format!("`{known}://`")).collect();
            let known = if known.is_empty() {
                "this broker has no forwarders".to_owned()
            } else {
                format!("this broker has forwarders for {}", known.join(", "))
            };
            return Err(Rejection::argument(format!(
                "no forwarder serves {}: {known}",
                Quoted(destination)
            )));
        };
        catch_unwind(AssertUnwindSafe(|| forwarder.check(destination))).unwrap_or_else(|_| {
            Err(Rejection::internal(format!(
                "the forwarder {} panicked on the destination {}",
                forwarder.name(),
                Quoted(destination)
            )))
        })
    }

    /// Returns a permit for one more thread; `None` if all are in use.
    pub(crate) fn thread(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.threads).try_acquire_owned().ok()
    }
}
