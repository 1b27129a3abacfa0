//! Properties as text, by the names of the fields of descriptions: what plans show, compare and digest.

use std::fmt::Write as _;

use super::plan::Change;
use crate::description::{
    QueueDescription, RetryPolicy, SubscriptionDescription, TopicDescription,
};
use crate::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use crate::time::TimeSpan;

/// A property and its value, if it has one.
pub(super) type Property = (&'static str, Option<Box<str>>);

/// A description whose properties can be told.
pub(crate) trait Told {
    /// All of them but names, always in the same order.
    fn told(&self) -> Vec<Property>;
}

/// The properties that differ between two descriptions of a kind.
pub(super) fn changes(before: &impl Told, after: &impl Told) -> Vec<Change> {
    let pairs = before.told().into_iter().zip(after.told());
    let differing = pairs.filter(|((_, before), (_, after))| before != after);
    differing.map(|((name, before), (_, after))| change(name, before, after)).collect()
}

pub(super) fn change(
    property: impl Into<Box<str>>,
    before: Option<Box<str>>,
    after: Option<Box<str>>,
) -> Change {
    Change { property: property.into(), before, after }
}

fn some(value: impl ToString) -> Option<Box<str>> {
    Some(value.to_string().into())
}

fn span(span: TimeSpan) -> Option<Box<str>> {
    if span.is_unlimited() { some("unlimited") } else { some(span) }
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

impl Told for QueueDescription {
    fn told(&self) -> Vec<Property> {
        let Self {
            path: _,
            lock_duration,
            max_size_in_megabytes,
            requires_duplicate_detection,
            duplicate_detection_history_time_window,
            requires_session,
            default_message_time_to_live,
            dead_lettering_on_message_expiration,
            max_delivery_count,
            enable_batched_operations,
            status,
            forward_to,
            forward_dead_lettered_messages_to,
            auto_delete_on_idle,
            enable_partitioning,
            enable_express,
            max_message_size_in_kilobytes,
            user_metadata,
            retry_policy,
            session_retry_order,
            extensions,
        } = self;
        vec![
            ("lock_duration", span(*lock_duration)),
            ("max_size_in_megabytes", some(max_size_in_megabytes)),
            ("requires_duplicate_detection", some(requires_duplicate_detection)),
            (
                "duplicate_detection_history_time_window",
                span(*duplicate_detection_history_time_window),
            ),
            ("requires_session", some(requires_session)),
            ("default_message_time_to_live", span(*default_message_time_to_live)),
            ("dead_lettering_on_message_expiration", some(dead_lettering_on_message_expiration)),
            ("max_delivery_count", some(max_delivery_count)),
            ("enable_batched_operations", some(enable_batched_operations)),
            ("status", some(status.name())),
            ("forward_to", forward_to.clone()),
            ("forward_dead_lettered_messages_to", forward_dead_lettered_messages_to.clone()),
            ("auto_delete_on_idle", span(*auto_delete_on_idle)),
            ("enable_partitioning", some(enable_partitioning)),
            ("enable_express", some(enable_express)),
            ("max_message_size_in_kilobytes", some(max_message_size_in_kilobytes)),
            ("user_metadata", user_metadata.clone()),
            ("retry_policy", retry(*retry_policy)),
            ("session_retry_order", some(session_retry_order.name())),
            ("extensions", extensions.clone()),
        ]
    }
}

impl Told for TopicDescription {
    fn told(&self) -> Vec<Property> {
        let Self {
            path: _,
            max_size_in_megabytes,
            requires_duplicate_detection,
            duplicate_detection_history_time_window,
            default_message_time_to_live,
            enable_batched_operations,
            status,
            auto_delete_on_idle,
            enable_partitioning,
            enable_express,
            support_ordering,
            max_message_size_in_kilobytes,
            user_metadata,
            extensions,
        } = self;
        vec![
            ("max_size_in_megabytes", some(max_size_in_megabytes)),
            ("requires_duplicate_detection", some(requires_duplicate_detection)),
            (
                "duplicate_detection_history_time_window",
                span(*duplicate_detection_history_time_window),
            ),
            ("default_message_time_to_live", span(*default_message_time_to_live)),
            ("enable_batched_operations", some(enable_batched_operations)),
            ("status", some(status.name())),
            ("auto_delete_on_idle", span(*auto_delete_on_idle)),
            ("enable_partitioning", some(enable_partitioning)),
            ("enable_express", some(enable_express)),
            ("support_ordering", some(support_ordering)),
            ("max_message_size_in_kilobytes", some(max_message_size_in_kilobytes)),
            ("user_metadata", user_metadata.clone()),
            ("extensions", extensions.clone()),
        ]
    }
}

impl Told for SubscriptionDescription {
    fn told(&self) -> Vec<Property> {
        let Self {
            topic: _,
            name: _,
            lock_duration,
            requires_session,
            default_message_time_to_live,
            dead_lettering_on_message_expiration,
            enable_dead_lettering_on_filter_evaluation_exceptions,
            max_delivery_count,
            enable_batched_operations,
            status,
            forward_to,
            forward_dead_lettered_messages_to,
            catch_all,
            auto_delete_on_idle,
            user_metadata,
            retry_policy,
            session_retry_order,
            extensions,
        } = self;
        vec![
            ("lock_duration", span(*lock_duration)),
            ("requires_session", some(requires_session)),
            ("default_message_time_to_live", span(*default_message_time_to_live)),
            ("dead_lettering_on_message_expiration", some(dead_lettering_on_message_expiration)),
            (
                "enable_dead_lettering_on_filter_evaluation_exceptions",
                some(enable_dead_lettering_on_filter_evaluation_exceptions),
            ),
            ("max_delivery_count", some(max_delivery_count)),
            ("enable_batched_operations", some(enable_batched_operations)),
            ("status", some(status.name())),
            ("forward_to", forward_to.clone()),
            ("forward_dead_lettered_messages_to", forward_dead_lettered_messages_to.clone()),
            ("catch_all", some(catch_all)),
            ("auto_delete_on_idle", span(*auto_delete_on_idle)),
            ("user_metadata", user_metadata.clone()),
            ("retry_policy", retry(*retry_policy)),
            ("session_retry_order", some(session_retry_order.name())),
            ("extensions", extensions.clone()),
        ]
    }
}

/// What a rule selects and does; two rules of which the same is told are the same but for their names.
pub(super) fn rule(rule: &RuleDescription) -> Box<str> {
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
    let mut told = text.to_string();
    for (name, value) in parameters.iter() {
        write!(told, ", @{name} = {value:?}").unwrap_or_default();
    }
    told
}

fn correlation(filter: &CorrelationFilter) -> String {
    let CorrelationFilter {
        correlation_id,
        message_id,
        to,
        reply_to,
        subject,
        session_id,
        reply_to_session_id,
        content_type,
        properties,
    } = filter;
    let texts = [
        ("correlation_id", correlation_id),
        ("message_id", message_id),
        ("to", to),
        ("reply_to", reply_to),
        ("subject", subject),
        ("session_id", session_id),
        ("reply_to_session_id", reply_to_session_id),
        ("content_type", content_type),
    ];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
    let texts = texts.map(|(name, text)| format!("{name} = {text:?}"));
    // The order in which properties are given means nothing.
    let mut properties: Vec<_> =
        properties.iter().map(|(name, value)| format!("properties.{name} = {value:?}")).collect();
    properties.sort_unstable();
    texts.chain(properties).collect::<Vec<_>>().join(", ")
}
