//! Traces and metrics of a Peeklock broker for OpenTelemetry, with OTLP over HTTP.
//!
//! ```text
//!  broker ──(Tracer::record)──► spans.rs ──► queue of the SDK ──┐
//!  facade ──(Recorder)────────► recorder.rs ──► a reader ───────┴─► client.rs ──► collector
//! ```
//!
//! The core reports each operation with its times and its result
//! (`peeklock_core::contract::Tracer`). This crate converts it into a span according to the
//! semantic conventions for messaging. Counters are plain numbers in memory and are read when
//! metrics are due, so that counting costs no more than without this crate. A collector that is
//! slow or unreachable delays nobody: spans that do not fit into the queue are dropped and counted,
//! and the log reports the silent collector once.
//!
//! The modules in reading order: `config` (settings), `export` (start and stop), `spans`
//! (operations to spans) with `received` (spans for later settlements), `recorder` (counters to
//! instruments) and `entities` (gauges), `client` (HTTP), `collector` (state of the collector), and
//! `traces` (the traces of a client program, feature `client`).
//!
//! Deliberately absent: gRPC, logs, and sampler settings other than the ratio for new traces.

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
