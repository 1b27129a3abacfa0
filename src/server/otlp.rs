//! Traces and metrics for a collector of OpenTelemetry, where the configuration names one.

use std::time::Duration;

use peeklock::metrics_prometheus::{self, InstallError, PrometheusMetrics};
use peeklock::otlp::Otlp;

use super::ServeError;
use crate::config::Loaded;

/// Begins to send, if there is somebody to send to. Nobody is asked anything yet.
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

/// Installs the recorder of the metrics page, and beside it that of the collector if it gets metrics.
pub fn record(otlp: Option<&Otlp>) -> Result<PrometheusMetrics, InstallError> {
    match otlp.and_then(Otlp::recorder) {
        Some(recorder) => metrics_prometheus::install_beside(recorder),
        None => metrics_prometheus::install(),
    }
}

/// Sends what waits, for as long as this.
pub async fn stop(otlp: Option<Otlp>, patience: Duration) {
    if let Some(otlp) = otlp {
        otlp.stop(patience).await;
    }
}
