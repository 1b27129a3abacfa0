//! What sends traces and metrics, from its start to its end.

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

/// Who says it.
const SCOPE: &str = "peeklock";
/// Spans that wait for the collector; further ones are dropped.
const SPANS_MAX: usize = 8_192;
/// Spans of one request.
const BATCH_MAX: usize = 1_024;
/// How long a span waits for others.
const BATCH_EVERY: Duration = Duration::from_secs(5);
/// What spans take at most until the collector has them, and what was received under them: those that wait, those of one
/// request, of which the exporter makes another form and then the bytes that are sent, and all that is remembered.
pub const TRACES_BYTES_MAX: u64 =
    ((SPANS_MAX + 3 * BATCH_MAX) * SPAN_BYTES + REMEMBERED_MAX * REMEMBERED_BYTES) as u64;
/// Time for a batch, with what is tried again; each try has less.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// Entities that have gauges, whatever is asked for: the tables of the SDK are made for as many as there may be.
const ENTITIES_MAX: usize = 2_000_000;
/// The SDK forgets the series of an entity that is shown no more only when the next are there: so many sets of them it has
/// at the same time.
const SETS: usize = 2;
/// What the gauges of one entity take: in the SDK, with those of another in whose place it is shown, and twice more while
/// they are sent.
pub const ENTITY_GAUGES_BYTES: u64 = 16_000;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No runtime could be made for the client.
    #[error("the client has no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The exporter is not as it is wanted.
    #[error("the exporter cannot be built: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The system gave no random bits.
    #[error("no random bits: {0}")]
    Entropy(getrandom::Error),
}

/// Sends traces and metrics to a collector. To be stopped: what waits is sent then.
pub struct Otlp {
    traces: Option<(SdkTracerProvider, Arc<Spans>)>,
    metrics: Option<(SdkMeterProvider, OtlpRecorder)>,
}

impl Otlp {
    /// Begins, without asking the collector anything: it may come later.
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

    /// What a broker tells of its operations, for [`peeklock_core::BrokerBuilder::tracer`]; none if no traces are sent.
    #[must_use]
    pub fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        let (_, spans) = self.traces.as_ref()?;
        Some(Arc::clone(spans) as Arc<dyn Tracer>)
    }

    /// What takes the counters of the process, to be installed before a broker is started; none if no metrics are sent.
    #[must_use]
    pub fn recorder(&self) -> Option<OtlpRecorder> {
        self.metrics.as_ref().map(|(_, recorder)| recorder.clone())
    }

    /// Sends with the metrics whether this broker is ready, and the gauges of so many of its entities, those with the most
    /// messages. Once for each broker.
    pub fn observe(&self, broker: &Broker, entity_count_max: usize) {
        if let Some((provider, _)) = &self.metrics {
            entities::observe(&meter(provider), broker, entity_count_max);
        }
    }

    /// Sends what waits, and ends. Returns after this time at the latest, whatever the collector does; spans that it
    /// does not have then are lost, and how many is told in the log.
    pub async fn stop(self, patience: Duration) {
        let Self { traces, metrics } = self;
        let collector = traces.as_ref().map(|(_, spans)| spans.collector());
        let traces = traces
            .map(|(provider, _)| in_a_thread(move || provider.shutdown_with_timeout(patience)));
        let metrics = metrics
            .map(|(provider, _)| in_a_thread(move || provider.shutdown_with_timeout(patience)));
        let both = async {
            for ended in [traces, metrics].into_iter().flatten().flatten() {
                ended.await.ok();
            }
        };
        tokio::time::timeout(patience, both).await.ok();
        if let Some(collector) = collector {
            collector.tell_lost();
        }
    }
}

/// The SDK waits with its thread. Where there can be no further one, nothing is sent any more.
fn in_a_thread(
    work: impl FnOnce() -> OTelSdkResult + Send + 'static,
) -> Option<oneshot::Receiver<OTelSdkResult>> {
    let (told, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("peeklock-otlp".to_owned());
    let thread = thread.spawn(move || told.send(work()).is_ok());
    thread.is_ok().then_some(ended)
}

/// Who sends: its name, its version, and which of several it is.
fn resource(service_name: &str) -> Result<Resource, StartError> {
    // With what `OTEL_RESOURCE_ATTRIBUTES` says.
    let given = Resource::builder().build();
    let mut builder = Resource::builder()
        .with_service_name(service_name.to_owned())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if given.get(&Key::from_static_str("service.instance.id")).is_none() {
        builder = builder.with_attribute(KeyValue::new("service.instance.id", random_id()?));
    }
    Ok(builder.build())
}

/// A UUID of version 4.
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
    // How many entities are shown is decided before; each has a series in a gauge, or one for each of its states.
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

/// An exporter whose spans are counted.
#[derive(Debug)]
struct Counted {
    exporter: SpanExporter,
    collector: Arc<Collector>,
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.collector.took_out(count);
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
