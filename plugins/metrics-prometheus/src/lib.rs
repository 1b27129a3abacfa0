//! Metrics of a Peeklock broker in the text format of Prometheus.
//!
//! Counters and histograms of the broker go through the `metrics` facade to the recorder of this
//! crate (`recorder`), without any entity label. Gauges of single entities (`gauges`) are rendered
//! for each scrape from the values that their actors publish, and only for the largest entities, so
//! that the page stays small. Deliberately absent: a listener; the HTTP transport serves the page
//! at `/metrics`. `both` combines the recorder with another one.

mod both;
mod gauges;
mod recorder;

pub use gauges::{EntityGauges, ParseError, standby_page};
pub use recorder::{InstallError, PrometheusMetrics, install, install_with};
