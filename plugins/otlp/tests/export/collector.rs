//! A test collector that accepts OTLP over HTTP and returns the received requests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// Time after which a waiting test fails.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Content of a request.
pub struct Request {
    pub path: String,
    pub head: String,
    pub body: Vec<u8>,
}

pub struct Collector {
    pub address: SocketAddr,
    requests: Mutex<Receiver<Request>>,
    status: Arc<AtomicU16>,
}

impl Collector {
    /// Starts a collector that accepts everything.
    pub fn start() -> Self {
        Self::over(Some)
    }

    /// Starts a collector over streams that `wrap` makes from connections.
    pub fn over<S: Read + Write + Send>(
        wrap: impl Fn(TcpStream) -> Option<S> + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (told, requests) = channel();
        let status = Arc::new(AtomicU16::new(200));
        let answer = Arc::clone(&status);
        // The threads end with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (wrap, told, answer) = (wrap.clone(), told.clone(), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(mut stream) = wrap(stream.unwrap()) else { return };
                    while let Some(request) = read(&mut stream) {
                        let status = answer.load(Ordering::SeqCst);
                        // Sent before the answer: a client that has the answer may look for the
                        // request.
                        told.send(request).ok();
                        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                        if stream.write_all(text.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests: Mutex::new(requests), status }
    }

    /// Sets the status of all further answers.
    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request, for at most [`WAIT_MAX`].
    pub fn next(&self) -> Request {
        self.requests.lock().unwrap().recv_timeout(WAIT_MAX).expect("a request")
    }

    /// Returns all requests received up to now.
    pub fn all(&self) -> Vec<Request> {
        self.requests.lock().unwrap().try_iter().collect()
    }
}

fn read(stream: &mut impl Read) -> Option<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    Some(Request { path, head, body })
}

/// Returns the spans in these requests.
pub fn spans(requests: &[Request]) -> Vec<Span> {
    let traces = requests.iter().filter(|request| request.path.ends_with("/v1/traces"));
    let decoded = traces.map(|request| {
        assert!(request.head.contains("content-type: application/x-protobuf"), "{}", request.head);
        ExportTraceServiceRequest::decode(&request.body[..]).unwrap()
    });
    decoded
        .flat_map(|request| request.resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

/// Returns the resource attributes of the spans' sender.
pub fn resource(requests: &[Request]) -> BTreeMap<String, String> {
    let traces = requests.iter().find(|request| request.path.ends_with("/v1/traces")).unwrap();
    let request = ExportTraceServiceRequest::decode(&traces.body[..]).unwrap();
    texts(&request.resource_spans[0].resource.as_ref().unwrap().attributes)
}

/// Returns the only span with this name.
pub fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    let span = found.next().unwrap_or_else(|| panic!("no `{name}` among {names:?}"));
    assert!(found.next().is_none(), "several `{name}` among {names:?}");
    span
}

/// Returns attributes as texts.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        }
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the latest value of each `name{label=value}` in these requests: numbers of counters and
/// gauges, and sample counts of histograms.
pub fn numbers(requests: &[Request]) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::new();
    let metrics = requests.iter().filter(|request| request.path.ends_with("/v1/metrics"));
    for request in metrics {
        let request = ExportMetricsServiceRequest::decode(&request.body[..]).unwrap();
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let series = |attributes: &[KeyValue]| {
                let labels: Vec<String> =
                    texts(attributes).iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("{}{{{}}}", metric.name, labels.join(","))
            };
            let points = match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => &sum.data_points,
                Data::Gauge(gauge) => &gauge.data_points,
                Data::Histogram(histogram) => {
                    for point in &histogram.data_points {
                        numbers.insert(series(&point.attributes), point.count as f64);
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            };
            for point in points {
                let value = match point.value.unwrap() {
                    number_data_point::Value::AsDouble(value) => value,
                    number_data_point::Value::AsInt(value) => value as f64,
                };
                numbers.insert(series(&point.attributes), value);
            }
        }
    }
    numbers
}
