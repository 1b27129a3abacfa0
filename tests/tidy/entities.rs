//! The texts that repeat the tables of properties contain every property of queues, topics,
//! subscriptions, rules and policies. Other interfaces read the tables, which are in `broker-core/words/src`: for entities
//! `description/schema.rs`, for policies `policy.rs`, for correlation filters `rule/correlation.rs`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use peeklock_core::description::{
    Description, EntityStatus, Facts, FieldKind, FieldValue, QueueDescription, SessionRetryOrder,
    SubscriptionDescription, TopicDescription,
};
use peeklock_core::limits::Limits;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock_core::time::TimeSpan;

use crate::{read, root};

const PAGE: &str = "docs/reference/entities.md";

/// The properties of a rule, with their names in JSON, in the configuration, on the command line, over AMQP and in Atom;
/// `-` where an interface lacks the property. Correlation filters have a table.
const RULE: [[&str; 6]; 8] = [
    [
        "name",
        "name",
        "RULE",
        "rule-name",
        "Name",
        "Name, unique in the subscription, ignoring case",
    ],
    [
        "filter.type",
        "filter",
        "--all",
        "sql-filter",
        "Filter",
        "Kind of filter: it selects every message, none, or by one of the following properties",
    ],
    ["filter.sql", "sql", "--sql", "expression", "SqlExpression", "Condition in SQL"],
    [
        "filter.parameters",
        "sql_parameters",
        "--parameter",
        "-",
        "Parameters",
        "Values of the parameters in the condition",
    ],
    [
        "filter.properties",
        "correlation",
        "--correlation",
        "properties",
        "Properties",
        "Values that application properties must have",
    ],
    ["action.sql", "action", "--action", "sql-rule-action", "SqlRuleAction", "Changes in SQL"],
    [
        "action.parameters",
        "action_parameters",
        "--action-parameter",
        "-",
        "Parameters",
        "Values of the parameters in the changes",
    ],
    ["createdAt", "-", "-", "-", "CreatedAt", "Time of creation, set by the broker"],
];

/// Compiles only while `RULE` and the table of correlation filters can have a row for each part of a rule. A new part needs a
/// row.
const fn every_part_has_a_row(rule: &RuleDescription) {
    let RuleDescription { name: _, filter, action, created_at: _, extensions: _ } = rule;
    match filter {
        Filter::True | Filter::False | Filter::Correlation(_) => {}
        Filter::Sql(SqlText { text: _, parameters: _ }) => {}
    }
    if let Some(SqlText { text: _, parameters: _ }) = action {}
}

/// Properties of policies, each with its name and documentation.
type Listed = &'static [(&'static str, &'static str)];

macro_rules! policy_names {
    (
        given { $($(#[doc = $doc:literal])* $given:ident: $_kind:ty as $_json:ty = $_label:literal,)+ }
        secret { $($(#[doc = $secret_doc:literal])* $secret:ident = $_secret_label:literal,)+ }
        instants { $($(#[doc = $instant_doc:literal])* $instant:ident = $_instant_label:literal,)+ }
    ) => {
        const GIVEN: Listed = &[$((stringify!($given), concat!($($doc),*)),)+];
        const SECRET: Listed = &[$((stringify!($secret), concat!($($secret_doc),*)),)+];
        const INSTANTS: Listed = &[$((stringify!($instant), concat!($($instant_doc),*)),)+];
    };
}

peeklock_core::policy_properties!(policy_names);

/// A name in the spelling of JSON.
fn in_json(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| text + &word[..1].to_uppercase() + &word[1..])
}

/// The names of some properties of policies in JSON.
fn of_policies(listed: &[Listed]) -> BTreeSet<String> {
    listed.iter().copied().flatten().map(|(name, _)| in_json(name)).collect()
}

/// The names in JSON of the properties in a part of a rule; the rule itself is the part `""`.
fn of_rules(part: &str) -> BTreeSet<String> {
    let names = RULE.iter().filter_map(|[json, ..]| match part {
        "" => json.split('.').next(),
        part => json.strip_prefix(part)?.strip_prefix('.'),
    });
    names.map(str::to_owned).collect()
}

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

/// The names of the members in the body of an interface.
fn members(body: &str) -> BTreeSet<String> {
    let members = body.lines().map(str::trim).filter(|line| line.ends_with(';'));
    let name = |line: &str| line.split([':', '?']).next().unwrap_or_default().to_owned();
    members.map(name).collect()
}

/// TOP-14: the types of the JavaScript client have every property of a rule.
#[test]
fn types_of_the_javascript_client_have_every_property_of_a_rule() {
    let types = read("transports/websocket/js/peeklock.d.ts");
    let rule: BTreeSet<_> = ["NewRule", "Rule"]
        .into_iter()
        .flat_map(|name| members(interface(&types, name).1))
        .collect();
    assert_eq!(rule, of_rules(""), "NewRule and Rule in peeklock.d.ts");
    assert_eq!(members(interface(&types, "SqlText").1), of_rules("action"), "SqlText");
}

/// SEC-02, TOP-14: the schemas of the JSON API have exactly the properties of rules and policies.
#[test]
fn schemas_have_every_property_of_rules_and_policies() {
    let document: serde_json::Value = serde_json::from_str(&peeklock_http::openapi_json()).unwrap();
    let name: Listed = &[("name", "")];
    let correlation = CorrelationFilter::FIELDS.map(|field| field.json.to_owned());
    for (schema, expected) in [
        ("RuleForm", of_rules("")),
        ("FilterForm", of_rules("filter").into_iter().chain(correlation).collect()),
        ("SqlForm", of_rules("action")),
        ("PolicyProperties", of_policies(&[GIVEN, SECRET])),
        ("PolicyView", of_policies(&[name, GIVEN, INSTANTS])),
        ("PolicyKeysView", of_policies(&[name, GIVEN, SECRET, INSTANTS])),
    ] {
        let properties = &document["components"]["schemas"][schema]["properties"];
        let properties: BTreeSet<String> =
            properties.as_object().unwrap().keys().cloned().collect();
        assert_eq!(properties, expected, "{schema}");
    }
}

/// TOP-14: the configuration, the command line, AMQP and Atom have every property of a rule.
#[test]
fn every_interface_has_the_properties_of_a_rule() {
    let config = read("src/config/rule.rs");
    let (_, declaration) = config.split_once("struct RuleDeclaration {").unwrap();
    let declaration = declaration.split("\n}").next().unwrap();
    let page = read("docs/reference/command-line.md");
    let amqp = read("transports/amqp/src/server/node/management/rules.rs");
    let atom = read("transports/http/src/atom/form/rule.rs");
    every_part_has_a_row(&Filter::True.named("r"));
    for [json, name, flag, key, element, _] in RULE {
        for (text, name, written) in [
            (declaration, name, format!(" {name}: ")),
            (page.as_str(), flag, flag.to_owned()),
            (amqp.as_str(), key, format!("\"{key}\"")),
            (atom.as_str(), element, format!("\"{element}\"")),
        ] {
            assert!(name == "-" || text.contains(&written), "{json}: {name}");
        }
    }
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
    let policies = of_policies(&[GIVEN, SECRET, INSTANTS]);
    let rules = ["", "filter", "action"].into_iter().flat_map(of_rules);
    for name in policies.into_iter().chain(rules) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// SEC-02: the page about the JSON API names the properties of policies in requests.
#[test]
fn rest_page_names_every_property_of_policies() {
    let page = read("docs/reference/rest.md");
    for name in of_policies(&[GIVEN, SECRET]) {
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

fn rule_table() -> String {
    let mut text =
        "\n| JSON | Configuration | Command line | AMQP | Atom | Meaning |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for [json, name, flag, key, element, meaning] in RULE {
        let names = [json, name, flag, key, element].map(|name| match name {
            "-" => "-".to_owned(),
            name => format!("`{name}`"),
        });
        writeln!(text, "| {} | {meaning} |", names.join(" | ")).unwrap();
    }
    text
}

fn policy_table() -> String {
    let mut text = "\n| Property | In | Meaning |\n|---|---|---|\n".to_owned();
    for (listed, place) in [
        (GIVEN, "requests, answers"),
        (SECRET, "requests, answers about keys"),
        (INSTANTS, "answers"),
    ] {
        for (name, doc) in listed {
            let meaning = doc.trim().trim_end_matches('.');
            writeln!(text, "| `{}` | {place} | {meaning} |", in_json(name)).unwrap();
        }
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
## Rule

An update replaces a rule as a whole. In JSON, the filter and the action are objects; the dots below stand for their
members.
{}
## Correlation filter

A correlation filter of a rule compares these broker properties, each a text, and any application properties. The
emulator's file has the names of Atom.
{}
## Policy

A policy also has a `name`, which is part of its address. An update that does not name a property keeps its value.
{}",
        table::<QueueDescription>(),
        table::<TopicDescription>(),
        table::<SubscriptionDescription>(),
        rule_table(),
        filter_table(),
        policy_table(),
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
