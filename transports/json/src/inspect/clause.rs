//! Conditions of a search: a line, or clauses as a form has them (CON-06, CON-49).

use peeklock_core::error::Rejection;
use peeklock_core::inspect::{
    Clause, JsonPath, JsonScalar, JsonTest, NumberField, Test, TextField, TextPattern, TextTest,
    Where,
};
use peeklock_core::rule::sql::Comparison;
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::is_false;

/// Conditions as one line, such as `reason:timeout body.$.order.id=17 after:-2h`, or as clauses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum WhereForm {
    /// One line.
    Line(String),
    /// Clauses.
    Clauses(Vec<ClauseForm>),
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClauseForm {
    /// Whether the test must not hold.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not: bool,
    /// Part of the message.
    pub field: ClauseFieldName,
    /// JSON path (RFC 9535, without filters); only for `json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Test; an SQL filter has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<ClauseTestName>,
    /// Value of the test, or the SQL filter.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// Part of a message that a clause tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ClauseFieldName {
    /// The body, or any property.
    Text,
    /// The body.
    Body,
    /// Any property.
    Property,
    /// Values of a JSON path in the body.
    Json,
    /// All properties, tested by an SQL filter.
    Sql,
    /// Message id.
    MessageId,
    /// Correlation id.
    CorrelationId,
    /// Session id.
    SessionId,
    /// Subject.
    Subject,
    /// Reason of the dead letter.
    DeadLetterReason,
    /// Description of the dead letter.
    DeadLetterErrorDescription,
    /// Entity that dead-lettered the message.
    DeadLetterSource,
    /// Sequence number.
    SequenceNumber,
    /// Delivery count.
    DeliveryCount,
    /// Stored size in bytes.
    Size,
    /// Instant at which the message was enqueued.
    EnqueuedTimeUtc,
    /// Instant for which a scheduled message is scheduled.
    ScheduledEnqueueTimeUtc,
    /// Instant of expiry.
    ExpiresAtUtc,
}

/// Test of a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ClauseTestName {
    /// The JSON path has a value.
    Exists,
    /// Contains the text, ignoring the case of ASCII letters.
    Contains,
    /// Contains the text.
    ContainsExactly,
    /// Is equal.
    Equals,
    /// Is not equal.
    NotEquals,
    /// Is less.
    Less,
    /// Is less or equal.
    AtMost,
    /// Is greater.
    Greater,
    /// Is greater or equal.
    AtLeast,
}

impl Default for WhereForm {
    fn default() -> Self {
        Self::Line(String::new())
    }
}

impl WhereForm {
    /// Converts to conditions of the core. Relative instants of a line count from `now`.
    ///
    /// # Errors
    /// As for [`Where::parse`]; `ArgumentError` for a test that a field does not have.
    pub fn to_where(&self, now: Timestamp) -> Result<Where, Rejection> {
        match self {
            Self::Line(line) => Where::parse(line, now),
            Self::Clauses(clauses) => {
                Where::new(clauses.iter().map(ClauseForm::to_clause).collect::<Result<_, _>>()?)
            }
        }
    }
}

const TEXT_FIELDS: [(ClauseFieldName, TextField); 7] = [
    (ClauseFieldName::MessageId, TextField::MessageId),
    (ClauseFieldName::CorrelationId, TextField::CorrelationId),
    (ClauseFieldName::SessionId, TextField::SessionId),
    (ClauseFieldName::Subject, TextField::Subject),
    (ClauseFieldName::DeadLetterReason, TextField::Reason),
    (ClauseFieldName::DeadLetterErrorDescription, TextField::Description),
    (ClauseFieldName::DeadLetterSource, TextField::Source),
];

const NUMBER_FIELDS: [(ClauseFieldName, NumberField); 6] = [
    (ClauseFieldName::SequenceNumber, NumberField::SequenceNumber),
    (ClauseFieldName::DeliveryCount, NumberField::DeliveryCount),
    (ClauseFieldName::Size, NumberField::Size),
    (ClauseFieldName::EnqueuedTimeUtc, NumberField::EnqueuedAt),
    (ClauseFieldName::ScheduledEnqueueTimeUtc, NumberField::ScheduledAt),
    (ClauseFieldName::ExpiresAtUtc, NumberField::ExpiresAt),
];

const COMPARISONS: [(ClauseTestName, Comparison); 6] = [
    (ClauseTestName::Equals, Comparison::Equal),
    (ClauseTestName::NotEquals, Comparison::NotEqual),
    (ClauseTestName::Less, Comparison::Less),
    (ClauseTestName::AtMost, Comparison::LessOrEqual),
    (ClauseTestName::Greater, Comparison::Greater),
    (ClauseTestName::AtLeast, Comparison::GreaterOrEqual),
];

/// Returns the partner of a value in a table of pairs.
fn partner<A: Copy + PartialEq, B: Copy>(table: &[(A, B)], wanted: A) -> Option<B> {
    table.iter().find(|(one, _)| *one == wanted).map(|(_, other)| *other)
}

impl ClauseForm {
    /// Converts to a clause of the core.
    fn to_clause(&self) -> Result<Clause, Rejection> {
        let test = self.to_test()?;
        Ok(Clause { is_negated: self.not, test })
    }

    fn to_test(&self) -> Result<Test, Rejection> {
        let comparison = self.is.and_then(|is| partner(&COMPARISONS, is));
        if self.path.is_some() && self.field != ClauseFieldName::Json {
            return Err(Rejection::argument("where: only a clause with the field json has a path"));
        }
        if let Some(field) = partner(&TEXT_FIELDS, self.field) {
            return Ok(Test::Field(
                field,
                match self.is {
                    Some(ClauseTestName::Equals) => TextTest::Equals(self.text()?.into()),
                    _ => TextTest::Contains(self.pattern()?),
                },
            ));
        }
        if let Some(field) = partner(&NUMBER_FIELDS, self.field) {
            let comparison = comparison.ok_or_else(|| self.wrong_test())?;
            let number = match field.is_instant() {
                true => Timestamp::parse(self.text()?).map(Timestamp::ticks),
                false => self.value.as_i64().filter(|number| *number >= 0),
            };
            let number = number.ok_or_else(|| {
                Rejection::argument("where: value must be a number, or an RFC 3339 instant")
            })?;
            return Ok(Test::Number(field, comparison, number));
        }
        match self.field {
            ClauseFieldName::Text => self.pattern().map(Test::Anywhere),
            ClauseFieldName::Body => self.pattern().map(Test::Body),
            ClauseFieldName::Property => self.pattern().map(Test::Properties),
            ClauseFieldName::Sql if self.is.is_none() => Ok(Test::Sql(self.text()?.into())),
            ClauseFieldName::Json => {
                let path = self.path.as_deref().unwrap_or_default();
                let test = match (self.is, comparison) {
                    (Some(ClauseTestName::Exists), _) => JsonTest::Exists,
                    (_, Some(comparison)) => JsonTest::Compare(comparison, self.scalar()?),
                    _ => JsonTest::Contains(self.pattern()?),
                };
                Ok(Test::Json(JsonPath::parse(path)?, test))
            }
            _ => Err(self.wrong_test()),
        }
    }

    fn wrong_test(&self) -> Rejection {
        Rejection::argument(format!("where: the field {:?} does not have this test", self.field))
    }

    fn text(&self) -> Result<&str, Rejection> {
        self.value.as_str().ok_or_else(|| Rejection::argument("where: value must be a text"))
    }

    fn pattern(&self) -> Result<TextPattern, Rejection> {
        let ignores_case = match self.is {
            Some(ClauseTestName::Contains) => true,
            Some(ClauseTestName::ContainsExactly) => false,
            _ => return Err(self.wrong_test()),
        };
        Ok(TextPattern { text: self.text()?.into(), ignores_case })
    }

    fn scalar(&self) -> Result<JsonScalar, Rejection> {
        match &self.value {
            Value::Null => Ok(JsonScalar::Null),
            Value::Bool(value) => Ok(JsonScalar::Bool(*value)),
            Value::Number(number) => Ok(JsonScalar::Number(number.to_string().into())),
            Value::String(text) => Ok(JsonScalar::Text(text.as_str().into())),
            Value::Array(_) | Value::Object(_) => {
                Err(Rejection::argument("where: value must be a text, number, true, false or null"))
            }
        }
    }
}

/// The form of a clause, for pages that show a line as a form.
impl From<&Clause> for ClauseForm {
    fn from(clause: &Clause) -> Self {
        let contains = |pattern: &TextPattern| match pattern.ignores_case {
            true => Some(ClauseTestName::Contains),
            false => Some(ClauseTestName::ContainsExactly),
        };
        let text = |text: &str| Value::from(text);
        let flipped = |comparison| {
            COMPARISONS.iter().find(|(_, it)| *it == comparison).map(|(name, _)| *name)
        };
        let (field, path, is, value) = match &clause.test {
            Test::Anywhere(it) => (ClauseFieldName::Text, None, contains(it), text(&it.text)),
            Test::Body(it) => (ClauseFieldName::Body, None, contains(it), text(&it.text)),
            Test::Properties(it) => (ClauseFieldName::Property, None, contains(it), text(&it.text)),
            Test::Field(field, test) => {
                let name = TEXT_FIELDS.iter().find(|(_, it)| it == field);
                let name = name.map_or(ClauseFieldName::Subject, |(name, _)| *name);
                match test {
                    TextTest::Contains(it) => (name, None, contains(it), text(&it.text)),
                    TextTest::Equals(it) => (name, None, Some(ClauseTestName::Equals), text(it)),
                }
            }
            Test::Json(path, test) => {
                let (is, value) = match test {
                    JsonTest::Exists => (Some(ClauseTestName::Exists), Value::Null),
                    JsonTest::Contains(it) => (contains(it), text(&it.text)),
                    JsonTest::Compare(comparison, scalar) => {
                        let value = match scalar {
                            JsonScalar::Null => Value::Null,
                            JsonScalar::Bool(value) => Value::from(*value),
                            JsonScalar::Number(number) => {
                                serde_json::from_str(number).unwrap_or_default()
                            }
                            JsonScalar::Text(it) => text(it),
                        };
                        (flipped(*comparison), value)
                    }
                };
                (ClauseFieldName::Json, Some(path.to_string()), is, value)
            }
            Test::Sql(it) => (ClauseFieldName::Sql, None, None, text(it)),
            Test::Number(field, comparison, number) => {
                let name = NUMBER_FIELDS.iter().find(|(_, it)| it == field);
                let name = name.map_or(ClauseFieldName::SequenceNumber, |(name, _)| *name);
                let value = match field.is_instant() {
                    true => Value::from(Timestamp::from_ticks(*number).to_string()),
                    false => Value::from(*number),
                };
                (name, None, flipped(*comparison), value)
            }
        };
        Self { not: clause.is_negated, field, path, is, value }
    }
}
