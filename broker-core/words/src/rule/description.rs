//! What a rule is made from, and what is stored of it.

use super::correlation::CorrelationFilter;
use super::sql::{self, Parameters};
use crate::error::{Quoted, Rejection};
use crate::limits::Limits;
use crate::path::validate_rule_name;
use crate::time::Timestamp;

/// The name of the rule that a new subscription has (TOP-12).
pub const DEFAULT_RULE: &str = "$Default";

/// A rule of a subscription (TOP-14).
#[derive(Clone, PartialEq, Debug)]
pub struct RuleDescription {
    /// The name in the case given; unique in the subscription ignoring case (TOP-13).
    pub name: Box<str>,
    /// What it selects.
    pub filter: Filter,
    /// How it changes what it selects.
    pub action: Option<SqlText>,
    /// When it was created.
    pub created_at: Timestamp,
    /// What administration clients have said that there is no property for, as they said it (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// What a rule selects (TOP-14).
#[derive(Clone, PartialEq, Debug)]
pub enum Filter {
    /// Every message (TOP-15).
    True,
    /// None (TOP-15).
    False,
    /// Those with given values (TOP-18).
    Correlation(CorrelationFilter),
    /// Those for which a text is True (spec file 14).
    Sql(SqlText),
}

/// A text with the values of its parameters (SQL-14).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SqlText {
    /// The text as it was given.
    pub text: Box<str>,
    /// Values by name.
    pub parameters: Parameters,
}

impl RuleDescription {
    /// A rule without action, created at an instant; see [`Filter::named`] for one that is to be created.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, filter: Filter, created_at: Timestamp) -> Self {
        Self { name: name.into(), filter, action: None, created_at, extensions: None }
    }

    /// The rule of a subscription that was created without one (TOP-12).
    #[must_use]
    pub fn default_rule(created_at: Timestamp) -> Self {
        Self::new(DEFAULT_RULE, Filter::True, created_at)
    }

    /// This rule with an action.
    #[must_use]
    pub fn with_action(mut self, action: impl Into<SqlText>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// The key by which rules are found and ordered (TOP-05, TOP-13). Names have ASCII letters only
    /// (ADR-10).
    #[must_use]
    pub fn key(&self) -> Box<str> {
        self.name.to_ascii_lowercase().into()
    }

    /// Judges name and lengths; the texts themselves are judged when they are compiled.
    pub(super) fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        validate_rule_name(&self.name, limits)?;
        match &self.filter {
            Filter::True | Filter::False => {}
            Filter::Correlation(filter) => filter.validate(&self.name, limits)?,
            Filter::Sql(sql) => {
                sql.validate("filter", &self.name, limits.filter_chars_max, limits)?;
            }
        }
        if let Some(sql) = &self.action {
            sql.validate("action", &self.name, limits.action_chars_max, limits)?;
        }
        let bytes = self.extensions.as_deref().map_or(0, str::len);
        check_size("what stands beside filter and action", &self.name, bytes, limits)
    }
}

impl Filter {
    /// A rule of that name with this filter, for who adds it to a subscription: when it was created the broker says.
    ///
    /// ```
    /// use peeklock_words::rule::Filter;
    ///
    /// let dear = Filter::sql("price > 100").named("dear").with_action("SET priority = 'high'");
    /// assert_eq!(&*dear.name, "dear");
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<Box<str>>) -> RuleDescription {
        RuleDescription::new(name, self, Timestamp::NONE)
    }

    /// An SQL filter without parameters.
    #[must_use]
    pub fn sql(text: impl Into<Box<str>>) -> Self {
        Self::Sql(SqlText::new(text))
    }
}

impl SqlText {
    /// A text without parameters.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self { text: text.into(), parameters: Parameters::new() }
    }

    /// SQL-02; parameters are bounded like the properties of a message.
    fn validate(
        &self,
        what: &str,
        rule: &str,
        chars_max: usize,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        sql::check_length(&self.text, chars_max).map_err(|error| error.to_rejection(what, rule))?;
        let mut bytes = Vec::new();
        for (position, (name, value)) in self.parameters.iter().enumerate() {
            let same = |(other, _): (&str, _)| crate::message::same_name(other, name);
            if self.parameters.iter().take(position).any(same) {
                return Err(Rejection::argument(format!(
                    "parameter {} of the {what} of rule {} is given twice",
                    Quoted(name),
                    Quoted(rule)
                )));
            }
            bytes.extend_from_slice(name.as_bytes());
            value.encode_to(&mut bytes);
        }
        check_size(&format!("parameters of the {what}"), rule, bytes.len(), limits)
    }
}

impl From<&str> for SqlText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// No message has more than this, so no rule needs more.
pub(super) fn check_size(
    what: &str,
    rule: &str,
    bytes: usize,
    limits: &Limits,
) -> Result<(), Rejection> {
    let limit = limits.header_bytes_max;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= limit) {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "{what} of rule {} have {bytes} bytes, more than the {limit} that properties of a message \
         can have",
        Quoted(rule)
    )))
}
