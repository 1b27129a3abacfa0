//! Properties as text under the field names of descriptions: plans show, compare and hash this
//! text.

use std::fmt::Write as _;

use super::plan::Change;
use crate::description::{Description, FieldValue, RetryPolicy};
use crate::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use crate::time::TimeSpan;

/// Returns the properties that differ between two descriptions of a kind, in field order.
pub(crate) fn changes<D: Description>(before: &D, after: &D) -> Vec<Change> {
    let text = |text: Option<&str>| text.map(Box::from);
    let extensions = ("extensions", text(before.extensions()), text(after.extensions()));
    let fields = D::FIELDS
        .iter()
        .map(|field| (field.name, value_text(field.get(before)), value_text(field.get(after))))
        .chain([extensions])
        .filter(|(_, before, after)| before != after);
    fields.map(|(name, before, after)| change(name, before, after)).collect()
}

/// Returns the properties that an update names, in field order; a value of none removes one.
pub(crate) fn named<D: Description>(
    update: &D::Update,
) -> impl Iterator<Item = (&'static str, Option<Box<str>>)> {
    let named = D::FIELDS.iter().map(|field| (field.name, field.named(update)));
    named.filter_map(|(name, value)| Some((name, value_text(value?))))
}

pub(super) fn change(
    property: impl Into<Box<str>>,
    before: Option<Box<str>>,
    after: Option<Box<str>>,
) -> Change {
    Change { property: property.into(), before, after }
}

fn value_text(value: FieldValue) -> Option<Box<str>> {
    match value {
        FieldValue::Span(TimeSpan::MAX) => Some("unlimited".into()),
        FieldValue::Retry(policy) => retry(policy),
        FieldValue::Text(text) => text,
        value => Some(value.to_string().into()),
    }
}

fn retry(policy: Option<RetryPolicy>) -> Option<Box<str>> {
    let RetryPolicy { kind, delay, delay_max, jitter } = policy?;
    let mut text = format!("{}, {delay}", kind.name());
    if let Some(most) = delay_max {
        // Writing into a string cannot fail.
        write!(text, " to {most}").unwrap_or_default();
    }
    if jitter.millionths() > 0 {
        write!(text, ", jitter {}", jitter.part()).unwrap_or_default();
    }
    Some(text.into())
}

/// Describes filter and action of a rule. Two rules with the same text differ at most in their
/// names.
pub(crate) fn rule_text(rule: &RuleDescription) -> Box<str> {
    let mut text = match &rule.filter {
        Filter::True => "true".to_owned(),
        Filter::False => "false".to_owned(),
        Filter::Sql(filter) => format!("sql: {}", sql(filter)),
        Filter::Correlation(filter) => format!("correlation: {}", correlation(filter)),
    };
    if let Some(action) = &rule.action {
        write!(text, "; action: {}", sql(action)).unwrap_or_default();
    }
    text.into()
}

fn sql(SqlText { text, parameters }: &SqlText) -> String {
    let mut described = text.to_string();
    for (name, value) in parameters.iter() {
        write!(described, ", @{name} = {value:?}").unwrap_or_default();
    }
    described
}

fn correlation(filter: &CorrelationFilter) -> String {
    let texts = filter.broker_properties();
    let texts = texts.map(|(field, text)| format!("{} = {text:?}", field.name));
    // The order of the properties has no meaning.
    let properties = filter.properties.iter();
    let mut properties: Vec<_> =
        properties.map(|(name, value)| format!("properties.{name} = {value:?}")).collect();
    properties.sort_unstable();
    texts.chain(properties).collect::<Vec<_>>().join(", ")
}
