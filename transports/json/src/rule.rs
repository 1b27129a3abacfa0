//! JSON forms of rules, and of the explanations of their results. The HTTP and WebSocket transports
//! and the command line use them.

use peeklock_core::correlation_properties;
use peeklock_core::error::Rejection;
use peeklock_core::rule::{
    CorrelationFilter, Explanation, Filter, FilterTest, Read, RuleDescription, SqlText, Verdict,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::property::PropertyMap;
#[cfg(feature = "schema")]
use crate::property::PropertyValueSchema;
use crate::text::Instant;

/// A rule: its filter, and the action on selected messages (TOP-14).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleForm {
    /// Unique in the subscription, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Selects messages; without it the rule selects every message.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<FilterForm>,
    /// Changes the selected messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<SqlForm>,
    /// Set by the broker, ignored in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, read_only))]
    created_at: Option<Instant>,
}

macro_rules! filter_form {
    ($($(#[$_doc:meta])* $field:ident, $_json:literal, $_key:literal, $_element:literal, $_property:ident;)+) => {
        /// A filter. Its type determines which properties it may have: `sql` and `parameters` for `sql`,
        /// the others for `correlation`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct FilterForm {
            /// `true` selects every message, `false` none, `sql` the messages for which the expression is
            /// true, `correlation` the messages with exactly these values.
            #[serde(rename = "type")]
            kind: FilterKind,
            /// The expression of an SQL filter.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema", schema(example = "region = 'eu' AND price > @limit"))]
            sql: Option<String>,
            /// Values of the parameters in the expression; names with or without `@`.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema",
                schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>))]
            parameters: Option<PropertyMap>,
            $(#[serde(skip_serializing_if = "Option::is_none")]
            $field: Option<String>,)+
            /// Values of application properties.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema",
                schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>))]
            properties: Option<PropertyMap>,
        }

        impl FilterForm {
            fn correlation(&self) -> CorrelationFilter {
                CorrelationFilter {
                    $($field: self.$field.as_deref().map(Box::from),)+
                    properties: self.properties.clone().unwrap_or_default().into_pairs().collect(),
                }
            }
        }

        impl From<&CorrelationFilter> for FilterForm {
            fn from(filter: &CorrelationFilter) -> Self {
                Self {
                    $($field: filter.$field.as_deref().map(String::from),)+
                    properties: PropertyMap::not_empty(filter.properties.iter().cloned()),
                    ..Self::of(FilterKind::Correlation)
                }
            }
        }
    };
}

correlation_properties!(filter_form);

/// The types of filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
enum FilterKind {
    #[default]
    True,
    False,
    Sql,
    Correlation,
}

/// An SQL text with the values of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SqlForm {
    #[cfg_attr(feature = "schema", schema(example = "SET priority = 'high'"))]
    sql: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema",
        schema(value_type = Option<std::collections::BTreeMap<String, PropertyValueSchema>>))]
    parameters: Option<PropertyMap>,
}

/// Result of a rule for a message, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExplanationView {
    /// The name of the rule.
    rule: String,
    verdict: VerdictView,
    /// Error text, if the filter or the action failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The subscription that selects the message, so that the catch-all rule was not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selected_by: Option<String>,
    /// The evaluated tests, in order; skipped tests are absent.
    tests: Vec<TestView>,
    /// The properties that were read, in order.
    reads: Vec<ReadView>,
    /// The changes that the action makes.
    changes: Vec<String>,
}

/// `matches` and `actionFailed` select the message. `unknown` does not, because a property that the
/// filter needs is absent. `notAsked` is the result of a catch-all rule if another subscription
/// selects the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
enum VerdictView {
    Matches,
    DoesNotMatch,
    Unknown,
    FilterFailed,
    ActionFailed,
    NotAsked,
}

/// One test of a filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct TestView {
    /// The test as written in the rule.
    text: String,
    /// The values of its operands, in SQL.
    operands: Vec<String>,
    /// Its result; `null` is unknown.
    result: Option<bool>,
}

/// A property that a rule read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct ReadView {
    name: String,
    /// Its value in SQL; `null` if the message does not have it.
    value: Option<String>,
}

impl RuleForm {
    /// Returns the name, if given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the rule under the name in its address.
    ///
    /// # Errors
    /// Returns `ArgumentError` if the rule already has another name.
    pub fn named(self, name: &str) -> Result<Self, Rejection> {
        match &self.name {
            Some(given) if !given.eq_ignore_ascii_case(name) => Err(Rejection::argument(
                "the name of the rule differs from the name in its address",
            )),
            Some(_) => Ok(self),
            None => Ok(Self { name: Some(name.to_owned()), ..self }),
        }
    }

    /// Converts to the broker's rule, which the broker validates.
    ///
    /// # Errors
    /// Returns `ArgumentError` for a rule without a name, and for a filter with properties of
    /// another type.
    pub fn to_description(&self) -> Result<RuleDescription, Rejection> {
        let Some(name) = self.name.as_deref() else {
            return Err(Rejection::argument("the rule has no name"));
        };
        let filter = self.filter.as_ref().map_or(Ok(Filter::True), FilterForm::to_filter)?;
        let rule = RuleDescription::new(name, filter, Timestamp::NONE);
        Ok(match &self.action {
            Some(action) => rule.with_action(action.to_text()),
            None => rule,
        })
    }
}

impl From<&RuleDescription> for RuleForm {
    fn from(rule: &RuleDescription) -> Self {
        let RuleDescription { name, filter, action, created_at, extensions: _ } = rule;
        Self {
            name: Some(name.to_string()),
            filter: Some(FilterForm::from(filter)),
            action: action.as_ref().map(SqlForm::from),
            created_at: (*created_at != Timestamp::NONE).then_some(Instant(*created_at)),
        }
    }
}

impl TryFrom<&RuleForm> for RuleDescription {
    type Error = Rejection;

    /// Reads a rule from a broker's answer.
    fn try_from(form: &RuleForm) -> Result<Self, Rejection> {
        let rule = form.to_description()?;
        Ok(Self { created_at: form.created_at.map_or(Timestamp::NONE, |Instant(at)| at), ..rule })
    }
}

impl FilterForm {
    fn of(kind: FilterKind) -> Self {
        Self { kind, ..Self::default() }
    }

    fn to_filter(&self) -> Result<Filter, Rejection> {
        let of_sql = self.sql.is_some() || self.parameters.is_some();
        let correlation = self.correlation();
        let of_correlation =
            self.properties.is_some() || correlation.broker_properties().next().is_some();
        match self.kind {
            FilterKind::Sql if of_correlation => {
                Err(Rejection::argument("a filter of the type sql has `sql` and `parameters` only"))
            }
            FilterKind::Correlation if of_sql => Err(Rejection::argument(
                "a filter of the type correlation must not have `sql` or `parameters`",
            )),
            FilterKind::True | FilterKind::False if of_sql || of_correlation => Err(
                Rejection::argument("a filter of the type true or false has no other properties"),
            ),
            FilterKind::True => Ok(Filter::True),
            FilterKind::False => Ok(Filter::False),
            FilterKind::Sql => match &self.sql {
                Some(text) => Ok(Filter::Sql(sql_text(text, self.parameters.as_ref()))),
                None => Err(Rejection::argument("a filter of the type sql has no `sql`")),
            },
            FilterKind::Correlation => Ok(Filter::Correlation(correlation)),
        }
    }
}

impl From<&Filter> for FilterForm {
    fn from(filter: &Filter) -> Self {
        match filter {
            Filter::True => Self::of(FilterKind::True),
            Filter::False => Self::of(FilterKind::False),
            Filter::Sql(sql) => Self {
                sql: Some(sql.text.to_string()),
                parameters: parameters(sql),
                ..Self::of(FilterKind::Sql)
            },
            Filter::Correlation(filter) => Self::from(filter),
        }
    }
}

impl SqlForm {
    fn to_text(&self) -> SqlText {
        sql_text(&self.sql, self.parameters.as_ref())
    }
}

impl From<&SqlText> for SqlForm {
    fn from(sql: &SqlText) -> Self {
        Self { sql: sql.text.to_string(), parameters: parameters(sql) }
    }
}

/// Returns a text with the values of its parameters.
#[must_use]
pub fn sql_text(text: &str, values: Option<&PropertyMap>) -> SqlText {
    let parameters = values.into_iter().flat_map(|PropertyMap(values)| values.iter().cloned());
    SqlText { text: text.into(), parameters: parameters.collect() }
}

/// Returns the parameters with `@` before their names, as in the text.
fn parameters(sql: &SqlText) -> Option<PropertyMap> {
    PropertyMap::not_empty(
        sql.parameters.iter().map(|(name, value)| (format!("@{name}"), value.clone())),
    )
}

impl From<&Explanation> for ExplanationView {
    fn from(explanation: &Explanation) -> Self {
        let Explanation { rule, verdict, reads, tests, changes } = explanation;
        let (mut error, mut selected_by) = (None, None);
        let verdict = match verdict {
            Verdict::Matches => VerdictView::Matches,
            Verdict::DoesNotMatch => VerdictView::DoesNotMatch,
            Verdict::Unknown => VerdictView::Unknown,
            Verdict::FilterFailed(text) => {
                error = Some(text.clone());
                VerdictView::FilterFailed
            }
            Verdict::ActionFailed(text) => {
                error = Some(text.clone());
                VerdictView::ActionFailed
            }
            Verdict::NotEvaluated(by) => {
                selected_by = Some(by.clone());
                VerdictView::NotAsked
            }
        };
        let test = |FilterTest { text, operands, result }: &FilterTest| TestView {
            text: text.clone(),
            operands: operands.clone(),
            result: *result,
        };
        let read =
            |Read { name, value }: &Read| ReadView { name: name.clone(), value: value.clone() };
        Self {
            rule: rule.clone(),
            verdict,
            error,
            selected_by,
            tests: tests.iter().map(test).collect(),
            reads: reads.iter().map(read).collect(),
            changes: changes.clone(),
        }
    }
}

impl From<ExplanationView> for Explanation {
    fn from(view: ExplanationView) -> Self {
        let error = view.error.unwrap_or_default();
        let verdict = match view.verdict {
            VerdictView::Matches => Verdict::Matches,
            VerdictView::DoesNotMatch => Verdict::DoesNotMatch,
            VerdictView::Unknown => Verdict::Unknown,
            VerdictView::FilterFailed => Verdict::FilterFailed(error),
            VerdictView::ActionFailed => Verdict::ActionFailed(error),
            VerdictView::NotAsked => Verdict::NotEvaluated(view.selected_by.unwrap_or_default()),
        };
        let test = |TestView { text, operands, result }| FilterTest { text, operands, result };
        let read = |ReadView { name, value }| Read { name, value };
        Self {
            rule: view.rule,
            verdict,
            reads: view.reads.into_iter().map(read).collect(),
            tests: view.tests.into_iter().map(test).collect(),
            changes: view.changes,
        }
    }
}
