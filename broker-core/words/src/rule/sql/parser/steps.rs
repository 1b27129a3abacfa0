//! Writing steps for the parser: in order, with jumps whose targets are set later, and with
//! constants computed at once.

use super::super::compare::compare;
use super::super::evaluate::compute;
use super::super::number::Number;
use super::super::operand::{Kind, Operand};
use super::super::program::{Index, Span, Step};
use super::Parser;
use crate::message::Value;

impl Parser<'_> {
    /// Writes a step for the span from `from` to the last word taken. Returns its index.
    pub(super) fn emit(&mut self, step: Step, from: usize) -> usize {
        self.program.steps.push(step);
        self.program.spans.push(Span { from: place(from), to: place(self.last_to) });
        self.program.steps.len() - 1
    }

    /// Makes the next step the target of a jump.
    pub(super) fn set_target(&mut self, jump: usize) {
        let next = place(self.program.steps.len());
        if let Some(
            Step::AndThen(target) | Step::OrElse(target) | Step::In(target) | Step::Element(target),
        ) = self.program.steps.get_mut(jump)
        {
            *target = next;
        }
    }

    pub(super) fn truncate(&mut self, first: usize) {
        self.program.steps.truncate(first);
        self.program.spans.truncate(first);
    }

    pub(super) fn push_constant(&mut self, value: Value, from: usize) {
        self.program.constants.push(value);
        let constant = place(self.program.constants.len() - 1);
        self.emit(Step::Constant(constant), from);
    }

    pub(super) fn add_name(&mut self, name: Box<str>) -> Index {
        self.program.names.push(name);
        place(self.program.names.len() - 1)
    }

    /// Computes the operator just written, if its operands are constants and the result is no
    /// error. An error occurs only if the evaluation reaches it (SQL-21).
    pub(super) fn fold(&mut self, first: usize) {
        let constant = |step: &Step| match step {
            Step::Constant(place) => Some(self.program.constant(*place)),
            _ => None,
        };
        let result = match self.program.steps.get(first..) {
            Some([left, right, Step::Compute(operator)]) => {
                let (Some(left), Some(right)) = (constant(left), constant(right)) else { return };
                compute(left, *operator, right)
            }
            Some([left, right, Step::Compare(comparison)]) => {
                let (Some(left), Some(right)) = (constant(left), constant(right)) else { return };
                compare(*comparison, &left, &right)
                    .map(|truth| truth.map_or(Operand::Unknown, Operand::Bool))
            }
            Some([operand, sign @ (Step::Plus | Step::Minus)]) => {
                let Some(operand) = constant(operand) else { return };
                match Number::of(&operand) {
                    Some(number) if *sign == Step::Minus => number.negate(),
                    Some(number) => Ok(number.widened()),
                    None => return,
                }
            }
            _ => return,
        };
        let Some(value) = result.ok().and_then(|result| as_constant(&result)) else {
            return;
        };
        let from = self.program.spans.get(first).map_or(0, |span| span.from);
        self.truncate(first);
        self.push_constant(value, index(from));
    }
}

/// The result as a constant, if a constant can hold it exactly.
fn as_constant(result: &Operand<'_>) -> Option<Value> {
    match result.kind() {
        Kind::Unknown | Kind::Bool | Kind::Number | Kind::Text => Some(result.to_value()),
        _ => None,
    }
}

/// A position in a text or a list. Texts of 4 GiB are refused earlier.
pub(super) fn place(at: usize) -> Index {
    Index::try_from(at).unwrap_or(Index::MAX)
}

pub(super) fn index(at: Index) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
