//! Whether the collector takes what it is sent, as far as an operator should know.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Endpoint;

/// What is known of the collector, for one signal: it may take one and not the other.
#[derive(Debug)]
pub(crate) struct Collector {
    endpoint: Endpoint,
    /// What it is sent, `traces` or `metrics`.
    signal: &'static str,
    is_silent: AtomicBool,
    /// Spans that were made, that were taken out of the queue, and that the collector has.
    made: AtomicU64,
    taken: AtomicU64,
    delivered: AtomicU64,
    overflowed: AtomicBool,
}

impl Collector {
    pub(crate) fn new(endpoint: &Endpoint, signal: &'static str) -> Self {
        Self {
            endpoint: endpoint.clone(),
            signal,
            is_silent: AtomicBool::new(false),
            made: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            overflowed: AtomicBool::new(false),
        }
    }

    /// It has taken a request.
    pub(crate) fn took(&self) {
        if self.is_silent.swap(false, Ordering::Relaxed) {
            let Self { endpoint, signal, .. } = self;
            tracing::info!(%endpoint, signal, "the collector accepts telemetry again");
        }
    }

    /// It has not; that is told once, until it does.
    pub(crate) fn refused(&self, why: &dyn Display) {
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            let Self { endpoint, signal, .. } = self;
            tracing::warn!(%endpoint, signal, %why, "the collector does not accept telemetry");
        }
    }

    /// A span was made, of which so many may wait.
    pub(crate) fn made_span(&self, waiting_max: u64) {
        let made = self.made.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // What was dropped is taken by nobody.
        let waiting = made.saturating_sub(self.taken.load(Ordering::Relaxed));
        if waiting > waiting_max
            && !self.is_silent.load(Ordering::Relaxed)
            && !self.overflowed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                endpoint = %self.endpoint,
                "spans are created faster than the collector accepts them, and some are dropped: \
                 lower otlp.sample_ratio"
            );
        }
    }

    /// So many spans were taken out of the queue.
    pub(crate) fn took_out(&self, count: usize) {
        self.taken.fetch_add(as_u64(count), Ordering::Relaxed);
    }

    /// The collector has so many more.
    pub(crate) fn delivered(&self, count: usize) {
        self.delivered.fetch_add(as_u64(count), Ordering::Relaxed);
    }

    /// Tells how many spans were made that the collector does not have, at the end.
    pub(crate) fn tell_lost(&self) {
        let delivered = self.delivered.load(Ordering::Relaxed);
        let lost = self.made.load(Ordering::Relaxed).saturating_sub(delivered);
        if lost > 0 {
            tracing::warn!(endpoint = %self.endpoint, lost, "spans are lost");
        }
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
