//! Tests with a collector that is unreachable or slow, or that requires TLS or a header.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_otlp::{Endpoint, Headers, Otlp, OtlpConfig};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use tracing_subscriber::fmt::MakeWriter;

use crate::collector::{Collector, resource, spans};
use crate::world::{PATIENCE, SENDER, TRACE, World, config, message};

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A collector that rejects everything delays no operation, the queue stays bounded, and the log
/// reports the failure once. The test reads the log of the process, so all of this is one test.
#[tokio::test]
async fn a_rejecting_collector_is_logged_once_and_delays_nobody() {
    let log = Log::default();
    tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).init();
    let world = World::start().await;
    world.collector.answer(404);
    // More spans than the queue holds, in many batches.
    for _ in 0..10_000 {
        world.send(message(TRACE, SENDER, true)).await;
    }
    let url = world.collector.url();
    world.stop().await;
    let text = log.text();
    // Ignore log lines of other tests.
    let own = text.lines().filter(|line| line.contains(&url));
    let text: String = own.map(|line| format!("{line}\n")).collect();
    assert_eq!(text.matches("the collector does not accept telemetry").count(), 1, "{text}");
    assert!(text.contains("404"), "{text}");
    assert!(text.contains("spans are lost") && text.contains("lost=10000"), "{text}");
    assert!(!text.contains("ERROR"), "{text}");
}

/// The collector accepts a connection and never answers: the stop waits for its own time limit
/// only.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_silent_collector() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let config = OtlpConfig::new(Endpoint::new(&url, Vec::new()).unwrap());
    let otlp = Otlp::start(&config).unwrap();
    let now = std::time::SystemTime::now();
    otlp.tracer().unwrap().record(&peeklock_core::contract::Operation {
        kind: peeklock_core::contract::OperationKind::Send,
        path: "orders",
        began_at: now,
        ended_at: now,
        message_count: 0,
        messages: &[],
        result: Ok(()),
    });
    let stopping = otlp.stop(Duration::from_millis(50));
    // The exporter's own time limit is ten seconds.
    tokio::time::timeout(Duration::from_secs(5), stopping).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn headers_and_the_name_of_the_service_are_sent() {
    let collector = Collector::start();
    let mut config = config(&collector);
    config.headers = Headers::parse("Authorization: Bearer s3cret\nX-Scope: bus").unwrap();
    config.service_name = "bus-eu".to_owned();
    config.metrics = false;
    let shown = format!("{config:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    let otlp = Otlp::start(&config).unwrap();
    assert!(otlp.recorder().is_none());
    let broker = peeklock_core::Broker::builder().arbiters(1).tracer(otlp.tracer().unwrap());
    let broker = broker.start().await.unwrap();
    let queue = peeklock_core::description::QueueUpdate::default();
    broker.create_queue("orders", queue).await.unwrap();
    let message = broker.inbound(message(TRACE, SENDER, true));
    let send = peeklock_core::command::Command::Send { message };
    broker.entity("orders").unwrap().call(send).await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
    otlp.stop(PATIENCE).await;
    let requests = collector.all();
    assert!(!requests.is_empty());
    for request in &requests {
        assert_eq!(request.path, "/v1/traces");
        assert!(request.head.contains("authorization: bearer s3cret"), "{}", request.head);
        assert!(request.head.contains("x-scope: bus"), "{}", request.head);
        assert!(request.head.contains(&format!("host: {}", collector.address)));
    }
    let resource = resource(&requests);
    assert_eq!(resource["service.name"], "bus-eu");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    let instance = &resource["service.instance.id"];
    assert_eq!((instance.len(), instance.as_bytes()[14]), (36, b'4'), "{instance}");
}

/// TLS connects only to a certificate that the operator trusts.
#[tokio::test]
async fn tls_connects_only_to_trusted_collectors() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let tls = Arc::new(tls);
    let collector = Collector::over(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&tls)).ok()?;
        Some(StreamOwned::new(connection, stream))
    });
    let url = format!("https://localhost:{}", collector.address.port());
    let now = std::time::SystemTime::now();
    for (authorities, count) in [(vec![certificate], 1), (Vec::new(), 0)] {
        let mut config = OtlpConfig::new(Endpoint::new(&url, authorities).unwrap());
        config.metrics = false;
        let otlp = Otlp::start(&config).unwrap();
        otlp.tracer().unwrap().record(&peeklock_core::contract::Operation {
            kind: peeklock_core::contract::OperationKind::Send,
            path: "orders",
            began_at: now,
            ended_at: now,
            message_count: 0,
            messages: &[],
            result: Ok(()),
        });
        otlp.stop(PATIENCE).await;
        assert_eq!(spans(&collector.all()).len(), count);
    }
}
