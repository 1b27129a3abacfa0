//! Descriptions of rules: the form that administration creates, and that the store keeps.
//! [`Rule`](super::Rule) compiles them.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::ALLOCATION_BYTES;
use super::correlation::{CorrelationFilter, pair_bytes};
use super::sql::{self, Parameters};
use crate::error::{Quoted, Rejection};
use crate::limits::Limits;
use crate::message::Value;
use crate::path::validate_rule_name;
use crate::time::Timestamp;

/// The name of a new subscription's default rule (TOP-12).
pub const DEFAULT_RULE: &str = "$Default";

/// A rule of a subscription (TOP-14).
#[derive(Clone, PartialEq, Debug)]
pub struct RuleDescription {
    /// The name in the case given; unique in the subscription ignoring case (TOP-13).
    pub name: Box<str>,
    /// The messages that the rule selects.
    pub filter: Filter,
    /// The changes to selected messages.
    pub action: Option<SqlText>,
    /// The instant of creation.
    pub created_at: Timestamp,
    /// Elements from administration clients that correspond to no property, in their original text
    /// (HTP-17).
    pub extensions: Option<Box<str>>,
}

/// A condition on messages (TOP-14).
#[derive(Clone, PartialEq, Debug)]
pub enum Filter {
    /// Selects every message (TOP-15).
    True,
    /// Selects no message (TOP-15).
    False,
    /// Selects messages with given values (TOP-18).
    Correlation(CorrelationFilter),
    /// Selects messages for which a text is True (spec file 14).
    Sql(SqlText),
}

/// A text with the values of its parameters (SQL-14).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SqlText {
    /// The original text.
    pub text: Box<str>,
    /// Values by name.
    pub parameters: Parameters,
}

impl RuleDescription {
    /// A rule without action, created at this instant. Use [`Filter::named`] for a rule that a
    /// broker is to create.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, filter: Filter, created_at: Timestamp) -> Self {
        Self { name: name.into(), filter, action: None, created_at, extensions: None }
    }

    /// The rule of a subscription for which no rule was given (TOP-12).
    #[must_use]
    pub fn default_rule(created_at: Timestamp) -> Self {
        Self::new(DEFAULT_RULE, Filter::True, created_at)
    }

    /// Adds an action.
    #[must_use]
    pub fn with_action(mut self, action: impl Into<SqlText>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// The key for look-ups and order (TOP-05, TOP-13). Names have only ASCII letters (ADR-10).
    #[must_use]
    pub fn key(&self) -> Box<str> {
        self.name.to_ascii_lowercase().into()
    }

    /// Checks the name, the sizes and repeated names; compilation checks the texts. Sizes are
    /// checked first, so that the other checks have bounded cost.
    pub(super) fn validate(&self, limits: &Limits) -> Result<(), Rejection> {
        validate_rule_name(&self.name, limits)?;
        if let Filter::Correlation(filter) = &self.filter {
            check_count("the correlation filter", &self.name, filter.properties.len(), limits)?;
        }
        let texts = self.texts(limits);
        for (part, sql, chars_max) in &texts {
            check_count(&format!("the {part}"), &self.name, sql.parameters.len(), limits)?;
            sql::check_length(&sql.text, *chars_max)
                .map_err(|error| error.to_rejection(part, &self.name))?;
        }
        self.check_size(limits)?;
        if let Filter::Correlation(filter) = &self.filter {
            filter.validate(&self.name)?;
        }
        texts.iter().try_for_each(|(part, sql, _)| sql.validate(part, &self.name))
    }

    /// The SQL texts, each with its name in errors and its maximum number of characters.
    fn texts(&self, limits: &Limits) -> SmallVec<[(&'static str, &SqlText, usize); 2]> {
        let filter = match &self.filter {
            Filter::Sql(sql) => Some(("filter", sql, limits.filter_chars_max)),
            Filter::True | Filter::False | Filter::Correlation(_) => None,
        };
        let action = self.action.as_ref().map(|sql| ("action", sql, limits.action_chars_max));
        filter.into_iter().chain(action).collect()
    }

    /// Bytes of the texts, names, values and extensions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let filter = match &self.filter {
            Filter::True | Filter::False => 0,
            Filter::Correlation(filter) => filter.bytes(),
            Filter::Sql(sql) => sql.bytes(),
        };
        let other_bytes = self.name.len() + self.extensions.as_deref().map_or(0, str::len);
        filter + self.action.as_ref().map_or(0, SqlText::bytes) + other_bytes as u64
    }

    /// Frees spare capacity.
    pub(super) fn shrink(&mut self) {
        match &mut self.filter {
            Filter::True | Filter::False => {}
            Filter::Correlation(filter) => filter.properties.shrink_to_fit(),
            Filter::Sql(sql) => sql.parameters.shrink(),
        }
        if let Some(sql) = &mut self.action {
            sql.parameters.shrink();
        }
    }

    /// Bytes of memory that the description owns: an estimate, on the high side.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filter = match &self.filter {
            Filter::True | Filter::False => 0,
            Filter::Correlation(filter) => filter.len(),
            Filter::Sql(sql) => sql.parameters.len(),
        };
        let parameters = self.action.as_ref().map_or(0, |sql| sql.parameters.len());
        let pairs = (filter + parameters) * (size_of::<(Box<str>, Value)>() + 2 * ALLOCATION_BYTES);
        // The texts, and the allocations of filter, action, name and extensions.
        usize::try_from(self.bytes()).unwrap_or(usize::MAX).saturating_add(pairs)
            + 6 * ALLOCATION_BYTES
    }

    /// Bounds the size for any filter: a description stays in memory, and messages are compared
    /// with it.
    fn check_size(&self, limits: &Limits) -> Result<(), Rejection> {
        let (bytes, limit) = (self.bytes(), limits.rule_bytes_max);
        if bytes <= limit {
            return Ok(());
        }
        Err(Rejection::out_of_range(format!(
            "texts, names and values of rule {} have {bytes} bytes, more than the limit \
             `rule_bytes_max` of {limit}; shorten it, or split it into several rules",
            Quoted(&self.name)
        )))
    }
}

/// Refuses more properties or parameters than a rule may have.
fn check_count(part: &str, rule: &str, count: usize, limits: &Limits) -> Result<(), Rejection> {
    let limit = limits.rule_property_count_max;
    if count <= limit {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "{part} of rule {} has {count} properties or parameters, more than the limit \
         `rule_property_count_max` of {limit}; split it into several rules",
        Quoted(rule)
    )))
}

impl Filter {
    /// A rule with this name and filter, to add to a subscription. The broker sets the instant of
    /// creation.
    ///
    /// ```
    /// # use peeklock_words as peeklock;
    /// use peeklock::rule::Filter;
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

    /// SQL-14: refuses repeated parameters, ignoring case. The caller must have checked their
    /// number already.
    fn validate(&self, part: &str, rule: &str) -> Result<(), Rejection> {
        let mut names = BTreeSet::new();
        for (name, _) in self.parameters.iter() {
            if !names.insert(crate::message::folded_name(name)) {
                return Err(Rejection::argument(format!(
                    "parameter {} of the {part} of rule {} is given twice; keep one",
                    Quoted(name),
                    Quoted(rule)
                )));
            }
        }
        Ok(())
    }

    /// Bytes of the text, and of names and values of parameters.
    fn bytes(&self) -> u64 {
        let parameters = self.parameters.iter().map(|(name, value)| pair_bytes(name, value));
        self.text.len() as u64 + parameters.sum::<u64>()
    }
}

impl From<&str> for SqlText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}
