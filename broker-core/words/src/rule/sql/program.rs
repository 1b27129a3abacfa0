//! A compiled text: a list of steps for a stack of operands. The parser writes it and the
//! evaluation runs it.
//!
//! Every step has its span of the text, for errors and explanations.

use super::compare::Comparison;
use super::like::Pattern;
use super::number::Arithmetic;
use crate::message::Value;
use crate::rule::ALLOCATION_BYTES;
use crate::rule::system::SystemProperty;

/// The steps of a filter, or of an expression of an action. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    /// The span of the text for each step.
    pub(super) spans: Vec<Span>,
    pub(super) constants: Vec<Value>,
    pub(super) names: Vec<Box<str>>,
    pub(super) patterns: Vec<Pattern>,
}

impl Program {
    /// Bytes of memory of the program: an estimate, on the high side.
    pub(in crate::rule) fn memory_bytes(&self) -> usize {
        let constants = self.constants.iter().map(Value::heap_bytes).sum::<usize>();
        let names = self.names.iter().map(|name| name.len()).sum::<usize>();
        let patterns = self.patterns.iter().map(Pattern::memory_bytes).sum::<usize>();
        self.steps.capacity() * size_of::<Step>()
            + self.spans.capacity() * size_of::<Span>()
            + self.constants.capacity() * (size_of::<Value>() + ALLOCATION_BYTES)
            + self.names.capacity() * (size_of::<Box<str>>() + ALLOCATION_BYTES)
            + self.patterns.capacity() * size_of::<Pattern>()
            + constants
            + names
            + patterns
    }
}

/// A range of a text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Index into a list of the program.
pub(super) type Index = u32;

/// A step. A jump has the index of its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Pushes a constant.
    Constant(Index),
    /// Pushes an application property.
    User(Index),
    /// Pushes a broker property.
    System(SystemProperty),
    /// A broker property that does not exist (SQL-10).
    NoSuchProperty,
    /// Replaces a name by the property of that name (SQL-12).
    Named,
    /// Pushes a new UUID.
    NewId,
    Plus,
    Minus,
    Compute(Arithmetic),
    Compare(Comparison),
    IsNull,
    IsNotNull,
    /// Pushes whether an application property exists.
    UserExists(Index),
    /// Pushes whether a broker property is set.
    SystemExists(SystemProperty),
    /// Takes text and pattern.
    Like,
    /// Takes text, pattern and escape.
    LikeEscape,
    /// Takes text; the pattern was compiled with the program.
    LikePattern(Index),
    /// Begins a list if the operand is known, otherwise jumps past it.
    In(Index),
    /// Takes an element; jumps past the list if it is equal.
    Element(Index),
    /// Ends a list without an equal element.
    InEnd,
    Not,
    /// Jumps past the right side if the left one is false.
    AndThen(Index),
    And,
    /// Jumps past the right side if the left one is true.
    OrElse(Index),
    Or,
}
