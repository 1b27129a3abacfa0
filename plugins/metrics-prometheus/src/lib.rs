//! Metrics of a Peeklock broker in the text format of Prometheus.
//!
//! Counters and histograms of the broker go through the `metrics` facade to the recorder installed
//! here, without any entity label. Gauges of single entities are rendered at scrape, from what their
//! actors have published, and only of the largest entities, so that the page stays small. Absent on
//! purpose: a listener; the HTTP transport serves the page at `/metrics`.

mod beside;
mod gauges;
mod recorder;

pub use gauges::{EntityGauges, ParseError};
pub use recorder::{InstallError, PrometheusMetrics, install, install_beside};
