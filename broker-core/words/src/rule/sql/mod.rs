//! The language of SQL filters and actions (spec file 14). A text is parsed once, when a rule is
//! created.
//!
//! ```text
//!  text -> token -> parser -> program -> evaluate -> True, False, Unknown, or an error
//!                                ^           ^
//!                            constants   Properties of the message, read in place
//! ```
//!
//! A program is a list of steps for a stack of operands: there is no recursion, and an evaluation
//! allocates only to concatenate texts. Not here: the use of the result.

mod compare;
mod convert;
mod decimal;
mod error;
mod evaluate;
mod like;
mod number;
mod operand;
mod parser;
mod program;
mod token;

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that goes wrong may panic")]
mod tests;

pub use compare::{Comparison, equal};
pub use decimal::Decimal;
pub use error::{EvaluationError, Fault, Position, Problem, SyntaxError};
pub use evaluate::{Observer, Random, Unobserved};
pub use number::Arithmetic;
pub use operand::{Kind, Operand};
pub use program::Program;

pub(in crate::rule) use compare::hash;
pub(crate) use convert::to_text;
pub(in crate::rule) use convert::{to_time_span, to_timestamp, to_type_of};
pub(in crate::rule) use evaluate::STEPS_MAX;

use crate::message::Value;
use crate::rule::system::SystemProperty;

/// Typed values for the parameters of a text (SQL-14), by names without `@` that ignore case.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parameters {
    /// In the order in which they were added.
    values: Vec<(Box<str>, Value)>,
}

/// One statement of an action.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(in crate::rule) target: Target,
    /// The new value; `None` removes the property.
    pub(in crate::rule) expression: Option<Program>,
    /// First byte of the statement in the text.
    pub(in crate::rule) from: u32,
    /// End of the statement in the text.
    pub(in crate::rule) to: u32,
}

impl Statement {
    /// Bytes of memory of the statement: an estimate, on the high side.
    pub(in crate::rule) fn memory_bytes(&self) -> usize {
        let name = match &self.target {
            Target::User(name) => name.len() + super::ALLOCATION_BYTES,
            Target::System(_) | Target::NoSuchProperty => 0,
        };
        size_of::<Self>() + name + self.expression.as_ref().map_or(0, Program::memory_bytes)
    }
}

/// The property that a statement changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::rule) enum Target {
    User(Box<str>),
    System(SystemProperty),
    /// A broker property that does not exist (ACT-04).
    NoSuchProperty,
}

impl<N: AsRef<str>> FromIterator<(N, Value)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        pairs.fold(Self::new(), |parameters, (name, value)| parameters.with(name.as_ref(), value))
    }
}

impl Parameters {
    /// No parameters.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Adds a parameter. An `@` before the name is ignored.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let name = name.strip_prefix('@').unwrap_or(name);
        self.values.push((name.into(), value.into()));
        self
    }

    /// The value of the parameter of that name, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let same = |known: &str| crate::message::same_name(known, name);
        self.values.iter().find(|(known, _)| same(known)).map(|(_, value)| value)
    }

    /// Names without `@` and values, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Frees spare capacity.
    pub(in crate::rule) fn shrink(&mut self) {
        self.values.shrink_to_fit();
    }

    /// Number of parameters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no parameters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Compiles the text of a filter.
///
/// # Errors
/// A [`SyntaxError`] at the first position that cannot be parsed (TOP-16).
pub fn compile_filter(text: &str, parameters: &Parameters) -> Result<Program, SyntaxError> {
    parser::filter(text, parameters)
}

/// Compiles the text of an action of at most `statement_count_max` statements.
///
/// # Errors
/// A [`SyntaxError`] at the first position that cannot be parsed (TOP-16).
pub fn compile_action(
    text: &str,
    parameters: &Parameters,
    statement_count_max: usize,
) -> Result<Vec<Statement>, SyntaxError> {
    parser::action(text, parameters, statement_count_max)
}

/// Refuses a text of more than `limit` characters. The error names the position of the first
/// character over it (SQL-02).
///
/// # Errors
/// [`Problem::TooLong`]
pub fn check_length(text: &str, limit: usize) -> Result<(), SyntaxError> {
    let Some((byte, _)) = text.char_indices().nth(limit) else {
        return Ok(());
    };
    let problem = Problem::TooLong { characters: text.chars().count(), limit };
    Err(SyntaxError { position: Position::of(text, byte), problem })
}
