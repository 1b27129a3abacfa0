//! What a rule is made from, and what is stored of it.

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

    /// Judges name, sizes and what is given twice; the texts themselves are judged when they are compiled. Sizes
    /// come first, so that the rest is done with little only.
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

    /// What it has in SQL, with the word for it and the characters it may have.
    fn texts(&self, limits: &Limits) -> SmallVec<[(&'static str, &SqlText, usize); 2]> {
        let filter = match &self.filter {
            Filter::Sql(sql) => Some(("filter", sql, limits.filter_chars_max)),
            Filter::True | Filter::False | Filter::Correlation(_) => None,
        };
        let action = self.action.as_ref().map(|sql| ("action", sql, limits.action_chars_max));
        filter.into_iter().chain(action).collect()
    }

    /// The bytes of its texts, names and values, and of what stands beside them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let filter = match &self.filter {
            Filter::True | Filter::False => 0,
            Filter::Correlation(filter) => filter.bytes(),
            Filter::Sql(sql) => sql.bytes(),
        };
        let beside = self.name.len() + self.extensions.as_deref().map_or(0, str::len);
        filter + self.action.as_ref().map_or(0, SqlText::bytes) + beside as u64
    }

    /// Keeps no memory for what could be added.
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

    /// What it takes in memory beside itself, about, on the high side.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filter = match &self.filter {
            Filter::True | Filter::False => 0,
            Filter::Correlation(filter) => filter.len(),
            Filter::Sql(sql) => sql.parameters.len(),
        };
        let parameters = self.action.as_ref().map_or(0, |sql| sql.parameters.len());
        let pairs = (filter + parameters) * (size_of::<(Box<str>, Value)>() + 2 * ALLOCATION_BYTES);
        // Texts, and the allocations of filter, action, name and what stands beside them.
        usize::try_from(self.bytes()).unwrap_or(usize::MAX).saturating_add(pairs)
            + 6 * ALLOCATION_BYTES
    }

    /// Whatever a rule selects, what it is made from stays in memory, and is gone through for messages.
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
    /// A rule of that name with this filter, for who adds it to a subscription: when it was created the broker says.
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

    /// SQL-14: no parameter is given twice, in whatever case. How many there are was looked at before.
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

    /// The bytes of the text, and of names and values of parameters.
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
