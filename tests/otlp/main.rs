//! The program sends traces and metrics to the configured collector, and otherwise sends nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "the collector is shared with the tests of the plugin")]

mod collector;
mod program;

use std::net::TcpListener;

use collector::{Collector, hex, named, numbers, resource, spans, texts};
use opentelemetry_proto::tonic::trace::v1::Span;
use program::{Program, directory, run};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SENDER: &str = "b7ad6b7169203331";

/// A send, a receive and a settlement over WebSocket; a send, a receive and a refused settlement
/// over HTTP.
fn use_it(program: &Program) {
    let traceparent = format!("traceparent=00-{TRACE}-{SENDER}-01");
    let url = &program.websocket;
    run(&["queue", "create", "orders", "--url", url], 0);
    run(&["send", "orders", "two coffees", "--id", "order-1", "-p", &traceparent, "--url", url], 0);
    run(&["receive", "orders", "--url", url], 0);
    assert_eq!(program.ask("POST", "/orders/messages", "a tea"), 201);
    assert_eq!(program.ask("DELETE", "/orders/messages/head", ""), 200);
    // That lock does not exist.
    assert_eq!(
        program.ask("PUT", "/orders/messages/9/00000000-0000-0009-0000-000000000001", ""),
        404
    );
}

#[test]
fn a_collector_gets_traces_and_metrics() {
    let collector = Collector::start();
    let place = directory("sends");
    let headers = place.join("otlp.headers");
    std::fs::write(&headers, "Authorization: Bearer s3cret\n").unwrap();
    let config = format!(
        "[otlp]\nendpoint = \"{}\"\nheaders_file = \"{}\"\nservice_name = \"bus-eu\"\n",
        collector.url(),
        headers.display()
    );
    let program = Program::start(&place, &config, &[]);
    use_it(&program);
    let log = program.stop();
    assert!(!log.contains("s3cret"), "{log}");
    let requests = collector.all();
    for request in &requests {
        assert!(request.head.contains("authorization: bearer s3cret"), "{}", request.head);
    }
    assert_eq!(resource(&requests)["service.name"], "bus-eu");

    let spans = spans(&requests);
    let (of_trace, others): (Vec<Span>, Vec<Span>) =
        spans.into_iter().partition(|span| hex(&span.trace_id) == TRACE);
    let send = named(&of_trace, "send orders");
    assert_eq!(hex(&send.parent_span_id), SENDER);
    assert_eq!(texts(&send.attributes)["messaging.message.id"], "order-1");
    let receive = named(&of_trace, "receive orders");
    assert_eq!(hex(&receive.parent_span_id), SENDER);
    assert_eq!(named(&of_trace, "complete orders").parent_span_id, receive.span_id);
    assert_eq!(of_trace.len(), 3);
    // Requests over HTTP have no parent span.
    for name in ["send orders", "receive orders"] {
        assert!(named(&others, name).parent_span_id.is_empty());
    }
    let refused = others.iter().find(|span| texts(&span.attributes).contains_key("error.type"));
    assert_eq!(texts(&refused.unwrap().attributes)["error.type"], "MessageLockLost");

    let numbers = numbers(&requests);
    for (series, expected) in [
        ("peeklock_ready{}", 1.0),
        ("peeklock_messages_accepted_total{}", 2.0),
        ("peeklock_messages_removed_total{reason=completed}", 2.0),
        ("peeklock_rejections_total{condition=MessageLockLost}", 1.0),
        ("peeklock_entity_messages{entity=orders,state=active}", 0.0),
        ("peeklock_entity_size_bytes{entity=orders}", 0.0),
    ] {
        assert_eq!(numbers.get(series), Some(&expected), "{series} in {numbers:#?}");
    }
    assert!(numbers["peeklock_store_commit_seconds{}"] >= 2.0);
}

/// Only the endpoint setting enables export. The environment variables of OpenTelemetry do not.
#[test]
fn without_an_endpoint_nothing_is_sent() {
    let collector = Collector::start();
    let place = directory("off");
    let url = collector.url();
    let program = Program::start(&place, "", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    use_it(&program);
    program.stop();
    assert!(collector.all().is_empty());
}

#[test]
fn either_can_be_left_out() {
    for (left_out, path) in [("traces", "/v1/metrics"), ("metrics", "/v1/traces")] {
        let collector = Collector::start();
        let place = directory(left_out);
        let config = format!("[otlp]\nendpoint = \"{}\"\n{left_out} = false\n", collector.url());
        let program = Program::start(&place, &config, &[]);
        use_it(&program);
        program.stop();
        let requests = collector.all();
        assert!(!requests.is_empty());
        assert!(requests.iter().all(|request| request.path == path), "{left_out}");
    }
}

/// A missing collector blocks nothing: clients are served, and the stop is in order. The failure is
/// logged once.
#[test]
fn without_its_collector_the_program_works_and_stops() {
    // A port that was free and has no listener now.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = directory("down");
    let config = format!("[otlp]\nendpoint = \"http://{free}\"\n");
    let program = Program::start(&place, &config, &[]);
    use_it(&program);
    let log = program.stop();
    for signal in ["traces", "metrics"] {
        let line = format!("signal=\"{signal}\"");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
    assert!(log.contains("spans are lost") && log.contains("stopped"), "{log}");
}

#[test]
fn an_invalid_setting_is_refused_by_its_key() {
    let place = directory("wrong");
    std::fs::write(place.join("bad.headers"), "s3cret\n").unwrap();
    let file = place.join("bad.headers").display().to_string();
    for (line, expected) in [
        ("endpoint = \"127.0.0.1:4318\"", "is not a URL"),
        ("endpoint = \"grpc://a.net:4317\"", "must begin with http:// or https://"),
        ("endpoint = \"https://u:s3cret@a.net\"", "put secrets into headers"),
        (&format!("headers_file = \"{file}\""), "line 1"),
        ("ca_file = \"/nowhere.pem\"", "nowhere.pem"),
        ("sample_ratio = 1.5", "a number from 0 to 1"),
        ("interval = \"10ms\"", "from 1s to 1h"),
        ("service_name = \" \"", "the name is empty"),
    ] {
        std::fs::write(place.join("peeklock.toml"), format!("[otlp]\n{line}\n")).unwrap();
        let file = place.join("peeklock.toml").display().to_string();
        let output = run(&["config", "check", "--config", &file], 2);
        let key = line.split(' ').next().unwrap();
        assert!(output.contains(&format!("otlp.{key}")), "{line}: {output}");
        assert!(output.contains(expected), "{line}: {output}");
        let shown = !line.contains("endpoint") && output.contains("s3cret");
        assert!(!shown, "{output}");
    }
}
