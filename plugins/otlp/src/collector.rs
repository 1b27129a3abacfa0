//! State of a collector, as logged for the operator. `client.rs` and `export.rs` report each
//! request and each span. A change is logged once, not once per request.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Endpoint;

/// State of the collector for one signal: it may accept one signal and reject the other.
#[derive(Debug)]
pub(crate) struct Collector {
    endpoint: Endpoint,
    /// `traces` or `metrics`.
    signal: &'static str,
    is_silent: AtomicBool,
    /// Numbers of spans: created, taken out of the queue, and accepted by the collector.
    made: AtomicU64,
    dequeued: AtomicU64,
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
            dequeued: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Records that the collector accepted a request.
    pub(crate) fn record_accepted(&self) {
        if self.is_silent.swap(false, Ordering::Relaxed) {
            let Self { endpoint, signal, .. } = self;
            tracing::info!(%endpoint, signal, "the collector accepts telemetry again");
        }
    }

    /// Records a rejected or failed request. The first one is logged; the next only after a
    /// success.
    pub(crate) fn record_rejected(&self, why: &dyn Display) {
        if !self.is_silent.swap(true, Ordering::Relaxed) {
            let Self { endpoint, signal, .. } = self;
            tracing::warn!(%endpoint, signal, %why, "the collector does not accept telemetry");
        }
    }

    /// Records a new span. Logs one warning if more than `waiting_max` spans wait for the
    /// collector.
    pub(crate) fn record_span(&self, waiting_max: u64) {
        let made = self.made.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // Spans that the SDK dropped are never dequeued, so this number includes them.
        let waiting = made.saturating_sub(self.dequeued.load(Ordering::Relaxed));
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

    /// Records that `count` spans left the queue.
    pub(crate) fn record_dequeued(&self, count: usize) {
        self.dequeued.fetch_add(as_u64(count), Ordering::Relaxed);
    }

    /// Records that the collector accepted `count` spans.
    pub(crate) fn delivered(&self, count: usize) {
        self.delivered.fetch_add(as_u64(count), Ordering::Relaxed);
    }

    /// Logs the number of spans that the collector never accepted. To be called at the end.
    pub(crate) fn log_lost(&self) {
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
