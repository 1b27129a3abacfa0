//! Errors in the text of a rule, and errors of its evaluation. The parser and the evaluation make
//! them; rules turn them into rejections and dead letters.

use std::fmt;

use super::operand::Kind;
use crate::condition::Condition;
use crate::error::{Quoted, Rejection};

/// Maximum number of characters of the text that an error repeats.
const EXCERPT_CHARS_MAX: usize = 40;

/// A position in a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Number of bytes before the position.
    pub byte: usize,
    /// Line number, from 1.
    pub line: usize,
    /// Number of the character in its line, from 1.
    pub column: usize,
}

/// A syntax error in a filter or an action, with its position (TOP-16).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{position}: {problem}")]
pub struct SyntaxError {
    /// The first position at which the text cannot be parsed.
    pub position: Position,
    /// The reason.
    pub problem: Problem,
}

/// Reason why a text is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// An unexpected word.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// The expected words.
        expected: &'static str,
        /// The word in its place.
        found: Box<str>,
    },
    /// A condition in the place of a value.
    #[error("expected a value, found a condition; join conditions with AND, OR and NOT only")]
    ConditionAsValue,
    /// A character that starts no word.
    #[error("unexpected character {0:?}; write a name with other characters as [name]")]
    BadCharacter(char),
    /// A text, a name or a parameter is not finished.
    #[error("{} is not finished; end it with {end}", .construct)]
    Unfinished {
        /// The kind of the word.
        construct: &'static str,
        /// Its end mark.
        end: &'static str,
    },
    /// A malformed number.
    #[error("{0} is not a number")]
    BadNumber(Box<str>),
    /// A number that does not fit (SQL-13).
    #[error("{number} is outside {range}")]
    NumberRange {
        /// The number.
        number: Box<str>,
        /// The allowed range.
        range: &'static str,
    },
    /// An empty name.
    #[error("the name is empty")]
    EmptyName,
    /// An unknown scope (SQL-05).
    #[error("unknown scope {0}; scopes are sys and user; write a name with a dot as [a.b]")]
    UnknownScope(Box<str>),
    /// A parameter without a value in the rule (SQL-14).
    #[error("the rule has no value for parameter {0}; add one")]
    UnknownParameter(Box<str>),
    /// Too many statements (SQL-02).
    #[error("this is one statement more than the {0} allowed; split it into two rules")]
    TooManyStatements(usize),
    /// Too long (SQL-02).
    #[error("the text has {characters} characters, more than the {limit} allowed; make it shorter")]
    TooLong {
        /// Number of characters of the text.
        characters: usize,
        /// Maximum number of characters.
        limit: usize,
    },
    /// Nested too deeply (SQL-42).
    #[error("nested more than {0} deep; leave out parentheses that are not needed")]
    TooDeep(usize),
}

/// An error of an evaluation (SQL-40, ACT-10), without the text in which it occurred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvaluationError {
    /// First byte of the operation in the text.
    pub from: u32,
    /// End of the operation in the text.
    pub to: u32,
    /// The reason.
    pub fault: Fault,
}

/// Reason why an evaluation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// An operator on types for which it is not defined (SQL-36, SQL-37).
    #[error("`{operator}` cannot be applied to {left} and {right}")]
    Types {
        /// The operator.
        operator: &'static str,
        /// Type on its left.
        left: Kind,
        /// Type on its right.
        right: Kind,
    },
    /// A sign on a type other than a number.
    #[error("sign `{operator}` cannot be applied to {operand}")]
    Sign {
        /// The sign.
        operator: &'static str,
        /// Type of the operand.
        operand: Kind,
    },
    /// A result outside its type (SQL-31, SQL-32).
    #[error("overflow in `{0}`")]
    Overflow(&'static str),
    /// SQL-32
    #[error("division by zero in `{0}`")]
    DivisionByZero(&'static str),
    /// A value used as a condition (SQL-04).
    #[error("{0} is not a condition; compare it with a value")]
    NotACondition(Kind),
    /// More steps than an evaluation may take (SQL-41).
    #[error(
        "the evaluation takes more than {0} steps; make texts and patterns shorter, or use fewer \
         properties"
    )]
    TooManySteps(u64),
    /// An operand of LIKE that is not text (SQL-29).
    #[error("`LIKE` cannot be applied to {0}")]
    LikeType(Kind),
    /// An escape that is not exactly one character (SQL-27).
    #[error("the escape of `LIKE` has {0} characters; it must have one")]
    EscapeLength(usize),
    /// An escape at the end of a pattern (SQL-27).
    #[error("the pattern of `LIKE` ends with its escape character")]
    DanglingEscape,
    /// A name that is not text (SQL-12).
    #[error("the name of a property is {0}; it must be text")]
    NameType(Kind),
    /// SQL-10, ACT-04
    #[error("there is no such system property")]
    NoSuchProperty,
    /// ACT-07
    #[error("system property {0} cannot be changed")]
    ReadOnly(&'static str),
    /// ACT-07
    #[error("system property {property} cannot be set to {value}")]
    NotConvertible {
        /// The property.
        property: &'static str,
        /// Type of the value.
        value: Kind,
    },
    /// ACT-07, MSG-05
    #[error("{property} would have {characters} characters, more than the {limit} allowed")]
    TooManyCharacters {
        /// The property.
        property: &'static str,
        /// Number of characters that it would have.
        characters: usize,
        /// Maximum number of characters.
        limit: usize,
    },
    /// EXP-09
    #[error("the time to live would be zero or less")]
    NoTimeToLive,
    /// MSG-26
    #[error("a property would have {bytes} bytes, more than the {limit} allowed")]
    PropertySize {
        /// Number of bytes that it would have.
        bytes: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// SQL-41
    #[error("a text of {bytes} bytes is longer than the {limit} allowed")]
    TextSize {
        /// Number of bytes that it would have.
        bytes: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
}

impl Position {
    /// The position of a byte in `text`. A byte inside a character or past the end counts as the
    /// nearest character boundary before it.
    #[must_use]
    pub fn of(text: &str, byte: usize) -> Self {
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = text.get(..byte).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let in_line = before.get(line_start..).unwrap_or_default();
        Self { byte, line: before.matches('\n').count() + 1, column: in_line.chars().count() + 1 }
    }
}

impl SyntaxError {
    /// The answer to the author of the rule (TOP-16, SQL-02); `part` is "filter" or "action".
    #[must_use]
    pub fn to_rejection(&self, part: &str, rule: &str) -> Rejection {
        let condition = match self.problem {
            Problem::TooManyStatements(_) | Problem::TooLong { .. } | Problem::TooDeep(_) => {
                Condition::ArgumentOutOfRange
            }
            Problem::Unexpected { .. }
            | Problem::ConditionAsValue
            | Problem::BadCharacter(_)
            | Problem::Unfinished { .. }
            | Problem::BadNumber(_)
            | Problem::NumberRange { .. }
            | Problem::EmptyName
            | Problem::UnknownScope(_)
            | Problem::UnknownParameter(_) => Condition::ArgumentError,
        };
        let rule = Quoted(rule);
        Rejection::new(condition, format!("{part} of rule {rule}, {self}"))
    }
}

impl EvaluationError {
    /// The error as a text that names the operation and its place in `text`.
    #[must_use]
    pub fn describe(&self, text: &str) -> String {
        let from = usize::try_from(self.from).unwrap_or(usize::MAX);
        let to = usize::try_from(self.to).unwrap_or(usize::MAX);
        let position = Position::of(text, from);
        let part = excerpt(text.get(from..to).unwrap_or_default());
        format!("{}, {position}: {part}", self.fault)
    }
}

/// An excerpt of the author's text, made printable and of bounded length.
pub(super) fn excerpt(text: &str) -> Box<str> {
    let mut characters = text.chars();
    let shown: String = characters.by_ref().take(EXCERPT_CHARS_MAX).collect();
    let more = if characters.next().is_some() { "..." } else { "" };
    format!("{}{more}", Quoted(&shown)).into()
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
