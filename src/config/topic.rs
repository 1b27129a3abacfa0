//! A declaration `[[topics]]` with its subscriptions and their rules: created at start where absent.

use std::collections::BTreeMap;

use peeklock::description::{EntityStatus, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock::error::Rejection;
use peeklock::message::Value;
use peeklock::path::validate_subscription_name;
use peeklock::rule::{CorrelationFilter, Filter, Rule, RuleDescription, SqlText};
use peeklock::time::{TimeSpan, Timestamp};
use serde::Deserialize;

use super::text::Scalar;

/// A topic and the properties that shall differ from the defaults (ENT-03).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the properties of a topic")]
pub struct TopicDeclaration {
    /// The path of the topic.
    pub name: String,
    max_size_in_megabytes: Option<Scalar<u64>>,
    requires_duplicate_detection: Option<Scalar<bool>>,
    duplicate_detection_history_time_window: Option<Scalar<TimeSpan>>,
    default_message_time_to_live: Option<Scalar<TimeSpan>>,
    enable_batched_operations: Option<Scalar<bool>>,
    status: Option<Scalar<EntityStatus>>,
    auto_delete_on_idle: Option<Scalar<TimeSpan>>,
    enable_partitioning: Option<Scalar<bool>>,
    enable_express: Option<Scalar<bool>>,
    support_ordering: Option<Scalar<bool>>,
    max_message_size_in_kilobytes: Option<Scalar<u64>>,
    user_metadata: Option<Scalar<String>>,
    /// `[[topics.subscriptions]]`.
    #[serde(default)]
    pub subscriptions: Vec<SubscriptionDeclaration>,
}

/// A subscription likewise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the properties of a subscription")]
pub struct SubscriptionDeclaration {
    /// Its name within the topic.
    pub name: String,
    lock_duration: Option<Scalar<TimeSpan>>,
    requires_session: Option<Scalar<bool>>,
    default_message_time_to_live: Option<Scalar<TimeSpan>>,
    dead_lettering_on_message_expiration: Option<Scalar<bool>>,
    enable_dead_lettering_on_filter_evaluation_exceptions: Option<Scalar<bool>>,
    max_delivery_count: Option<Scalar<u32>>,
    enable_batched_operations: Option<Scalar<bool>>,
    status: Option<Scalar<EntityStatus>>,
    forward_to: Option<Scalar<String>>,
    forward_dead_lettered_messages_to: Option<Scalar<String>>,
    catch_all: Option<Scalar<bool>>,
    auto_delete_on_idle: Option<Scalar<TimeSpan>>,
    user_metadata: Option<Scalar<String>>,
    /// `[[topics.subscriptions.rules]]`; without any it has `$Default`, which selects every message (TOP-12).
    #[serde(default)]
    pub rules: Vec<RuleDeclaration>,
}

/// A rule: what it selects by one of `filter`, `sql` and `correlation`, and how it changes that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with a rule")]
pub struct RuleDeclaration {
    /// Its name within the subscription.
    pub name: String,
    /// `true` for every message, `false` for none.
    filter: Option<Scalar<bool>>,
    sql: Option<String>,
    correlation: Option<CorrelationDeclaration>,
    action: Option<String>,
}

/// The values that a message must have, all of them (TOP-19).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table with values of a message")]
struct CorrelationDeclaration {
    correlation_id: Option<String>,
    message_id: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    subject: Option<String>,
    session_id: Option<String>,
    reply_to_session_id: Option<String>,
    content_type: Option<String>,
    properties: BTreeMap<String, PropertyDeclaration>,
}

/// A value of an application property.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a number, true or false")]
enum PropertyDeclaration {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

fn bare<T: Copy>(property: Option<Scalar<T>>) -> Option<T> {
    property.map(|Scalar(value)| value)
}

fn text(property: Option<&Scalar<String>>) -> Option<Box<str>> {
    property.map(|Scalar(value)| value.as_str().into())
}

impl TopicDeclaration {
    /// The properties as a request to create the topic names them.
    pub fn properties(&self) -> TopicUpdate {
        TopicUpdate {
            max_size_in_megabytes: bare(self.max_size_in_megabytes),
            requires_duplicate_detection: bare(self.requires_duplicate_detection),
            duplicate_detection_history_time_window: bare(
                self.duplicate_detection_history_time_window,
            ),
            default_message_time_to_live: bare(self.default_message_time_to_live),
            enable_batched_operations: bare(self.enable_batched_operations),
            status: bare(self.status),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            enable_partitioning: bare(self.enable_partitioning),
            enable_express: bare(self.enable_express),
            support_ordering: bare(self.support_ordering),
            max_message_size_in_kilobytes: bare(self.max_message_size_in_kilobytes),
            user_metadata: text(self.user_metadata.as_ref()),
            extensions: None,
        }
    }
}

impl TopicDeclaration {
    /// Judges subscriptions and rules by themselves; where they forward to is judged when they are created.
    pub(super) fn judge_subscriptions(&self, settings: &Settings) -> Result<(), (String, String)> {
        let mut names: Vec<String> = Vec::new();
        for (index, subscription) in self.subscriptions.iter().enumerate() {
            let key = format!("subscriptions[{index}]");
            let refuse = |detail: &str| (key.clone(), detail.to_owned());
            let refused = |rejection: Rejection| refuse(rejection.detail());
            let name = &subscription.name;
            validate_subscription_name(name, &settings.limits).map_err(refused)?;
            let folded = name.to_ascii_lowercase();
            if names.contains(&folded) {
                let detail = format!("the subscription `{name}` is declared twice; keep one");
                return Err(refuse(&detail));
            }
            names.push(folded);
            let created = subscription.properties().create(&*self.name, name.as_str(), settings);
            created.map_err(refused)?;
            for (place, rule) in subscription.rules.iter().enumerate() {
                let key = format!("{key}.rules[{place}]");
                let rule = rule.rule().map_err(|detail| (key.clone(), detail))?;
                Rule::create(rule, &settings.limits)
                    .map_err(|rejection| (key, rejection.detail().to_owned()))?;
            }
        }
        Ok(())
    }
}

impl SubscriptionDeclaration {
    /// The properties as a request to create the subscription names them.
    pub fn properties(&self) -> SubscriptionUpdate {
        SubscriptionUpdate {
            lock_duration: bare(self.lock_duration),
            requires_session: bare(self.requires_session),
            default_message_time_to_live: bare(self.default_message_time_to_live),
            dead_lettering_on_message_expiration: bare(self.dead_lettering_on_message_expiration),
            enable_dead_lettering_on_filter_evaluation_exceptions: bare(
                self.enable_dead_lettering_on_filter_evaluation_exceptions,
            ),
            max_delivery_count: bare(self.max_delivery_count),
            enable_batched_operations: bare(self.enable_batched_operations),
            status: bare(self.status),
            forward_to: text(self.forward_to.as_ref()),
            forward_dead_lettered_messages_to: text(
                self.forward_dead_lettered_messages_to.as_ref(),
            ),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            user_metadata: text(self.user_metadata.as_ref()),
            retry_policy: None,
            session_retry_order: None,
            catch_all: bare(self.catch_all),
            extensions: None,
        }
    }

    /// Its rules, as a request to create them has them.
    ///
    /// # Errors
    /// With what is wrong with one, which is named.
    pub fn rules(&self) -> Result<Vec<RuleDescription>, String> {
        self.rules.iter().map(RuleDeclaration::rule).collect()
    }
}

impl RuleDeclaration {
    fn rule(&self) -> Result<RuleDescription, String> {
        let filter = match (self.filter, &self.sql, &self.correlation) {
            (None | Some(Scalar(true)), None, None) => Filter::True,
            (Some(Scalar(false)), None, None) => Filter::False,
            (None, Some(sql), None) => Filter::sql(sql.as_str()),
            (None, None, Some(correlation)) => Filter::Correlation(correlation.filter()),
            _ => {
                return Err(format!(
                    "the rule `{}` has more than one of filter, sql and correlation",
                    self.name
                ));
            }
        };
        let rule = RuleDescription::new(self.name.as_str(), filter, Timestamp::NONE);
        Ok(match &self.action {
            Some(action) => rule.with_action(SqlText::new(action.as_str())),
            None => rule,
        })
    }
}

impl CorrelationDeclaration {
    fn filter(&self) -> CorrelationFilter {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let properties = self.properties.iter().map(|(name, value)| {
            let value = match value {
                PropertyDeclaration::Bool(value) => Value::Bool(*value),
                PropertyDeclaration::Integer(value) => Value::I64(*value),
                PropertyDeclaration::Float(value) => Value::F64(*value),
                PropertyDeclaration::Text(text) => Value::String(text.clone()),
            };
            (name.as_str().into(), value)
        });
        CorrelationFilter {
            correlation_id: text(&self.correlation_id),
            message_id: text(&self.message_id),
            to: text(&self.to),
            reply_to: text(&self.reply_to),
            subject: text(&self.subject),
            session_id: text(&self.session_id),
            reply_to_session_id: text(&self.reply_to_session_id),
            content_type: text(&self.content_type),
            properties: properties.collect(),
        }
    }
}
