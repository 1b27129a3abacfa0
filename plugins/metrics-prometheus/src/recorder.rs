//! The recorder of the process, and the page that it renders. The server installs it before it
//! starts the broker.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use peeklock_core::Broker;
use peeklock_core::telemetry::{self, COMMIT_SECONDS, COMMIT_SECONDS_BUCKETS, Gauges};

use crate::both::Both;
use crate::gauges::{BrokerState, EntityGauges, Ownership};

/// Interval at which samples are sorted into buckets, so that they do not accumulate without
/// scrapes.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Reason why the recorder could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The process already has a recorder.
    #[error("this process already has a metrics recorder")]
    Taken,
    /// The recorder could not be built.
    #[error("metrics recorder cannot be built: {0}")]
    Build(#[from] BuildError),
    /// The upkeep thread could not be started.
    #[error("thread for metrics cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Renders the recorded metrics. When it is dropped, samples are sorted only at scrapes.
pub struct PrometheusMetrics {
    handle: PrometheusHandle,
    /// Its drop ends the upkeep thread.
    _alive: Sender<()>,
}

/// Installs the recorder for the whole process. Call it once, before the broker starts: the
/// broker's threads look up their counters when they start.
///
/// # Errors
/// See [`InstallError`].
pub fn install() -> Result<PrometheusMetrics, InstallError> {
    let (metrics, recorder) = build()?;
    metrics::set_global_recorder(recorder).map_err(|_| InstallError::Taken)?;
    telemetry::describe();
    Ok(metrics)
}

/// Installs the recorder like [`install`], combined with another recorder that receives the same
/// metrics.
///
/// # Errors
/// See [`InstallError`].
pub fn install_with(
    other: impl metrics::Recorder + Send + Sync + 'static,
) -> Result<PrometheusMetrics, InstallError> {
    let (metrics, recorder) = build()?;
    metrics::set_global_recorder(Both(recorder, other)).map_err(|_| InstallError::Taken)?;
    telemetry::describe();
    Ok(metrics)
}

type Recorder = metrics_exporter_prometheus::PrometheusRecorder;

pub(crate) fn build() -> Result<(PrometheusMetrics, Recorder), InstallError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(COMMIT_SECONDS.to_owned()), &COMMIT_SECONDS_BUCKETS)?
        .build_recorder();
    let handle = recorder.handle();
    let (alive, ended) = channel();
    let upkeep = handle.clone();
    std::thread::Builder::new()
        .name("peeklock-metrics".to_owned())
        .spawn(move || run_upkeep(&upkeep, &ended))?;
    Ok((PrometheusMetrics { handle, _alive: alive }, recorder))
}

fn run_upkeep(handle: &PrometheusHandle, ended: &Receiver<()>) {
    while ended.recv_timeout(UPKEEP_EVERY) == Err(RecvTimeoutError::Timeout) {
        handle.run_upkeep();
    }
}

impl PrometheusMetrics {
    /// Renders the page: all recorded metrics, the readiness of the broker, and the gauges of
    /// entities.
    #[must_use]
    pub fn render(&self, broker: &Broker, top: EntityGauges) -> String {
        let observed = match top {
            EntityGauges::None => Vec::new(),
            EntityGauges::Top(_) | EntityGauges::All => broker.observed(),
        };
        let mut page = self.handle.render();
        let state = BrokerState {
            is_ready: broker.failure().is_none()
                && broker.outage().is_none()
                && !broker.is_suspended(),
            ownership: broker.lease_left().map(|lease_left| Ownership {
                lease_left,
                is_suspended: broker.is_suspended(),
                shard_count: broker.shard_count(),
                clock_offset: broker.clock_offset(),
            }),
            is_full: broker.shortage().is_some(),
            store_bytes: broker.store_bytes(),
            entities: Gauges::of(observed),
            now: broker.now(),
        };
        crate::gauges::render(&mut page, state, top);
        page
    }
}
