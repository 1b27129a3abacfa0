//! Traces and metrics of a Peeklock broker for OpenTelemetry, by OTLP over HTTP.
//!
//! ```text
//!  broker ──(Tracer::record)──► spans.rs ──► queue of the SDK ──┐
//!  facade ──(Recorder)────────► recorder.rs ──► a reader ───────┴─► client.rs ──► collector
//! ```
//!
//! The core says what was asked, when, and what came of it (`peeklock_core::contract::Tracer`); here that becomes spans
//! by the semantic conventions for messaging. Counters are kept as plain numbers and read when they are due, so that
//! counting costs what it costs without this. A collector that is slow or gone holds up nobody: what does not fit into the queue
//! is dropped and counted, and its silence is told in the log once.
//!
//! Absent on purpose: gRPC, logs, and any setting of a sampler beside the ratio of traces that begin here.

mod client;
mod collector;
mod config;
mod entities;
mod export;
mod received;
mod recorder;
mod spans;
#[cfg(feature = "client")]
mod traces;

pub use config::{Endpoint, EndpointError, Headers, HeadersError, OtlpConfig};
pub use export::{ENTITY_GAUGES_BYTES, Otlp, StartError, TRACES_BYTES_MAX};
#[doc(no_inline)]
pub use peeklock_reach::{AuthoritiesError, CertificateDer, certificates};
pub use recorder::OtlpRecorder;
#[cfg(feature = "client")]
pub use traces::SpanTraces;
