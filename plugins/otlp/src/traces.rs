//! The traces of a client program: sent messages carry its current span, and its handlers' spans
//! continue the trace of the message.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use peeklock_client::{TraceContext, Traces};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Connection to OpenTelemetry for a program that uses the `tracing` crate with a layer of
/// `tracing-opentelemetry`; for `Client::with_traces`. A sent message belongs to the current span.
/// The span of a delivery continues the trace of its message.
#[derive(Debug, Default)]
pub struct SpanTraces {
    propagator: TraceContextPropagator,
}

impl SpanTraces {
    /// Creates a [`SpanTraces`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Traces for SpanTraces {
    fn current(&self) -> Option<TraceContext> {
        let mut carrier = HashMap::new();
        self.propagator.inject_context(&Span::current().context(), &mut carrier);
        let context = TraceContext::new(carrier.get("traceparent")?)?;
        Some(context.with_tracestate(carrier.get("tracestate").map_or("", String::as_str)))
    }

    fn continue_trace(&self, span: &Span, from: &TraceContext) {
        let state = from.tracestate().unwrap_or_default().to_owned();
        let carrier = HashMap::from([
            ("traceparent".to_owned(), from.traceparent().to_owned()),
            ("tracestate".to_owned(), state),
        ]);
        // Fails without the layer, or for a span that the layer does not record. Then there is no
        // trace to continue.
        span.set_parent(self.propagator.extract(&carrier)).ok();
    }
}
