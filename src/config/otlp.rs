//! The section `[otlp]`.

use std::path::Path;
use std::time::Duration;

use peeklock::otlp::{Endpoint, Headers, OtlpConfig, certificates};
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::{Ratio, Scalar, span_text};

/// How often metrics may be sent.
const INTERVALS: std::ops::RangeInclusive<TimeSpan> =
    TimeSpan::from_seconds(1)..=TimeSpan::from_minutes(60);

/// Traces and metrics for OpenTelemetry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct OtlpSection {
    /// Where the collector is; empty for none.
    pub endpoint: Scalar<String>,
    /// Where headers are; they stand in no configuration, which is shown.
    pub headers_file: Scalar<String>,
    /// Authorities beside those of the system; empty for none.
    pub ca_file: Scalar<String>,
    /// Whether spans are sent.
    pub traces: Scalar<bool>,
    /// Whether metrics are sent.
    pub metrics: Scalar<bool>,
    /// How many of the traces that begin here are recorded.
    pub sample_ratio: Scalar<Ratio>,
    /// How often metrics are sent.
    pub interval: Scalar<TimeSpan>,
    /// What the broker is called there.
    pub service_name: Scalar<String>,
}

impl OtlpSection {
    /// The same in the words of the exporter, if there is a collector, which gets gauges of so many entities at most; reads the
    /// files that are named.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn config(&self, entity_count_max: usize) -> Result<Option<OtlpConfig>, (String, String)> {
        let wrong = |key: &str, detail: String| (format!("otlp.{key}"), detail);
        if !INTERVALS.contains(&self.interval.0) {
            let [value, least, most] =
                [self.interval.0, *INTERVALS.start(), *INTERVALS.end()].map(span_text);
            return Err(wrong(
                "interval",
                format!("{value} is out of range; write a duration from {least} to {most}"),
            ));
        }
        if self.service_name.0.trim().is_empty() {
            return Err(wrong("service_name", "the name is empty; write a name".to_owned()));
        }
        let headers = match self.headers_file.0.as_str() {
            "" => Headers::default(),
            file => Headers::read(Path::new(file))
                .map_err(|error| wrong("headers_file", format!("the headers {error}")))?,
        };
        let authorities = match self.ca_file.0.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| wrong("ca_file", error.to_string()))?,
        };
        if self.endpoint.0.is_empty() {
            return Ok(None);
        }
        let endpoint = Endpoint::new(&self.endpoint.0, authorities)
            .map_err(|error| wrong("endpoint", format!("the endpoint {error}")))?;
        let interval: Duration = self.interval.0.to_std();
        Ok(Some(OtlpConfig {
            endpoint,
            headers,
            traces: self.traces.0,
            metrics: self.metrics.0,
            sample_ratio: self.sample_ratio.0.0,
            interval,
            entity_count_max,
            service_name: self.service_name.0.clone(),
        }))
    }
}
