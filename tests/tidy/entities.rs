//! The texts that repeat the table of properties contain every property of queues, topics and
//! subscriptions. All other interfaces read the table
//! (`broker-core/words/src/description/schema.rs`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use peeklock_core::description::{
    Description, EntityStatus, Facts, FieldKind, FieldValue, QueueDescription, SessionRetryOrder,
    SubscriptionDescription, TopicDescription,
};
use peeklock_core::limits::Limits;
use peeklock_core::rule::CorrelationFilter;
use peeklock_core::time::TimeSpan;

use crate::{read, root};

const PAGE: &str = "docs/reference/entities.md";

fn type_in_typescript<D: Description>(facts: &Facts) -> String {
    let union = |names: Vec<&str>| {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        names.join(" | ")
    };
    match facts.kind {
        FieldKind::Flag => "boolean".to_owned(),
        FieldKind::Count | FieldKind::Megabytes | FieldKind::Kilobytes => "number".to_owned(),
        FieldKind::Span => "string".to_owned(),
        FieldKind::Status => {
            let settable = EntityStatus::ALL.into_iter().filter(|it| it.is_settable(D::KIND));
            union(settable.map(EntityStatus::name).collect())
        }
        FieldKind::Destination | FieldKind::Text => "string | null".to_owned(),
        FieldKind::Retry => "RetryPolicy | null".to_owned(),
        FieldKind::Order => union(SessionRetryOrder::ALL.map(SessionRetryOrder::name).to_vec()),
    }
}

/// The text between the braces of an interface, and the text before them.
fn interface<'a>(types: &'a str, name: &str) -> (&'a str, &'a str) {
    let start = format!("export interface {name}");
    let ends = types.match_indices(&start).map(|(at, _)| at + start.len());
    // The client has another interface named `Subscription` before the entity.
    let last = ends.filter(|end| types[*end..].starts_with([' ', '\n'])).last();
    let rest = &types[last.unwrap_or_else(|| panic!("no interface {name}"))..];
    let (head, rest) = rest.split_once('{').unwrap();
    (head, rest.split("\n}").next().unwrap())
}

fn check_typescript<D: Description>(types: &str, properties: &str, view: &str) {
    let (_, body) = interface(types, properties);
    let members = body.lines().map(str::trim).filter(|line| line.ends_with(';'));
    let members: BTreeSet<String> = members.map(str::to_owned).collect();
    let expected = D::FIELDS.iter();
    let expected: BTreeSet<String> = expected
        .map(|field| format!("{}?: {};", field.json, type_in_typescript::<D>(field)))
        .collect();
    assert_eq!(members, expected, "{properties} in peeklock.d.ts");
    let (head, body) = interface(types, view);
    for field in D::FIELDS.iter().filter(|field| !field.is_in_azure) {
        assert!(head.contains(&format!("\"{}\"", field.json)), "{view} omits {}", field.json);
        assert!(body.contains(&format!("\n  {}?: ", field.json)), "{view} has {}", field.json);
    }
}

/// ENT-31: the types of the JavaScript client have every property, with its type.
#[test]
fn types_of_the_javascript_client_have_every_property() {
    let types = read("transports/websocket/js/peeklock.d.ts");
    check_typescript::<QueueDescription>(&types, "QueueProperties", "Queue");
    check_typescript::<TopicDescription>(&types, "TopicProperties", "Topic");
    check_typescript::<SubscriptionDescription>(&types, "SubscriptionProperties", "Subscription");
    let (_, filter) = types.split_once("type: \"correlation\";").unwrap();
    let members = filter.split_once("/**").unwrap().0;
    let members: Vec<&str> = members.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
    let expected = CorrelationFilter::FIELDS.map(|field| format!("{}?: string;", field.json));
    assert_eq!(members, expected, "correlation filter in peeklock.d.ts");
}

/// ENT-31: the page about the protocol names every property.
#[test]
fn websocket_page_names_every_property() {
    let page = read("docs/reference/websocket.md");
    let queue = QueueDescription::FIELDS.iter().map(|field| field.json);
    let topic = TopicDescription::FIELDS.iter().map(|field| field.json);
    let subscription = SubscriptionDescription::FIELDS.iter().map(|field| field.json);
    for name in queue.chain(topic).chain(subscription) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

fn value_text(value: &FieldValue) -> String {
    match value {
        FieldValue::Span(TimeSpan::MAX) => "unlimited".to_owned(),
        value => value.to_string(),
    }
}

fn table<D: Description>() -> String {
    let limits = Limits::default();
    let mut text =
        "\n| Property | Type | Default | Range | Meaning |\n|---|---|---|---|---|\n".to_owned();
    for field in D::FIELDS {
        let kind = match field.kind {
            FieldKind::Flag => "true or false",
            FieldKind::Count => "number",
            FieldKind::Megabytes => "number of MiB",
            FieldKind::Kilobytes => "number of KiB",
            FieldKind::Span => "duration",
            FieldKind::Status => "status",
            FieldKind::Destination => "entity or URL",
            FieldKind::Text => "text",
            FieldKind::Retry => "retry policy",
            FieldKind::Order => "hold or pass",
        };
        let range = match field.range.map(|range| range(&limits)) {
            Some([_, max]) if field.kind == FieldKind::Text => format!("up to {max} characters"),
            Some([min, max]) => format!("{} to {}", value_text(&min), value_text(&max)),
            None => "-".to_owned(),
        };
        let default = value_text(&(field.default)(&limits));
        let meaning = field.doc.split(". ").next().unwrap_or_default();
        let fixed = if field.is_fixed { "; fixed at creation" } else { "" };
        let own = if field.is_in_azure { "" } else { "; not in Azure" };
        let name = field.json;
        writeln!(text, "| `{name}` | {kind} | {default} | {range} | {meaning}{fixed}{own} |")
            .unwrap();
    }
    text
}

fn filter_table() -> String {
    let mut text =
        "\n| JSON | Configuration | Command line, SQL | AMQP | Atom |\n|---|---|---|---|---|\n"
            .to_owned();
    for field in CorrelationFilter::FIELDS {
        let (json, name, key, element) = (field.json, field.name, field.key, field.element);
        let property = field.property.name();
        writeln!(text, "| `{json}` | `{name}` | `sys.{property}` | `{key}` | `{element}` |")
            .unwrap();
    }
    text
}

/// ENT-03, ENT-09, ENT-31, TOP-18: the page about entities has every property, as the table of properties has it.
#[test]
fn entities_page_lists_every_property() {
    let expected = format!(
        "# Properties of entities

The tables have the name of each property in JSON, over HTTP and WebSocket. Other interfaces derive the name from it:

| Interface | `lockDuration` there |
|---|---|
| Configuration and `peeklock apply` | `lock_duration` |
| Command line | `--lock-duration` |
| Atom, SDKs of Azure, the emulator's file, errors | `LockDuration` |

Two names differ. In Atom and in the emulator's file, `enableDeadLetteringOnFilterEvaluationExceptions` is
`DeadLetteringOnFilterEvaluationExceptions`. On the command line, `retryPolicy` is `--retry`, `--retry-delay`,
`--retry-delay-max` and `--retry-jitter`.

The defaults and ranges belong to the tier Premium with default [limits](limits.md). Durations are in ISO 8601; the command
line and the configuration also take forms such as `30s`. An update that does not name a property keeps its value. In JSON,
`null` removes a destination, a text or a retry policy. A property that is fixed at creation may be repeated in an update.

## Queue
{}
## Topic
{}
## Subscription
{}
## Correlation filter

A correlation filter of a rule compares these broker properties, each a text, and any application properties. The
emulator's file has the names of Atom.
{}",
        table::<QueueDescription>(),
        table::<TopicDescription>(),
        table::<SubscriptionDescription>(),
        filter_table(),
    );
    if std::env::var_os("PEEKLOCK_REFERENCE").is_some_and(|value| value == "write") {
        std::fs::write(root().join(PAGE), &expected).unwrap();
        return;
    }
    assert_eq!(
        read(PAGE),
        expected,
        "run this test with PEEKLOCK_REFERENCE=write to write the page"
    );
}
