//! `RuleDescription` in XML (ADM-40 to ADM-43): reads the first rule of a request and writes rules
//! in answers. `create.rs`, `update.rs` and `list.rs` use it.

use peeklock_core::error::Rejection;
use peeklock_core::path::{EntityAddress, EntityName};
use peeklock_core::rule::{CorrelationFilter, DEFAULT_RULE, Filter, RuleDescription, SqlText};
use peeklock_core::time::Timestamp;

use super::super::entry::Entry;
use super::super::path::AtomRoute;
use super::super::xml::{Element, SB, Xml};
use super::kept::{StoredElements, own};
use super::value::{Pair, Spelling, read_pairs, write_pairs};
use crate::error::Refusal;

/// Name of its element.
pub(in crate::atom) const ELEMENT: &str = "RuleDescription";
/// Version of the SQL language that all clients send.
const COMPATIBILITY: &str = "20";
/// Elements that are parsed, or that only the broker sets.
const KNOWN: [&str; 4] = ["Filter", "Action", "Name", "CreatedAt"];

/// Reads a rule, with the name from its address.
pub(in crate::atom) fn read(description: &Element, name: &str) -> Result<RuleDescription, Refusal> {
    let mut spelled = Vec::new();
    let filter = match description.child(SB, "Filter").filter(|it| !it.is_nil()) {
        Some(filter) => read_filter(filter, &mut spelled)?,
        None => Filter::True,
    };
    let mut rule = RuleDescription::new(name, filter, Timestamp::NONE);
    if let Some(action) = description.child(SB, "Action").filter(|it| !it.is_nil()) {
        rule.action = read_action(action, &mut spelled)?;
    }
    rule.extensions = StoredElements::default().with(description, &KNOWN, &spelled);
    Ok(rule)
}

/// Reads the first rule of a new subscription, with the name in its description.
pub(in crate::atom) fn read_first(description: &Element) -> Result<RuleDescription, Refusal> {
    let name = description.child(SB, "Name").map_or("", |name| name.text.trim());
    read(description, if name.is_empty() { DEFAULT_RULE } else { name })
}

fn read_filter(filter: &Element, spelled: &mut Vec<Element>) -> Result<Filter, Refusal> {
    match filter.kind.as_deref() {
        Some("TrueFilter") => Ok(Filter::True),
        Some("FalseFilter") => Ok(Filter::False),
        Some("SqlFilter") | None => Ok(Filter::Sql(read_sql(filter, spelled)?)),
        Some("CorrelationFilter") => {
            let mut correlation = CorrelationFilter::default();
            for field in CorrelationFilter::FIELDS {
                let text = filter.child(SB, field.element).filter(|it| !it.is_nil());
                field.set(&mut correlation, text.map(|it| it.text.as_str().into()));
            }
            let properties = noted(read_pairs(filter, "Properties")?, spelled);
            let properties = properties.into_iter().map(|it| (it.name.into(), it.value));
            correlation.properties = properties.collect();
            Ok(Filter::Correlation(correlation))
        }
        Some(kind) => {
            let kind: String = kind.chars().take(64).collect();
            let detail = format!(
                "the filter is a `{kind}`; it must be SqlFilter, CorrelationFilter, TrueFilter or \
                 FalseFilter"
            );
            Err(Rejection::argument(detail).into())
        }
    }
}

fn read_action(action: &Element, spelled: &mut Vec<Element>) -> Result<Option<SqlText>, Refusal> {
    match action.kind.as_deref() {
        Some("EmptyRuleAction") | None => Ok(None),
        Some("SqlRuleAction") => Ok(Some(read_sql(action, spelled)?)),
        Some(kind) => {
            let kind: String = kind.chars().take(64).collect();
            let detail =
                format!("the action is a `{kind}`; it must be SqlRuleAction or EmptyRuleAction");
            Err(Rejection::argument(detail).into())
        }
    }
}

fn read_sql(element: &Element, spelled: &mut Vec<Element>) -> Result<SqlText, Refusal> {
    let Some(text) = element.child(SB, "SqlExpression") else {
        return Err(Refusal::argument("the filter or action has no SqlExpression"));
    };
    let pairs = noted(read_pairs(element, "Parameters")?, spelled).into_iter();
    let parameters = pairs.map(|it| (it.name, it.value)).collect();
    Ok(SqlText { text: text.text.as_str().into(), parameters })
}

/// Records the names of pairs whose spelling their values do not preserve.
fn noted(pairs: Vec<Pair>, spelled: &mut Vec<Element>) -> Vec<Pair> {
    let kept = |pair: &Pair| Some(own(pair.spelling?.name(), pair.name.clone()));
    spelled.extend(pairs.iter().filter_map(kept));
    pairs
}

/// Makes the entry of a rule; `path` is the path of its subscription.
pub(in crate::atom) fn entry(
    rule: RuleDescription,
    path: &str,
) -> Result<Entry<impl Fn(&mut Xml)>, Refusal> {
    let Ok(EntityAddress { entity: EntityName::Subscription { topic, name }, .. }) =
        EntityAddress::parse(path)
    else {
        return Err(Refusal::unexpected());
    };
    let (topic, subscription) = (topic.into(), name.into());
    let name = rule.name.to_string();
    Ok(Entry {
        route: AtomRoute::Rule { topic, subscription, name: name.clone() },
        title: name,
        published: rule.created_at,
        updated: rule.created_at,
        element: ELEMENT,
        write: move |xml: &mut Xml| write(xml, &rule),
    })
}

fn write(xml: &mut Xml, rule: &RuleDescription) {
    let RuleDescription { name, filter, action, created_at, extensions } = rule;
    let kept = StoredElements::stored(extensions.as_deref());
    let spelling = |name: &str| {
        let is_so = |it: &Spelling| kept.own(it.name()).any(|known| same_name(known, name));
        Spelling::ALL.into_iter().find(is_so)
    };
    match filter {
        Filter::True => write_constant(xml, "TrueFilter", "1=1"),
        Filter::False => write_constant(xml, "FalseFilter", "1=0"),
        Filter::Sql(sql) => write_sql(xml, ("Filter", "SqlFilter"), sql, spelling),
        Filter::Correlation(filter) => write_correlation(xml, filter, spelling),
    }
    match action {
        Some(sql) => write_sql(xml, ("Action", "SqlRuleAction"), sql, spelling),
        None => xml.leaf_with("Action", &[("i:type", "EmptyRuleAction")], ""),
    }
    xml.leaf("CreatedAt", &created_at.to_string());
    xml.leaf("Name", name);
    kept.write_rest(xml, &[]);
}

/// Compares names of parameters, whose `@` is optional.
fn same_name(one: &str, other: &str) -> bool {
    one.strip_prefix('@').unwrap_or(one) == other.strip_prefix('@').unwrap_or(other)
}

fn write_constant(xml: &mut Xml, kind: &str, text: &str) {
    xml.element("Filter", &[("i:type", kind)], |xml| {
        xml.leaf("SqlExpression", text);
        xml.leaf("CompatibilityLevel", COMPATIBILITY);
    });
}

fn write_sql(
    xml: &mut Xml,
    (name, kind): (&str, &str),
    sql: &SqlText,
    spelling: impl Fn(&str) -> Option<Spelling>,
) {
    xml.element(name, &[("i:type", kind)], |xml| {
        xml.leaf("SqlExpression", &sql.text);
        xml.leaf("CompatibilityLevel", COMPATIBILITY);
        let pairs = sql.parameters.iter().map(|(name, value)| (format!("@{name}"), value));
        write_pairs(xml, "Parameters", pairs, spelling);
    });
}

fn write_correlation(
    xml: &mut Xml,
    filter: &CorrelationFilter,
    spelling: impl Fn(&str) -> Option<Spelling>,
) {
    xml.element("Filter", &[("i:type", "CorrelationFilter")], |xml| {
        for (field, text) in filter.broker_properties() {
            xml.leaf(field.element, text);
        }
        let pairs = filter.properties.iter().map(|(name, value)| (name.to_string(), value));
        write_pairs(xml, "Properties", pairs, spelling);
    });
}
