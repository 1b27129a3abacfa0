//! The declaration `[[topics.subscriptions.rules]]`: the desired form of a rule. `entity.rs` reads
//! it as a part of a subscription. A rule has at most one kind of filter.

use std::fmt;

use peeklock::rule::sql::Parameters;
use peeklock::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock::time::Timestamp;
use peeklock_json::PropertyMap;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// The values that a message must have to match; all must match (TOP-19).
#[derive(Clone, Debug)]
struct CorrelationDeclaration(CorrelationFilter);

/// The key of the application properties.
const PROPERTIES: &str = "properties";

impl Serialize for CorrelationDeclaration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(filter) = self;
        let mut map = serializer.serialize_map(None)?;
        for (field, text) in filter.broker_properties() {
            map.serialize_entry(field.name, text)?;
        }
        let properties = filter.properties.iter();
        let properties = properties.map(|(name, value)| (name.to_string(), value.clone()));
        if let Some(properties) = some_of(properties.collect()) {
            map.serialize_entry(PROPERTIES, &properties)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for CorrelationDeclaration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CorrelationVisitor)
    }
}

struct CorrelationVisitor;

impl<'de> Visitor<'de> for CorrelationVisitor {
    type Value = CorrelationDeclaration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with values of a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut filter = CorrelationFilter::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == PROPERTIES {
                let PropertyMap(properties) = map.next_value()?;
                let properties = properties.into_iter();
                filter.properties = properties.map(|(name, value)| (name.into(), value)).collect();
                continue;
            }
            let field = CorrelationFilter::FIELDS.into_iter().find(|field| field.name == name);
            let Some(field) = field else {
                let names = CorrelationFilter::FIELDS.iter().map(|field| field.name);
                let names = names.chain([PROPERTIES]).map(|name| format!("`{name}`"));
                let names = names.collect::<Vec<_>>().join(", ");
                // The words of serde, from which the nearest key is found.
                let detail = format!("unknown field `{name}`, expected one of {names}");
                return Err(A::Error::custom(detail));
            };
            field.set(&mut filter, Some(map.next_value::<String>()?.into()));
        }
        Ok(CorrelationDeclaration(filter))
    }
}

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
            (None, None, Some(CorrelationDeclaration(filter))) => {
                Filter::Correlation(filter.clone())
            }
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
                let correlation = Some(CorrelationDeclaration(filter.clone()));
                Self { correlation, ..Self::default() }
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
