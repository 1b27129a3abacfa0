//! Traces and metrics for an OpenTelemetry collector, if one is configured. `server.rs` starts and
//! stops it.

use std::time::Duration;

use peeklock::metrics_prometheus::{self, InstallError, PrometheusMetrics};
use peeklock::otlp::Otlp;

use super::ServeError;
use crate::config::Loaded;

/// Starts the exporter, if a collector is configured. Does not contact the collector yet.
pub fn start(loaded: &Loaded) -> Result<Option<Otlp>, ServeError> {
    let Some(config) = loaded.otlp()? else { return Ok(None) };
    let otlp = Otlp::start(&config)?;
    tracing::info!(
        endpoint = %config.endpoint,
        traces = config.traces,
        metrics = config.metrics,
        "telemetry is sent to a collector"
    );
    Ok(Some(otlp))
}

/// Installs the recorder of the metrics page, and a recorder for the collector if it receives
/// metrics.
pub fn record(otlp: Option<&Otlp>) -> Result<PrometheusMetrics, InstallError> {
    match otlp.and_then(Otlp::recorder) {
        Some(recorder) => metrics_prometheus::install_with(recorder),
        None => metrics_prometheus::install(),
    }
}

/// Sends pending telemetry for at most `patience`.
pub async fn stop(otlp: Option<Otlp>, patience: Duration) {
    if let Some(otlp) = otlp {
        otlp.stop(patience).await;
    }
}
