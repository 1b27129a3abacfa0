//! Traces of a program's own that go on in what its client sends, and in what its handlers do.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use peeklock_client::{TraceContext, Traces};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The way to OpenTelemetry of a program whose spans are those of the crate `tracing`, with a layer of
/// `tracing-opentelemetry`: for `Client::with_traces`. What is sent belongs to the current span, and the span of a delivery goes
/// on from what its message belongs to.
#[derive(Debug, Default)]
pub struct SpanTraces {
    propagator: TraceContextPropagator,
}

impl SpanTraces {
    /// The one.
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

    fn go_on(&self, span: &Span, from: &TraceContext) {
        let state = from.tracestate().unwrap_or_default().to_owned();
        let carrier = HashMap::from([
            ("traceparent".to_owned(), from.traceparent().to_owned()),
            ("tracestate".to_owned(), state),
        ]);
        // Without the layer, or with a span that it does not show, there is nothing to go on.
        span.set_parent(self.propagator.extract(&carrier)).ok();
    }
}
