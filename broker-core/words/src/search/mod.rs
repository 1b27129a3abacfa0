//! Conditions of a search over messages, and groups of messages (CON-06, CON-09, CON-11).
//!
//! ```text
//!  line, clauses -> Where -> Matcher::begin -> Evaluation::feed -> Decision
//!                            facts, head       pieces of the body
//! ```
//!
//! Pure: no I/O, no clock. A body is read as a stream and is never a tree in memory. The time for a
//! message grows linearly with its bytes; every loop counts its steps. Not here: rights, pages and
//! bounds of a search.
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)]

mod groups;
mod json;
mod line;
mod matcher;
mod path;
mod property;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that goes wrong may panic")]
mod tests;
mod text;

pub use groups::{
    GROUP_COUNT_MAX, Group, GroupBy, Groups, SAMPLE_COUNT_MAX, Sample, SortedGroups, ValueGroup,
    fingerprint,
};
pub use matcher::{
    Candidate, CandidateHead, Decision, EXCERPT_CHARS_MAX, Evaluation, MatchPlace, Matcher,
};
pub use path::JsonPath;

use std::fmt;

use crate::error::Rejection;
use crate::limits::{Limits, Tier};
use crate::rule::sql::Comparison;
use crate::rule::{Filter, Rule, RuleDescription};
use crate::time::Timestamp;

/// Maximum number of characters of the text of a where (CON-09).
pub const WHERE_CHARS_MAX: usize = 4_096;
/// Maximum number of clauses of a where.
pub const CLAUSE_COUNT_MAX: usize = 32;

/// Conditions on a message, all of which must hold (CON-06). Without a clause, every message is
/// selected. `Display` writes the line that [`Where::parse`] reads.
///
/// ```
/// # use peeklock_words::{search::Where, time::Timestamp};
/// let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
/// let parsed = Where::parse("reason:timeout body.$.order.id=17 after:-2h", now)?;
/// let line = "reason:timeout body.$.order.id=17 enqueued>=2026-05-01T10:00:00Z";
/// assert_eq!(parsed.to_string(), line);
/// # Ok::<_, peeklock_words::error::Rejection>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Where {
    clauses: Vec<Clause>,
}

/// One condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause {
    /// Whether the test must not hold.
    pub is_negated: bool,
    /// The test.
    pub test: Test,
}

/// Test of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// The body or any property contains the text.
    Anywhere(TextPattern),
    /// The body contains the text.
    Body(TextPattern),
    /// Any broker or application property contains the text.
    Properties(TextPattern),
    /// A property with a name in [`TextField`].
    Field(TextField, TextTest),
    /// The values of a JSON path in the body; at least one must meet the test.
    Json(JsonPath, JsonTest),
    /// An SQL filter over the properties is True (file 14).
    Sql(Box<str>),
    /// A number or instant; instants are in ticks.
    Number(NumberField, Comparison, i64),
}

/// Text to find.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextPattern {
    /// The text, not empty.
    pub text: Box<str>,
    /// Whether the case of ASCII letters is ignored.
    pub ignores_case: bool,
}

/// Test of a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextTest {
    /// It contains the text.
    Contains(TextPattern),
    /// It is exactly this text.
    Equals(Box<str>),
}

/// Test of a JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum JsonTest {
    /// The value exists.
    Exists,
    /// The text of a string or number contains the text.
    Contains(TextPattern),
    /// The value compares with a scalar. Values of different types are not equal and have no order.
    Compare(Comparison, JsonScalar),
}

/// JSON value without parts.
#[derive(Clone, PartialEq, Debug)]
pub enum JsonScalar {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number in its JSON text. Integers compare exactly.
    Number(Box<str>),
    /// A string.
    Text(Box<str>),
}

/// Property with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextField {
    /// MessageId
    MessageId,
    /// CorrelationId
    CorrelationId,
    /// SessionId
    SessionId,
    /// Subject, also known as Label
    Subject,
    /// Reason of a dead letter
    Reason,
    /// Description of a dead letter
    Description,
    /// Entity that dead-lettered the message
    Source,
}

/// Number or instant of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberField {
    /// Sequence number
    SequenceNumber,
    /// Delivery count
    DeliveryCount,
    /// Stored size in bytes
    Size,
    /// Instant at which the message was enqueued
    EnqueuedAt,
    /// Instant for which a scheduled message is scheduled
    ScheduledAt,
    /// Instant of expiry, if the message expires
    ExpiresAt,
}

impl TextField {
    /// All fields with their words in a line.
    pub const WORDS: [(Self, &'static str); 7] = [
        (Self::MessageId, "id"),
        (Self::CorrelationId, "correlation"),
        (Self::SessionId, "session"),
        (Self::Subject, "subject"),
        (Self::Reason, "reason"),
        (Self::Description, "description"),
        (Self::Source, "source"),
    ];
}

impl NumberField {
    /// All fields with their words in a line.
    pub const WORDS: [(Self, &'static str); 6] = [
        (Self::SequenceNumber, "number"),
        (Self::DeliveryCount, "tries"),
        (Self::Size, "size"),
        (Self::EnqueuedAt, "enqueued"),
        (Self::ScheduledAt, "scheduled"),
        (Self::ExpiresAt, "expires"),
    ];

    /// Whether the value is an instant.
    #[must_use]
    pub const fn is_instant(self) -> bool {
        matches!(self, Self::EnqueuedAt | Self::ScheduledAt | Self::ExpiresAt)
    }
}

impl Where {
    /// Checks clauses.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` if there are too many clauses or their text is too long;
    /// `ArgumentError` for an empty text, an order of values without one, and a malformed SQL
    /// filter.
    pub fn new(clauses: Vec<Clause>) -> Result<Self, Rejection> {
        let count = clauses.len();
        if count > CLAUSE_COUNT_MAX {
            let detail = format!("where: {count} clauses are too many; at most {CLAUSE_COUNT_MAX}");
            return Err(Rejection::out_of_range(detail));
        }
        clauses.iter().try_for_each(|clause| clause.test.check())?;
        let made = Self { clauses };
        check_chars(&made.to_string())?;
        Ok(made)
    }

    /// Parses a line of clauses (CON-49). Relative instants count from `now`.
    ///
    /// # Errors
    /// As [`Where::new`]; `ArgumentError` with the place of the first mistake.
    pub fn parse(line: &str, now: Timestamp) -> Result<Self, Rejection> {
        check_chars(line)?;
        Self::new(line::parse(line, now)?)
    }

    /// The clauses.
    #[must_use]
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Whether a clause may read the body.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        let reads =
            |test: &Test| matches!(test, Test::Anywhere(_) | Test::Body(_) | Test::Json(..));
        self.clauses.iter().any(|clause| reads(&clause.test))
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line::write(&self.clauses, f)
    }
}

impl Test {
    fn check(&self) -> Result<(), Rejection> {
        let pattern = |pattern: &TextPattern| match pattern.text.is_empty() {
            true => Err(Rejection::argument("where: the text to find is empty")),
            false => Ok(()),
        };
        match self {
            Self::Anywhere(text) | Self::Body(text) | Self::Properties(text) => pattern(text),
            Self::Field(_, TextTest::Contains(text)) | Self::Json(_, JsonTest::Contains(text)) => {
                pattern(text)
            }
            Self::Json(_, JsonTest::Compare(comparison, scalar)) => scalar.check(*comparison),
            Self::Sql(text) => compile_sql(text).map(drop),
            Self::Field(_, TextTest::Equals(_))
            | Self::Json(_, JsonTest::Exists)
            | Self::Number(..) => Ok(()),
        }
    }
}

impl JsonScalar {
    fn check(&self, comparison: Comparison) -> Result<(), Rejection> {
        let has_order = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        match self {
            Self::Null | Self::Bool(_) if has_order => {
                Err(Rejection::argument("where: true, false and null have only = and !="))
            }
            Self::Number(text) if json::Number::parse(text).is_none() => {
                Err(Rejection::argument(format!("where: `{text}` is not a JSON number")))
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => Ok(()),
        }
    }
}

fn check_chars(text: &str) -> Result<(), Rejection> {
    match text.chars().count() {
        0..=WHERE_CHARS_MAX => Ok(()),
        count => Err(Rejection::out_of_range(format!(
            "where: {count} characters are too many; at most {WHERE_CHARS_MAX}"
        ))),
    }
}

/// Compiles the filter of a clause with the limits of new rules (SQL-02).
fn compile_sql(text: &str) -> Result<Rule, Rejection> {
    let rule = RuleDescription::new("where", Filter::sql(text), Timestamp::NONE);
    Rule::create(rule, &Limits::of(Tier::default()))
}
