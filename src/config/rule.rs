//! A declaration `[[topics.subscriptions.rules]]`: a rule as it shall be.

use peeklock::rule::sql::Parameters;
use peeklock::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock::time::Timestamp;
use peeklock_json::PropertyMap;
use serde::{Deserialize, Serialize};

use super::text::Scalar;

/// A rule: what it selects by one of `filter`, `sql` and `correlation`, and how it changes that.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with a rule")]
pub struct RuleDeclaration {
    /// Its name within the subscription.
    pub name: String,
    /// `true` for every message, `false` for none.
    filter: Option<Scalar<bool>>,
    sql: Option<String>,
    action: Option<String>,
    /// Values of `@names` in `sql`.
    sql_parameters: Option<PropertyMap>,
    /// Values of `@names` in `action`.
    action_parameters: Option<PropertyMap>,
    correlation: Option<CorrelationDeclaration>,
}

/// The values that a message must have, all of them (TOP-19).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
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
    properties: Option<PropertyMap>,
}

impl RuleDeclaration {
    /// What the broker is asked for.
    ///
    /// # Errors
    /// For a rule that selects in several ways, and for parameters of nothing.
    pub(super) fn described(&self) -> Result<RuleDescription, String> {
        let name = self.name.as_str();
        let filter = match (self.filter, &self.sql, &self.correlation) {
            (None | Some(Scalar(true)), None, None) => Filter::True,
            (Some(Scalar(false)), None, None) => Filter::False,
            (None, Some(sql), None) => Filter::Sql(sql_text(sql, self.sql_parameters.as_ref())),
            (None, None, Some(correlation)) => Filter::Correlation(correlation.filter()),
            _ => {
                return Err(format!(
                    "the rule `{name}` has more than one of filter, sql and correlation; keep one"
                ));
            }
        };
        let parameters = [
            ("sql", &self.sql, &self.sql_parameters),
            ("action", &self.action, &self.action_parameters),
        ];
        for (of, text, parameters) in parameters {
            if text.is_none() && parameters.is_some() {
                return Err(format!(
                    "the rule `{name}` has {of}_parameters but no {of}; add {of}, or remove the \
                     parameters"
                ));
            }
        }
        let rule = RuleDescription::new(name, filter, Timestamp::NONE);
        Ok(match &self.action {
            Some(action) => rule.with_action(sql_text(action, self.action_parameters.as_ref())),
            None => rule,
        })
    }
}

fn sql_text(text: &str, values: Option<&PropertyMap>) -> SqlText {
    let values = values.into_iter().flat_map(|PropertyMap(values)| values);
    let parameters = values
        .fold(Parameters::new(), |parameters, (name, value)| parameters.with(name, value.clone()));
    SqlText { text: text.into(), parameters }
}

fn parameters(sql: &SqlText) -> Option<PropertyMap> {
    let pairs = sql.parameters.iter().map(|(name, value)| (name.to_owned(), value.clone()));
    some_of(pairs.collect())
}

fn some_of(pairs: Vec<(String, peeklock::message::Value)>) -> Option<PropertyMap> {
    (!pairs.is_empty()).then_some(PropertyMap(pairs))
}

impl From<&RuleDescription> for RuleDeclaration {
    fn from(rule: &RuleDescription) -> Self {
        let name = rule.name.to_string();
        let selecting = match &rule.filter {
            Filter::True => Self { filter: Some(Scalar(true)), ..Self::default() },
            Filter::False => Self { filter: Some(Scalar(false)), ..Self::default() },
            Filter::Sql(sql) => Self {
                sql: Some(sql.text.to_string()),
                sql_parameters: parameters(sql),
                ..Self::default()
            },
            Filter::Correlation(filter) => {
                Self { correlation: Some(filter.into()), ..Self::default() }
            }
        };
        let action = rule.action.as_ref();
        Self {
            name,
            action: action.map(|action| action.text.to_string()),
            action_parameters: action.and_then(parameters),
            ..selecting
        }
    }
}

impl CorrelationDeclaration {
    fn filter(&self) -> CorrelationFilter {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let properties = self.properties.iter().flat_map(|PropertyMap(properties)| properties);
        CorrelationFilter {
            correlation_id: text(&self.correlation_id),
            message_id: text(&self.message_id),
            to: text(&self.to),
            reply_to: text(&self.reply_to),
            subject: text(&self.subject),
            session_id: text(&self.session_id),
            reply_to_session_id: text(&self.reply_to_session_id),
            content_type: text(&self.content_type),
            properties: properties
                .map(|(name, value)| (name.as_str().into(), value.clone()))
                .collect(),
        }
    }
}

impl From<&CorrelationFilter> for CorrelationDeclaration {
    fn from(filter: &CorrelationFilter) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let properties = filter.properties.iter();
        let properties = properties.map(|(name, value)| (name.to_string(), value.clone()));
        Self {
            correlation_id: text(&filter.correlation_id),
            message_id: text(&filter.message_id),
            to: text(&filter.to),
            reply_to: text(&filter.reply_to),
            subject: text(&filter.subject),
            session_id: text(&filter.session_id),
            reply_to_session_id: text(&filter.reply_to_session_id),
            content_type: text(&filter.content_type),
            properties: some_of(properties.collect()),
        }
    }
}
