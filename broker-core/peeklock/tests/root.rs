//! Test of the names at the root of the crate: exactly the names that users need at first.

use std::collections::BTreeSet;

const SOURCE: &str = include_str!("../src/lib.rs");

/// Modules of plain types.
const WORDS: [&str; 19] = [
    "clock",
    "command",
    "condition",
    "contract",
    "declaration",
    "description",
    "error",
    "ids",
    "inspect",
    "limits",
    "message",
    "path",
    "policies",
    "port",
    "rule",
    "store",
    "testing",
    "time",
    "transaction",
];
/// The broker and its access control.
const BROKER: [&str; 9] = [
    "Access",
    "Broker",
    "BrokerBuilder",
    "ChecksConfig",
    "ContainerKeys",
    "JourneysConfig",
    "SamplesConfig",
    "SeriesConfig",
    "StartError",
];
/// Handles that a client opens.
const HANDLES: [&str; 14] = [
    "Admin",
    "BodyError",
    "Client",
    "CommitResult",
    "LockKeeper",
    "Received",
    "Receiver",
    "Sender",
    "SessionReceiver",
    "StateError",
    "TraceContext",
    "Traces",
    "Transaction",
    "WriteError",
];
/// Workers, jobs and requests.
const WORK: [&str; 27] = [
    "Actors",
    "Consumer",
    "ConsumerOptions",
    "Delivery",
    "Failure",
    "FromDelivery",
    "Handler",
    "Job",
    "JobError",
    "JobType",
    "Jobs",
    "Refusal",
    "RequestError",
    "Requester",
    "RequesterOptions",
    "Responder",
    "ResponseError",
    "SessionConsumerOptions",
    "SessionDelivery",
    "SessionJob",
    "actors",
    "already_settled",
    "actors_on",
    "job_message",
    "jobs",
    "json_message",
    "core",
];
/// One module per feature.
const FEATURES: [&str; 16] = [
    "amqp",
    "audit",
    "auth_jwt",
    "auth_sas",
    "console",
    "forward_log",
    "forward_peeklock",
    "forward_webhook",
    "http",
    "listen",
    "metrics_prometheus",
    "operations",
    "otlp",
    "postgres",
    "tls",
    "websocket",
];

/// Returns the names in `pub use ..::{}` and `pub mod` at the beginning of a line.
fn names() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for item in SOURCE.split("\npub ").skip(1) {
        if let Some(module) = item.strip_prefix("mod ") {
            names.extend(module.split_whitespace().next());
        } else if let Some(used) = item.strip_prefix("use ") {
            let list = used.split(';').next().unwrap_or_default();
            // An item without a list is not a name.
            let list = list.split_once("::{").map_or(list, |(_, names)| names);
            let list = list.trim_end_matches('}').split(',').map(str::trim);
            let list = list.map(|name| name.rsplit_once(" as ").map_or(name, |(_, name)| name));
            names.extend(list.filter(|name| !name.is_empty()));
        }
    }
    names
}

#[test]
fn the_root_has_the_names_needed_at_first() {
    let lists = [&WORDS[..], &BROKER, &HANDLES, &WORK, &FEATURES];
    let expected: BTreeSet<&str> = lists.into_iter().flatten().copied().collect();
    let names = names();
    let more: Vec<_> = names.difference(&expected).collect();
    let less: Vec<_> = expected.difference(&names).collect();
    assert!(more.is_empty() && less.is_empty(), "not expected: {more:?}; missing: {less:?}");
}
