//! Tests of the traces of a client program in sent messages and handlers.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use peeklock_client::{TraceContext, Traces as _};
use peeklock_otlp::SpanTraces;
use tracing_subscriber::layer::SubscriberExt as _;

#[test]
fn messages_carry_the_current_span_and_deliveries_continue_it() {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        let traces = SpanTraces::new();
        assert_eq!(traces.current(), None);
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let from = TraceContext::new(text).unwrap().with_tracestate("a=1");
        let delivery = tracing::info_span!("delivery");
        traces.continue_trace(&delivery, &from);
        let _entered = delivery.enter();
        let current = traces.current().unwrap();
        assert_eq!(&current.traceparent()[..36], &text[..36], "the same trace");
        assert_ne!(current.traceparent(), text, "another span of it");
        assert_eq!(current.tracestate(), Some("a=1"));
    });
}
