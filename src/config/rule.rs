//! The declaration `[[topics.subscriptions.rules]]`: the desired form of a rule. `entity.rs` reads
//! it as a part of a subscription. A rule has at most one kind of filter.

use peeklock::core::correlation_properties;
use peeklock::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock::time::Timestamp;
use peeklock_json::{PropertyMap, sql_text};
use serde::{Deserialize, Serialize};

use super::text::Scalar;

/// A rule: its filter (one of `filter`, `sql` and `correlation`) and its action.
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

macro_rules! correlation_declaration {
    ($($(#[$_doc:meta])* $field:ident, $_json:literal, $_key:literal, $_element:literal, $_property:ident;)+) => {
        /// The values that a message must have to match; all must match (TOP-19).
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields, expecting = "a table with values of a message")]
        struct CorrelationDeclaration {
            $($field: Option<String>,)+
            properties: Option<PropertyMap>,
        }

        impl From<&CorrelationDeclaration> for CorrelationFilter {
            fn from(declared: &CorrelationDeclaration) -> Self {
                let properties = declared.properties.clone().unwrap_or_default();
                Self {
                    $($field: declared.$field.as_deref().map(Box::from),)+
                    properties: properties.into_pairs().collect(),
                }
            }
        }

        impl From<&CorrelationFilter> for CorrelationDeclaration {
            fn from(filter: &CorrelationFilter) -> Self {
                Self {
                    $($field: filter.$field.as_deref().map(String::from),)+
                    properties: PropertyMap::not_empty(filter.properties.iter().cloned()),
                }
            }
        }
    };
}

correlation_properties!(correlation_declaration);

impl RuleDeclaration {
    /// The rule as the broker takes it.
    ///
    /// # Errors
    /// For a rule with several filters, and for parameters without an expression.
    pub(super) fn described(&self) -> Result<RuleDescription, String> {
        let name = self.name.as_str();
        let filter = match (self.filter, &self.sql, &self.correlation) {
            (None | Some(Scalar(true)), None, None) => Filter::True,
            (Some(Scalar(false)), None, None) => Filter::False,
            (None, Some(sql), None) => Filter::Sql(sql_text(sql, self.sql_parameters.as_ref())),
            (None, None, Some(correlation)) => Filter::Correlation(correlation.into()),
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

fn parameters(sql: &SqlText) -> Option<PropertyMap> {
    PropertyMap::not_empty(sql.parameters.iter().map(|(name, value)| (name, value.clone())))
}

impl From<&RuleDescription> for RuleDeclaration {
    fn from(rule: &RuleDescription) -> Self {
        let RuleDescription { name, filter, action, created_at: _, extensions: _ } = rule;
        let selecting = match filter {
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
        Self {
            name: name.to_string(),
            action: action.as_ref().map(|action| action.text.to_string()),
            action_parameters: action.as_ref().and_then(parameters),
            ..selecting
        }
    }
}
