//! Rules: the selection and the changes of messages for subscriptions (spec files 13, 14).
//!
//! ```text
//!  RuleDescription -> Rule -> Matcher::publish -> one Copy for each copy to store
//!   stored form      parsed   all subscriptions   subscription, overlay, or straight into the DLQ
//! ```
//!
//! Pure like the machines: no clock, no store, no internal randomness, no unordered walk. Not here:
//! numbers, slots and changes, which belong to the topic.
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
mod topic_trial;
mod trial;

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::cast_sign_loss,
    reason = "a test that goes wrong may panic"
)]
mod tests;

pub use action::CopyChanges;
pub use correlation::{CorrelationField, CorrelationFilter};
pub use description::{DEFAULT_RULE, Filter, RuleDescription, SqlText};
pub use explain::{Explanation, FilterTest, Read, Verdict};
pub use judging::{EvaluatedMessage, RuleEvaluation};
pub use matcher::{Matcher, RulePlace, SubscriptionSettings};
pub use properties::{Acceptance, Facts, Properties, PublishedMessage};
pub use selection::{Cause, Copy, Excess, Refusal, Selection, WorkCounts};
pub use system::SystemProperty;
pub use topic_trial::{RuleChange, RuleEdit, SampledMessage, SelectionChange, TopicTrial};
pub use trial::try_rules;

use correlation::{condition_steps, refuse_too_many_steps};
use sql::{EvaluationError, Observer, Program, Random, Statement, SyntaxError};

use crate::error::Rejection;
use crate::limits::Limits;

/// A compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    description: RuleDescription,
    filter: CompiledFilter,
    action: Option<Vec<Statement>>,
    memory_bytes: u64,
}

/// A compiled filter.
#[derive(Clone, Debug)]
enum CompiledFilter {
    Always,
    Never,
    /// The description has the conditions.
    Correlation,
    Sql(Program),
}

/// Estimated overhead of an allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;

/// A syntax error, and the name of the text that contains it.
type Malformed = (SyntaxError, &'static str);

impl Rule {
    /// Checks and compiles a new rule (TOP-16, TOP-24).
    ///
    /// # Errors
    /// `ArgumentError` for a malformed text, with the position, for an empty correlation filter and
    /// for a bad name; `ArgumentOutOfRange` if a part is too long, too large or too deep.
    pub fn create(description: RuleDescription, limits: &Limits) -> Result<Self, Rejection> {
        description.validate(limits)?;
        let count_max = limits.action_statement_count_max;
        let (filter, action) = compile(&description, count_max)
            .map_err(|(error, part)| error.to_rejection(part, &description.name))?;
        Ok(Self::of(description, filter, action))
    }

    /// Compiles a stored rule, without the limits for new ones.
    ///
    /// # Errors
    /// If a text is not one that this version could have stored.
    pub fn restore(description: RuleDescription) -> Result<Self, SyntaxError> {
        let (filter, action) = compile(&description, usize::MAX).map_err(|(error, _)| error)?;
        Ok(Self::of(description, filter, action))
    }

    fn of(
        mut description: RuleDescription,
        filter: CompiledFilter,
        action: Option<Vec<Statement>>,
    ) -> Self {
        description.shrink();
        let mut rule = Self { description, filter, action, memory_bytes: 0 };
        rule.memory_bytes = rule.sum_of_memory() as u64;
        rule
    }

    /// Bytes of memory in a topic: the description, its compiled form and its index entries. An
    /// estimate, on the high side.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn sum_of_memory(&self) -> usize {
        /// The entry in the list, with its spare capacity; the name and the entries in three trees.
        const FIXED_BYTES: usize = 2 * size_of::<Rule>() + 256;
        let filter = match (&self.filter, self.correlation()) {
            (CompiledFilter::Sql(program), _) => program.memory_bytes(),
            (CompiledFilter::Correlation, Some(filter)) => filter.index_bytes(),
            (CompiledFilter::Always | CompiledFilter::Never | CompiledFilter::Correlation, _) => 0,
        };
        let statements = self.action.as_deref().unwrap_or_default();
        let action = statements.iter().map(Statement::memory_bytes).sum::<usize>();
        FIXED_BYTES + self.name().len() + self.description.memory_bytes() + filter + 2 * action
    }

    /// The description.
    #[must_use]
    pub const fn description(&self) -> &RuleDescription {
        &self.description
    }

    /// The name in the case given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// Whether the filter is an SQL text. SQL rules have a separate limit (QUO-01).
    const fn is_sql(&self) -> bool {
        matches!(self.filter, CompiledFilter::Sql(_))
    }

    /// Whether the filter is a correlation filter.
    const fn is_correlation(&self) -> bool {
        matches!(self.filter, CompiledFilter::Correlation)
    }

    /// Whether the rule has an action.
    #[must_use]
    pub const fn has_action(&self) -> bool {
        self.action.is_some()
    }

    /// The correlation filter, if it is one.
    const fn correlation(&self) -> Option<&CorrelationFilter> {
        match &self.description.filter {
            Filter::Correlation(filter) => Some(filter),
            Filter::True | Filter::False | Filter::Sql(_) => None,
        }
    }

    /// Whether the filter is True, False or Unknown (`None`) for a message (SQL-15).
    ///
    /// # Errors
    /// SQL-40. A correlation filter fails only if its look-ups take too many steps (SQL-41).
    pub fn test(
        &self,
        properties: &impl Properties,
        random: &mut Random<'_>,
        observer: &mut impl Observer,
    ) -> Result<Option<bool>, EvaluationError> {
        match &self.filter {
            CompiledFilter::Always => Ok(Some(true)),
            CompiledFilter::Never => Ok(Some(false)),
            CompiledFilter::Correlation => {
                let Some(filter) = self.correlation() else { return Ok(Some(false)) };
                refuse_too_many_steps(filter.len(), properties)?;
                observer
                    .count_steps(condition_steps(properties).saturating_mul(filter.len() as u64));
                Ok(Some(filter.conditions().all(|condition| condition.holds(properties))))
            }
            CompiledFilter::Sql(program) => program.test(properties, random, observer),
        }
    }
}

/// Compiles the filter and the action. An error has the name of the text.
fn compile(
    description: &RuleDescription,
    statement_count_max: usize,
) -> Result<(CompiledFilter, Option<Vec<Statement>>), Malformed> {
    let filter = match &description.filter {
        Filter::True => CompiledFilter::Always,
        Filter::False => CompiledFilter::Never,
        Filter::Correlation(_) => CompiledFilter::Correlation,
        Filter::Sql(sql) => sql::compile_filter(&sql.text, &sql.parameters)
            .map(CompiledFilter::Sql)
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
