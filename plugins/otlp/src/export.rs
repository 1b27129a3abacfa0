//! The exporter of traces and metrics, from its start to its stop. The server creates one [`Otlp`]
//! and gives its tracer and recorder to the broker.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig as _,
    WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData,
};
use peeklock_core::Broker;
use peeklock_core::contract::Tracer;
use peeklock_core::telemetry::{ENTITY_MESSAGES, Gauges};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::collector::Collector;
use crate::config::OtlpConfig;
use crate::entities;
use crate::received::{REMEMBERED_BYTES, REMEMBERED_MAX};
use crate::recorder::OtlpRecorder;
use crate::spans::{SPAN_BYTES, Spans};

/// Name of the instrumentation scope.
const SCOPE: &str = "peeklock";
/// Maximum number of spans that wait for the collector; further spans are dropped.
const SPANS_MAX: usize = 8_192;
/// Maximum number of spans in one request.
const BATCH_MAX: usize = 1_024;
/// Maximum time for which a span waits for others.
const BATCH_EVERY: Duration = Duration::from_secs(5);
/// Maximum memory of traces in bytes: the waiting spans, the spans in a request (which the
/// exporter converts, then encodes), and the spans remembered for settlements.
pub const TRACES_BYTES_MAX: u64 =
    ((SPANS_MAX + 3 * BATCH_MAX) * SPAN_BYTES + REMEMBERED_MAX * REMEMBERED_BYTES) as u64;
/// Time limit for a batch including retries; each attempt has less.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// Upper bound of `entity_count_max`: the SDK sizes its tables for the largest possible number of
/// series.
const ENTITIES_MAX: usize = 2_000_000;
/// Sets of series per entity. The SDK forgets the series of an entity only after the next report,
/// so an old and a new set can exist at the same time.
const SETS: usize = 2;
/// Maximum memory for the gauges of an entity, in bytes: its series in the SDK, the series of the
/// replaced entity, and two further copies while they are sent.
pub const ENTITY_GAUGES_BYTES: u64 = 16_000;

/// Reason why the exporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The client's runtime could not be created.
    #[error("the client has no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The SDK rejected the settings of the exporter.
    #[error("the exporter cannot be built: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The system returned no random bits.
    #[error("no random bits: {0}")]
    Entropy(getrandom::Error),
}

/// Sends traces and metrics to a collector. Call [`stop`](Self::stop) at the end, which sends the
/// waiting telemetry.
pub struct Otlp {
    traces: Option<(SdkTracerProvider, Arc<Spans>)>,
    metrics: Option<(SdkMeterProvider, OtlpRecorder)>,
}

impl Otlp {
    /// Starts the exporter. Does not contact the collector, which may become available later.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: &OtlpConfig) -> Result<Self, StartError> {
        let resource = resource(&config.service_name)?;
        let traces = match config.traces {
            true => Some(traces(config, resource.clone())?),
            false => None,
        };
        let metrics = match config.metrics {
            true => Some(metrics(config, resource)?),
            false => None,
        };
        Ok(Self { traces, metrics })
    }

    /// Returns the tracer for [`peeklock_core::BrokerBuilder::tracer`], or `None` if traces are
    /// off.
    #[must_use]
    pub fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        let (_, spans) = self.traces.as_ref()?;
        Some(Arc::clone(spans) as Arc<dyn Tracer>)
    }

    /// Returns the recorder of the process's metrics, or `None` if metrics are off. Install it
    /// before a broker starts.
    #[must_use]
    pub fn recorder(&self) -> Option<OtlpRecorder> {
        self.metrics.as_ref().map(|(_, recorder)| recorder.clone())
    }

    /// Adds to the metrics whether this broker is ready, and the gauges of the `entity_count_max`
    /// entities with the most messages. Call it once per broker.
    pub fn observe(&self, broker: &Broker, entity_count_max: usize) {
        if let Some((provider, _)) = &self.metrics {
            entities::observe(&meter(provider), broker, entity_count_max);
        }
    }

    /// Sends the waiting telemetry and ends. Returns after at most `timeout_max`, even if the
    /// collector does not answer. Spans that the collector has not accepted by then are lost; the
    /// log states their number.
    pub async fn stop(self, timeout_max: Duration) {
        let Self { traces, metrics } = self;
        let collector = traces.as_ref().map(|(_, spans)| spans.collector());
        let traces = traces.map(|(provider, _)| {
            run_in_thread(move || provider.shutdown_with_timeout(timeout_max))
        });
        let metrics = metrics.map(|(provider, _)| {
            run_in_thread(move || provider.shutdown_with_timeout(timeout_max))
        });
        let both = async {
            for ended in [traces, metrics].into_iter().flatten().flatten() {
                ended.await.ok();
            }
        };
        tokio::time::timeout(timeout_max, both).await.ok();
        if let Some(collector) = collector {
            collector.log_lost();
        }
    }
}

/// Runs `work`, which blocks, in a thread of its own. Returns `None` if no thread can be started;
/// the telemetry is then lost.
fn run_in_thread(
    work: impl FnOnce() -> OTelSdkResult + Send + 'static,
) -> Option<oneshot::Receiver<OTelSdkResult>> {
    let (sender, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("peeklock-otlp".to_owned());
    let thread = thread.spawn(move || sender.send(work()).is_ok());
    thread.is_ok().then_some(ended)
}

/// Describes the sender: its name, its version and its instance id.
fn resource(service_name: &str) -> Result<Resource, StartError> {
    // Includes the attributes of `OTEL_RESOURCE_ATTRIBUTES`.
    let given = Resource::builder().build();
    let mut builder = Resource::builder()
        .with_service_name(service_name.to_owned())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if given.get(&Key::from_static_str("service.instance.id")).is_none() {
        builder = builder.with_attribute(KeyValue::new("service.instance.id", random_id()?));
    }
    Ok(builder.build())
}

/// Returns a random UUID, version 4.
fn random_id() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(StartError::Entropy)?;
    let bits = (u128::from_be_bytes(bytes) & !(0xf000_c000 << 48)) | (0x4000_8000 << 48);
    let text = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    let parts: Vec<&str> = parts.into_iter().filter_map(|part| text.get(part)).collect();
    Ok(parts.join("-"))
}

fn traces(
    config: &OtlpConfig,
    resource: Resource,
) -> Result<(SdkTracerProvider, Arc<Spans>), StartError> {
    let collector = Arc::new(Collector::new(&config.endpoint, "traces"));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client(config, &collector)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(config.endpoint.of("/v1/traces"))
        .with_timeout(EXPORT_TIME)
        .build()?;
    let exporter = Counted { exporter, collector: Arc::clone(&collector) };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(SPANS_MAX)
        .with_max_export_batch_size(BATCH_MAX)
        .with_scheduled_delay(BATCH_EVERY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    let beginning = Box::new(Sampler::TraceIdRatioBased(config.sample_ratio));
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(beginning))
        .with_span_processor(processor)
        .build();
    let waiting_max = u64::try_from(SPANS_MAX + BATCH_MAX).unwrap_or(u64::MAX);
    let tracer = provider.tracer_with_scope(scope());
    let spans = Arc::new(Spans::new(tracer, collector, waiting_max));
    Ok((provider, spans))
}

fn metrics(
    config: &OtlpConfig,
    resource: Resource,
) -> Result<(SdkMeterProvider, OtlpRecorder), StartError> {
    let collector = Arc::new(Collector::new(&config.endpoint, "metrics"));
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(client(config, &collector)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(config.endpoint.of("/v1/metrics"))
        .with_timeout(EXPORT_TIME)
        .build()?;
    let reader = PeriodicReader::builder(exporter).with_interval(config.interval).build();
    // `observe` limits the number of entities. Each has one series per gauge, or one per state.
    let entities = config.entity_count_max.clamp(1, ENTITIES_MAX);
    let of_entities = move |instrument: &Instrument| {
        let is_of_entity = instrument.name().starts_with("peeklock_entity_");
        let each = if instrument.name() == ENTITY_MESSAGES { Gauges::STATE_COUNT } else { 1 };
        let series_max = entities.saturating_mul(each * SETS);
        let stream = Stream::builder().with_cardinality_limit(series_max);
        is_of_entity.then(|| stream.build().ok()).flatten()
    };
    let provider = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(reader)
        .with_view(of_entities)
        .build();
    let recorder = OtlpRecorder::new(meter(&provider));
    Ok((provider, recorder))
}

fn client(config: &OtlpConfig, collector: &Arc<Collector>) -> Result<Client, StartError> {
    let (endpoint, headers) = (config.endpoint.clone(), config.headers.clone());
    Ok(Client::new(endpoint, headers, Arc::clone(collector))?)
}

fn meter(provider: &SdkMeterProvider) -> Meter {
    provider.meter_with_scope(scope())
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// An exporter that counts its spans.
#[derive(Debug)]
struct Counted {
    exporter: SpanExporter,
    collector: Arc<Collector>,
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.collector.record_dequeued(count);
        let result = self.exporter.export(batch).await;
        if result.is_ok() {
            self.collector.delivered(count);
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
