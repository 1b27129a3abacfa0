//! Rules: which messages of a topic a subscription gets, and how they are changed (spec files 13, 14).
//!
//! ```text
//!  RuleDescription -> Rule -> Matcher::publish -> one Copy for each copy that is to be stored
//!   what is stored   parsed   all subscriptions   subscription, overlay, or straight into the DLQ
//! ```
//!
//! Pure like the machines: no clock, no store, no randomness of its own, no unordered walk. Absent on
//! purpose: numbers, slots and changes, which are the topic's.
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::indexing_slicing)]

mod action;
mod correlation;
mod description;
mod explain;
mod judging;
mod matcher;
mod properties;
mod selection;
pub mod sql;
mod system;
mod trial;

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::cast_sign_loss,
    reason = "a test that goes wrong may panic"
)]
mod tests;

pub use action::Changed;
pub use correlation::CorrelationFilter;
pub use description::{DEFAULT_RULE, Filter, RuleDescription, SqlText};
pub use explain::{Explanation, Read, Tested, Verdict};
pub use judging::{Judged, Judging};
pub use matcher::{Matcher, SubscriptionSettings};
pub use properties::{Facts, Properties, Published};
pub use selection::{Cause, Copy, Counted, Excess, Refusal, Selection};
pub use system::SystemProperty;
pub use trial::try_rules;

use correlation::Condition;
use sql::{EvaluationError, Observer, Program, Random, Statement, SyntaxError};

use crate::error::Rejection;
use crate::limits::Limits;

/// A rule that is ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Rule {
    description: RuleDescription,
    filter: Compiled,
    action: Option<Vec<Statement>>,
}

/// A filter as it is evaluated.
#[derive(Clone, Debug)]
enum Compiled {
    Always,
    Never,
    Correlation(Vec<Condition>),
    Sql(Program),
}

/// What is wrong, and in which text.
type Malformed = (SyntaxError, &'static str);

impl Rule {
    /// A new rule, after its name, its filter and its action were judged (TOP-16, TOP-24).
    ///
    /// # Errors
    /// `ArgumentError` for a malformed text, with the position, for an empty correlation filter and
    /// for a bad name; `ArgumentOutOfRange` for what is too long, too large or too deep.
    pub fn create(description: RuleDescription, limits: &Limits) -> Result<Self, Rejection> {
        description.validate(limits)?;
        let count_max = limits.action_statement_count_max;
        let (filter, action) = compile(&description, count_max)
            .map_err(|(error, what)| error.to_rejection(what, &description.name))?;
        Ok(Self { description, filter, action })
    }

    /// A rule that was stored, whatever limits are in force now.
    ///
    /// # Errors
    /// When a text is not one that this version could have stored.
    pub fn restore(description: RuleDescription) -> Result<Self, SyntaxError> {
        let (filter, action) = compile(&description, usize::MAX).map_err(|(error, _)| error)?;
        Ok(Self { description, filter, action })
    }

    /// What it was made from.
    #[must_use]
    pub const fn description(&self) -> &RuleDescription {
        &self.description
    }

    /// The name in the case given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Whether its filter is a text in SQL; those are counted by themselves (QUO-01).
    const fn is_sql(&self) -> bool {
        matches!(self.filter, Compiled::Sql(_))
    }

    /// Whether it changes what it selects.
    #[must_use]
    pub const fn has_action(&self) -> bool {
        self.action.is_some()
    }

    /// Whether the filter is True, False or, with none, Unknown for a message (SQL-15).
    ///
    /// # Errors
    /// SQL-40; only SQL filters have errors.
    pub fn test(
        &self,
        properties: &impl Properties,
        random: &mut Random<'_>,
        observer: &mut impl Observer,
    ) -> Result<Option<bool>, EvaluationError> {
        match &self.filter {
            Compiled::Always => Ok(Some(true)),
            Compiled::Never => Ok(Some(false)),
            Compiled::Correlation(conditions) => {
                Ok(Some(conditions.iter().all(|condition| condition.holds(properties))))
            }
            Compiled::Sql(program) => program.test(properties, random, observer),
        }
    }
}

/// The filter and the action, ready to be evaluated; an error with the word for its text.
fn compile(
    description: &RuleDescription,
    statement_count_max: usize,
) -> Result<(Compiled, Option<Vec<Statement>>), Malformed> {
    let filter = match &description.filter {
        Filter::True => Compiled::Always,
        Filter::False => Compiled::Never,
        Filter::Correlation(filter) => Compiled::Correlation(filter.conditions()),
        Filter::Sql(sql) => sql::compile_filter(&sql.text, &sql.parameters)
            .map(Compiled::Sql)
            .map_err(|error| (error, "filter"))?,
    };
    let action = description
        .action
        .as_ref()
        .map(|sql| sql::compile_action(&sql.text, &sql.parameters, statement_count_max))
        .transpose()
        .map_err(|error| (error, "action"))?;
    Ok((filter, action))
}
