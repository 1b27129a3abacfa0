//! Evaluates a program with the properties of a message (SQL-15 to SQL-41). The number of steps is
//! bounded, and values are borrowed from the message and the rule.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::compare::{Comparison, compare};
use super::error::{EvaluationError, Fault};
use super::like::Pattern;
use super::number::{Arithmetic, Number};
use super::operand::{Kind, Operand, is_timestamp};
use super::program::{Index, Program, Span, Step};
use crate::rule::properties::Properties;
use crate::rule::system::SystemProperty;

/// Hardly any expression needs more operands at the same time; deeper ones allocate.
const INLINE_OPERANDS: usize = 6;
/// Maximum number of bytes of a concatenated text, as many as all properties of a message may have.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of steps of an evaluation (SQL-41). A step is about a byte that is read, and an
/// operation takes several. The maximum takes about ten milliseconds. Only patterns from the
/// message, or dozens of patterns with `_`, over texts of tens of kilobytes need more.
pub(in crate::rule) const STEPS_MAX: u64 = 16 << 20;
/// Steps of an operation, in addition to the bytes that it reads.
pub(super) const OPERATION_STEPS: u64 = 16;

/// Receives the reads and tests of an evaluation, for explanations.
pub trait Observer {
    /// A property was read.
    fn read(&mut self, name: &str, value: Option<&Operand<'_>>) {
        let _ = (name, value);
    }

    /// A broker property was read.
    fn read_system(&mut self, property: SystemProperty, value: Option<&Operand<'_>>) {
        self.read(property.name(), value);
    }

    /// The test in the text from byte `from` to byte `to` had this result; `None` is Unknown.
    fn record_test(&mut self, from: u32, to: u32, operands: &[Operand<'_>], result: Option<bool>) {
        let _ = (from, to, operands, result);
    }

    /// An evaluation finished or failed after this many steps.
    fn count_steps(&mut self, steps: u64) {
        let _ = steps;
    }
}

/// An observer that ignores everything.
pub struct Unobserved;

impl Observer for Unobserved {}

/// Source of random bits for `newid()`.
pub type Random<'r> = dyn FnMut() -> u64 + 'r;

impl Program {
    /// The truth of a filter; `None` is Unknown, which selects no message (SQL-15).
    ///
    /// # Errors
    /// SQL-40
    pub fn test<'a>(
        &'a self,
        properties: &'a impl Properties,
        random: &mut Random<'_>,
        observer: &mut impl Observer,
    ) -> Result<Option<bool>, EvaluationError> {
        let whole = self.whole();
        truth(&self.value(properties, random, observer)?).map_err(|fault| whole.error(fault))
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// ACT-10
    pub fn value<'a>(
        &'a self,
        properties: &'a impl Properties,
        random: &mut Random<'_>,
        observer: &mut impl Observer,
    ) -> Result<Operand<'a>, EvaluationError> {
        let stack = SmallVec::new();
        let mut run = Run { program: self, properties, random, observer, stack, steps: 0 };
        let mut at = 0;
        while let Some(step) = self.steps.get(at) {
            match run.spend(OPERATION_STEPS).and_then(|()| run.step(*step, at)) {
                Ok(None) => at += 1,
                Ok(Some(place)) => at = usize::try_from(place).unwrap_or(usize::MAX),
                Err(fault) => {
                    run.observer.count_steps(run.steps);
                    return Err(self.span(at).error(fault));
                }
            }
        }
        run.observer.count_steps(run.steps);
        Ok(run.pop())
    }

    /// The factor by which the steps of an evaluation grow with the sizes of the values that it
    /// reads. An estimate, on the high side.
    pub(in crate::rule) fn weight(&self) -> u64 {
        let mut weight = 0u64;
        let mut joins = 1u64;
        for step in &self.steps {
            weight += match step {
                Step::LikePattern(place) => {
                    let place = usize::try_from(*place).unwrap_or(usize::MAX);
                    self.patterns.get(place).map_or(1, Pattern::weight)
                }
                // For a pattern as long as the largest property may be.
                Step::Like | Step::LikeEscape => 1 << 10,
                Step::Compute(Arithmetic::Add) => {
                    joins += 1;
                    1
                }
                _ => 1,
            };
        }
        weight.saturating_mul(joins)
    }

    fn span(&self, at: usize) -> Span {
        self.spans.get(at).copied().unwrap_or(Span { from: 0, to: 0 })
    }

    /// The span of the last step is the whole text, unless the last step is the target of a jump.
    fn whole(&self) -> Span {
        self.spans.last().copied().unwrap_or(Span { from: 0, to: 0 })
    }

    pub(super) fn constant(&self, place: Index) -> Operand<'_> {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.constants.get(place).map_or(Operand::Unknown, |value| value.borrow().into())
    }

    fn name(&self, place: Index) -> &str {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.names.get(place).map_or("", |name| name)
    }
}

impl Span {
    pub(super) const fn error(self, fault: Fault) -> EvaluationError {
        EvaluationError { from: self.from, to: self.to, fault }
    }
}

struct Run<'a, 'r, 'x, P, O> {
    program: &'a Program,
    properties: &'a P,
    random: &'r mut Random<'x>,
    observer: &'r mut O,
    stack: SmallVec<[Operand<'a>; INLINE_OPERANDS]>,
    /// Number of steps taken.
    steps: u64,
}

impl<'a, P: Properties, O: Observer> Run<'a, '_, '_, P, O> {
    /// SQL-41: counts the steps of an operation before it runs. Refused steps are not counted.
    #[inline]
    fn spend(&mut self, steps: u64) -> Result<(), Fault> {
        let steps = self.steps.saturating_add(steps);
        if steps > STEPS_MAX {
            return Err(Fault::TooManySteps(STEPS_MAX));
        }
        self.steps = steps;
        Ok(())
    }

    fn push(&mut self, operand: Operand<'a>) {
        self.stack.push(operand);
    }

    fn push_truth(&mut self, truth: Option<bool>) {
        self.stack.push(truth.map_or(Operand::Unknown, Operand::Bool));
    }

    /// The parser guarantees that each step finds its operands.
    fn pop(&mut self) -> Operand<'a> {
        self.stack.pop().unwrap_or_default()
    }

    /// Runs a step. Returns the target if the step jumps.
    #[inline]
    fn step(&mut self, step: Step, at: usize) -> Result<Option<Index>, Fault> {
        match step {
            Step::Constant(place) => {
                let constant = self.program.constant(place);
                self.push(constant);
            }
            Step::User(place) => {
                self.spend(self.properties.lookup_steps())?;
                self.user(self.program.name(place));
            }
            Step::System(property) => self.system(property),
            Step::NoSuchProperty => return Err(Fault::NoSuchProperty),
            Step::Named => self.named()?,
            Step::NewId => self.new_id(),
            Step::Plus => self.sign("+", |number| Ok(number.widened()))?,
            Step::Minus => self.minus()?,
            Step::Compute(operator) => self.compute(operator)?,
            Step::Compare(comparison) => self.compare(comparison, at)?,
            Step::IsNull => self.is_null(true, at),
            Step::IsNotNull => self.is_null(false, at),
            Step::UserExists(place) => {
                self.spend(self.properties.lookup_steps())?;
                let found = self.properties.user(self.program.name(place)).is_some();
                self.exists(found, at);
            }
            Step::SystemExists(property) => {
                let found = self.properties.system(property) != Operand::Unknown;
                self.exists(found, at);
            }
            Step::Like => self.like(None, at)?,
            Step::LikeEscape => {
                let escape = self.pop();
                self.like(Some(escape), at)?;
            }
            Step::LikePattern(place) => self.like_pattern(place, at)?,
            Step::In(end) => {
                if self.stack.last() == Some(&Operand::Unknown) {
                    self.tested(at, &[Operand::Unknown], None);
                    return Ok(Some(end));
                }
                self.push_truth(Some(false));
            }
            Step::Element(end) => return self.element(end, at),
            Step::InEnd => {
                let found = self.pop();
                let operand = self.pop();
                self.tested(at, &[operand], truth(&found)?);
                self.push(found);
            }
            Step::Not => {
                let operand = self.condition(at)?;
                self.push_truth(operand.map(|value| !value));
            }
            Step::AndThen(end) => {
                let left = self.condition(at)?;
                self.push_truth(left);
                return Ok((left == Some(false)).then_some(end));
            }
            Step::And => {
                let right = self.condition(at)?;
                let left = truth(&self.pop())?;
                self.push_truth(and(left, right));
            }
            Step::OrElse(end) => {
                let left = self.condition(at)?;
                self.push_truth(left);
                return Ok((left == Some(true)).then_some(end));
            }
            Step::Or => {
                let right = self.condition(at)?;
                let left = truth(&self.pop())?;
                self.push_truth(or(left, right));
            }
        }
        Ok(None)
    }

    fn tested(&mut self, at: usize, operands: &[Operand<'_>], result: Option<bool>) {
        let Span { from, to } = self.program.span(at);
        self.observer.record_test(from, to, operands, result);
    }

    fn condition(&mut self, _at: usize) -> Result<Option<bool>, Fault> {
        truth(&self.pop())
    }

    fn user(&mut self, name: &str) {
        let found = self.properties.user(name);
        self.observer.read(name, found.as_ref());
        self.push(found.unwrap_or_default());
    }

    fn system(&mut self, property: SystemProperty) {
        let value = self.properties.system(property);
        let set = (value != Operand::Unknown).then_some(&value);
        self.observer.read_system(property, set);
        self.push(value);
    }

    /// SQL-12
    fn named(&mut self) -> Result<(), Fault> {
        let operand = self.pop();
        if operand == Operand::Unknown {
            self.push(operand);
            return Ok(());
        }
        let mut buffer = [0; 4];
        let Some(name) = operand.as_text(&mut buffer) else {
            return Err(Fault::NameType(operand.kind()));
        };
        match scoped(name) {
            ScopedName::User(name) => {
                self.spend(self.properties.lookup_steps())?;
                self.user(name);
            }
            ScopedName::System(name) => {
                self.system(SystemProperty::parse(name).ok_or(Fault::NoSuchProperty)?);
            }
        }
        Ok(())
    }

    /// A random UUID (version 4).
    fn new_id(&mut self) {
        let bits = u128::from((self.random)()) << 64 | u128::from((self.random)());
        let version = (bits & !(0xf << 76)) | (0x4 << 76);
        self.push(Operand::Uuid((version & !(0x3 << 62)) | (0x2 << 62)));
    }

    fn sign(
        &mut self,
        operator: &'static str,
        compute: impl FnOnce(Number) -> Result<Operand<'static>, Fault>,
    ) -> Result<(), Fault> {
        let operand = self.pop();
        if operand == Operand::Unknown {
            self.push(operand);
            return Ok(());
        }
        let number = Number::of(&operand)
            .ok_or_else(|| Fault::Sign { operator, operand: operand.kind() })?;
        self.push(compute(number)?);
        Ok(())
    }

    fn minus(&mut self) -> Result<(), Fault> {
        if let Some(Operand::TimeSpan(ticks)) = self.stack.last() {
            let ticks = ticks.checked_neg().ok_or(Fault::Overflow("-"))?;
            self.pop();
            self.push(Operand::TimeSpan(ticks));
            return Ok(());
        }
        self.sign("-", Number::negate)
    }

    fn compute(&mut self, operator: Arithmetic) -> Result<(), Fault> {
        let right = self.pop();
        let left = self.pop();
        self.spend(right.length())?;
        let result = compute(left, operator, right)?;
        self.push(result);
        Ok(())
    }

    fn compare(&mut self, comparison: Comparison, at: usize) -> Result<(), Fault> {
        let right = self.pop();
        let left = self.pop();
        self.spend(left.length().min(right.length()))?;
        let result = compare(comparison, &left, &right)?;
        self.tested(at, &[left, right], result);
        self.push_truth(result);
        Ok(())
    }

    fn is_null(&mut self, wanted: bool, at: usize) {
        let operand = self.pop();
        let result = Some((operand == Operand::Unknown) == wanted);
        self.tested(at, &[operand], result);
        self.push_truth(result);
    }

    fn exists(&mut self, found: bool, at: usize) {
        self.tested(at, &[], Some(found));
        self.push_truth(Some(found));
    }

    /// SQL-25 to SQL-29 for a pattern that is not constant.
    fn like(&mut self, escape: Option<Operand<'a>>, at: usize) -> Result<(), Fault> {
        let pattern = self.pop();
        let text = self.pop();
        let unknown = |operand: &Operand<'_>| *operand == Operand::Unknown;
        if unknown(&text) || unknown(&pattern) || escape.as_ref().is_some_and(unknown) {
            self.tested(at, &[text, pattern], None);
            self.push_truth(None);
            return Ok(());
        }
        let pattern_text = like_text(&pattern)?;
        let escape = escape.as_ref().map(like_text).transpose()?;
        let text_read = like_text(&text)?;
        // Compiling a pattern sorts its characters.
        self.spend((pattern_text.len() as u64).saturating_mul(16))?;
        let compiled = Pattern::new(pattern_text, escape)?;
        self.spend(compiled.steps(text_read.len()))?;
        let result = Some(compiled.matches(text_read));
        self.tested(at, &[text, pattern], result);
        self.push_truth(result);
        Ok(())
    }

    fn like_pattern(&mut self, place: Index, at: usize) -> Result<(), Fault> {
        let text = self.pop();
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let result = match (&text, self.program.patterns.get(place)) {
            (Operand::Unknown, _) => None,
            (_, pattern) => {
                let text = like_text(&text)?;
                self.spend(pattern.map_or(1, |pattern| pattern.steps(text.len())))?;
                Some(pattern.is_some_and(|pattern| pattern.matches(text)))
            }
        };
        self.tested(at, &[text], result);
        self.push_truth(result);
        Ok(())
    }

    /// SQL-24: the stack has the operand and the result of the previous elements.
    fn element(&mut self, end: Index, at: usize) -> Result<Option<Index>, Fault> {
        let element = self.pop();
        let so_far = self.pop();
        let operand = self.pop();
        self.spend(element.length().min(operand.length()))?;
        let equal = compare(Comparison::Equal, &operand, &element)?;
        if equal == Some(true) {
            self.tested(at, &[operand, element], Some(true));
            self.push_truth(Some(true));
            return Ok(Some(end));
        }
        self.push(operand);
        self.push(if equal.is_none() { Operand::Unknown } else { so_far });
        Ok(None)
    }
}

/// The truth of a value that is used as a condition (SQL-04); `None` is Unknown.
fn truth(operand: &Operand<'_>) -> Result<Option<bool>, Fault> {
    match operand {
        Operand::Bool(value) => Ok(Some(*value)),
        Operand::Unknown => Ok(None),
        other => Err(Fault::NotACondition(other.kind())),
    }
}

/// SQL-18
const fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// SQL-19
const fn or(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        (None, _) | (_, None) => None,
    }
}

/// SQL-29
fn like_text<'s>(operand: &'s Operand<'_>) -> Result<&'s str, Fault> {
    match operand {
        Operand::Text(text) => Ok(text),
        other => Err(Fault::LikeType(other.kind())),
    }
}

/// SQL-30 to SQL-37
pub(super) fn compute<'a>(
    left: Operand<'a>,
    operator: Arithmetic,
    right: Operand<'a>,
) -> Result<Operand<'a>, Fault> {
    if left == Operand::Unknown || right == Operand::Unknown {
        return Ok(Operand::Unknown);
    }
    if let (Some(left), Some(right)) = (Number::of(&left), Number::of(&right)) {
        return left.compute(operator, right);
    }
    match operator {
        Arithmetic::Add => add(left, right),
        Arithmetic::Subtract => subtract(&left, &right),
        Arithmetic::Multiply | Arithmetic::Divide | Arithmetic::Modulo => {
            Err(types(operator, &left, &right))
        }
    }
}

fn types(operator: Arithmetic, left: &Operand<'_>, right: &Operand<'_>) -> Fault {
    Fault::Types { operator: operator.sign(), left: left.kind(), right: right.kind() }
}

/// Adds texts and anything that has a text, and instants and time-spans (SQL-34, SQL-37).
fn add<'a>(left: Operand<'a>, right: Operand<'a>) -> Result<Operand<'a>, Fault> {
    let is_text = |operand: &Operand<'_>| operand.kind() == Kind::Text;
    let is_char = |operand: &Operand<'_>| operand.kind() == Kind::Char;
    let is_bytes = |operand: &Operand<'_>| matches!(operand, Operand::Binary(_));
    let has_text = is_text(&left) || is_text(&right);
    if has_text && !is_bytes(&left) && !is_bytes(&right) || is_char(&left) && is_char(&right) {
        return join(left, &right);
    }
    let overflow = Fault::Overflow("+");
    match (&left, &right) {
        (Operand::TimeSpan(left), Operand::TimeSpan(right)) => {
            left.checked_add(*right).map(Operand::TimeSpan).ok_or(overflow)
        }
        (instant, Operand::TimeSpan(span)) | (Operand::TimeSpan(span), instant) => {
            moved(instant, i128::from(*span)).ok_or_else(|| match instant.kind() {
                Kind::Instant => overflow,
                _ => types(Arithmetic::Add, &left, &right),
            })
        }
        _ => Err(types(Arithmetic::Add, &left, &right)),
    }
}

/// Concatenates the texts of two operands; an operand of another type is converted to its invariant
/// text (ACT-05).
fn join<'a>(left: Operand<'a>, right: &Operand<'_>) -> Result<Operand<'a>, Fault> {
    let mut buffer = [0; 4];
    let tail = match right.as_text(&mut buffer) {
        Some(tail) => Cow::Borrowed(tail),
        None => Cow::Owned(super::convert::invariant_text(right)),
    };
    // A concatenated text grows in place, so that a long sum takes linear time.
    let mut joined = match left {
        Operand::Text(text) => text.into_owned(),
        other => super::convert::invariant_text(&other),
    };
    let bytes = joined.len().saturating_add(tail.len());
    if bytes > TEXT_BYTES_MAX {
        return Err(Fault::TextSize { bytes, limit: TEXT_BYTES_MAX });
    }
    joined.push_str(&tail);
    Ok(Operand::Text(Cow::Owned(joined)))
}

fn subtract(left: &Operand<'_>, right: &Operand<'_>) -> Result<Operand<'static>, Fault> {
    let overflow = Fault::Overflow("-");
    if let (Some(left), Some(right)) = (left.instant_ticks(), right.instant_ticks()) {
        return i64::try_from(left - right).map(Operand::TimeSpan).map_err(|_| overflow);
    }
    match (left, right) {
        (Operand::TimeSpan(left), Operand::TimeSpan(right)) => {
            left.checked_sub(*right).map(Operand::TimeSpan).ok_or(overflow)
        }
        (instant, Operand::TimeSpan(span)) if instant.kind() == Kind::Instant => {
            moved(instant, -i128::from(*span)).ok_or(overflow)
        }
        _ => Err(types(Arithmetic::Subtract, left, right)),
    }
}

/// An instant of the same type, later by `ticks`.
fn moved(instant: &Operand<'_>, ticks: i128) -> Option<Operand<'static>> {
    match instant {
        Operand::Timestamp(at) => {
            let moved = at.checked_add(ticks)?;
            is_timestamp(moved).then_some(Operand::Timestamp(moved))
        }
        Operand::DateTimeOffset(at) => {
            i64::try_from(i128::from(*at) + ticks).ok().map(Operand::DateTimeOffset)
        }
        _ => None,
    }
}

/// A name from text, with or without a scope (SQL-12).
pub(super) enum ScopedName<'n> {
    User(&'n str),
    System(&'n str),
}

/// Splits off a scope. A dot after anything but a scope belongs to the name.
pub(super) fn scoped(name: &str) -> ScopedName<'_> {
    match name.split_once('.') {
        Some((scope, rest)) if scope.eq_ignore_ascii_case("sys") => ScopedName::System(rest),
        Some((scope, rest)) if scope.eq_ignore_ascii_case("user") => ScopedName::User(rest),
        _ => ScopedName::User(name),
    }
}
