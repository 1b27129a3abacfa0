//! Compiles words to steps, by recursive descent along the grammar of the specification.
//! [`compile_filter`](super::compile_filter) and [`compile_action`](super::compile_action) call it.
//!
//! Steps are written in postfix order: operands first, then their operator.

mod steps;

use super::compare::Comparison;
use super::error::{Problem, SyntaxError};
use super::evaluate::{ScopedName, scoped};
use super::like::Pattern;
use super::number::Arithmetic;
use super::program::{Program, Step};
use super::token::{Keyword, Lexer, Mark, Token, Word};
use super::{Parameters, Statement, Target};
use crate::message::Value;
use crate::rule::system::SystemProperty;

/// Maximum depth of parentheses (SQL-42), so that no text can exhaust a stack.
pub(super) const DEPTH_MAX: usize = 128;

/// The kind of an expression: the grammar separates values and conditions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Value,
    Condition,
}

use steps::{index, place};

type Parsed<T> = Result<T, SyntaxError>;

/// Compiles a filter.
pub(super) fn filter(text: &str, parameters: &Parameters) -> Parsed<Program> {
    let mut parser = Parser::new(text, parameters)?;
    parser.or("a condition")?;
    if parser.token.word != Word::End {
        return Err(parser.unexpected("an operator, AND, OR or the end of the text"));
    }
    Ok(parser.program)
}

/// Compiles an action.
pub(super) fn action(
    text: &str,
    parameters: &Parameters,
    statement_count_max: usize,
) -> Parsed<Vec<Statement>> {
    let mut parser = Parser::new(text, parameters)?;
    let mut statements = Vec::new();
    loop {
        if statements.len() == statement_count_max && parser.token.word != Word::End {
            let problem = Problem::TooManyStatements(statement_count_max);
            return Err(parser.lexer.error(parser.token.from, problem));
        }
        statements.push(parser.statement()?);
        if parser.token.word == Word::Mark(Mark::Semicolon) {
            parser.advance()?;
        }
        if parser.token.word == Word::End {
            return Ok(statements);
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The current word.
    token: Token<'t>,
    /// End of the previous word.
    last_to: usize,
    depth: usize,
    parameters: &'t Parameters,
    program: Program,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, parameters: &'t Parameters) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Self {
            text,
            lexer,
            token,
            last_to: 0,
            depth: 0,
            parameters,
            program: Program::default(),
        })
    }

    fn advance(&mut self) -> Parsed<()> {
        self.last_to = self.token.to;
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn unexpected(&self, expected: &'static str) -> SyntaxError {
        let Token { word, from, to } = &self.token;
        let found = word.describe(self.text.get(*from..*to).unwrap_or_default());
        self.lexer.error(*from, Problem::Unexpected { expected, found })
    }

    fn is(&self, keyword: Keyword) -> bool {
        self.token.word == Word::Keyword(keyword)
    }

    fn take_keyword(&mut self, keyword: Keyword) -> Parsed<bool> {
        let found = self.is(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_mark(&mut self, mark: Mark) -> Parsed<bool> {
        let found = self.token.word == Word::Mark(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect_mark(&mut self, mark: Mark, expected: &'static str) -> Parsed<()> {
        if self.take_mark(mark)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Whether the next word is this mark. Takes no word.
    fn is_followed_by(&self, mark: Mark) -> bool {
        self.lexer.clone().next().is_ok_and(|token| token.word == Word::Mark(mark))
    }

    // Statements

    fn statement(&mut self) -> Parsed<Statement> {
        let from = self.token.from;
        if self.take_keyword(Keyword::Remove)? {
            let target = self.target("the property to remove")?;
            return Ok(Statement {
                target,
                expression: None,
                from: place(from),
                to: place(self.last_to),
            });
        }
        if !self.take_keyword(Keyword::Set)? {
            return Err(self.unexpected("SET or REMOVE"));
        }
        let target = self.target("the property to set")?;
        self.expect_mark(Mark::Equal, "`=`")?;
        self.value("a value")?;
        let expression = Some(std::mem::take(&mut self.program));
        Ok(Statement { target, expression, from: place(from), to: place(self.last_to) })
    }

    /// The property in a statement or in EXISTS.
    fn target(&mut self, expected: &'static str) -> Parsed<Target> {
        let (scope, name) = match &self.token.word {
            Word::Regular(scope) if self.is_followed_by(Mark::Dot) => {
                (Some(*scope), self.name_after_scope()?)
            }
            Word::Regular(name) => (None, Box::from(*name)),
            Word::Delimited(name) => (None, Box::from(name.as_ref())),
            _ => return Err(self.unexpected(expected)),
        };
        let target = match scope {
            Some(scope) if scope.eq_ignore_ascii_case("sys") => {
                SystemProperty::parse(&name).map_or(Target::NoSuchProperty, Target::System)
            }
            _ => Target::User(name),
        };
        self.advance()?;
        Ok(target)
    }

    /// Takes a scope and the dot, and returns the name after them, which becomes the current word.
    fn name_after_scope(&mut self) -> Parsed<Box<str>> {
        if let Word::Regular(scope) = self.token.word
            && !["sys", "user"].iter().any(|known| known.eq_ignore_ascii_case(scope))
        {
            let problem = Problem::UnknownScope(super::error::excerpt(scope));
            return Err(self.lexer.error(self.token.from, problem));
        }
        self.advance()?;
        self.advance()?;
        match &self.token.word {
            Word::Regular(name) => Ok(Box::from(*name)),
            Word::Delimited(name) => Ok(Box::from(name.as_ref())),
            _ => Err(self.unexpected("the name of a property")),
        }
    }

    // Conditions, from the loosest to the tightest operator (SQL-03)

    fn or(&mut self, expected: &'static str) -> Parsed<Shape> {
        let from = self.token.from;
        let mut shape = self.and(expected)?;
        while self.is(Keyword::Or) {
            let jump = self.emit(Step::OrElse(0), from);
            self.advance()?;
            self.and("a condition")?;
            self.emit(Step::Or, from);
            self.set_target(jump);
            shape = Shape::Condition;
        }
        Ok(shape)
    }

    fn and(&mut self, expected: &'static str) -> Parsed<Shape> {
        let from = self.token.from;
        let mut shape = self.not(expected)?;
        while self.is(Keyword::And) {
            let jump = self.emit(Step::AndThen(0), from);
            self.advance()?;
            self.not("a condition")?;
            self.emit(Step::And, from);
            self.set_target(jump);
            shape = Shape::Condition;
        }
        Ok(shape)
    }

    fn not(&mut self, expected: &'static str) -> Parsed<Shape> {
        let from = self.token.from;
        let mut count = 0usize;
        while self.take_keyword(Keyword::Not)? {
            count += 1;
        }
        let expected = if count > 0 { "a condition" } else { expected };
        let shape = self.test(expected)?;
        for _ in 0..count {
            self.emit(Step::Not, from);
        }
        Ok(if count > 0 { Shape::Condition } else { shape })
    }

    fn test(&mut self, expected: &'static str) -> Parsed<Shape> {
        let from = self.token.from;
        if self.take_keyword(Keyword::Exists)? {
            self.expect_mark(Mark::Open, "`(` behind EXISTS")?;
            let target = self.target("the name of a property")?;
            self.expect_mark(Mark::Close, "`)`")?;
            let step = match target {
                Target::User(name) => Step::UserExists(self.add_name(name)),
                Target::System(property) => Step::SystemExists(property),
                Target::NoSuchProperty => Step::NoSuchProperty,
            };
            self.emit(step, from);
            return Ok(Shape::Condition);
        }
        let first = self.program.steps.len();
        let shape = self.sum(expected)?;
        let test_from = self.token.from;
        let tested = self.test_after_operand(from, first)?;
        if tested && shape == Shape::Condition {
            return Err(self.lexer.error(
                test_from,
                Problem::Unexpected {
                    expected: "AND, OR or the end of the condition",
                    found: super::error::excerpt(
                        self.text.get(test_from..self.last_to).unwrap_or(""),
                    ),
                },
            ));
        }
        Ok(if tested { Shape::Condition } else { shape })
    }

    /// Parses a test after its left operand. Returns whether there is one.
    fn test_after_operand(&mut self, from: usize, first: usize) -> Parsed<bool> {
        if let Some(comparison) = comparison(&self.token.word) {
            self.advance()?;
            self.value("a value to compare with")?;
            self.emit(Step::Compare(comparison), from);
            self.fold(first);
            return Ok(true);
        }
        if self.take_keyword(Keyword::Is)? {
            let negated = self.take_keyword(Keyword::Not)?;
            if !self.take_keyword(Keyword::Null)? {
                return Err(self.unexpected(if negated { "NULL" } else { "NULL or NOT NULL" }));
            }
            self.emit(if negated { Step::IsNotNull } else { Step::IsNull }, from);
            return Ok(true);
        }
        let negated = self.take_keyword(Keyword::Not)?;
        if self.take_keyword(Keyword::In)? {
            self.list(from)?;
        } else if self.take_keyword(Keyword::Like)? {
            self.like(from)?;
        } else if negated {
            return Err(self.unexpected("IN or LIKE"));
        } else {
            return Ok(false);
        }
        if negated {
            self.emit(Step::Not, from);
        }
        Ok(true)
    }

    /// SQL-24
    fn list(&mut self, from: usize) -> Parsed<()> {
        let mut jumps = vec![self.emit(Step::In(0), from)];
        self.expect_mark(Mark::Open, "`(` behind IN")?;
        loop {
            self.value("a value of the list")?;
            jumps.push(self.emit(Step::Element(0), from));
            if !self.take_mark(Mark::Comma)? {
                break;
            }
        }
        self.expect_mark(Mark::Close, "`,` or `)`")?;
        self.emit(Step::InEnd, from);
        jumps.into_iter().for_each(|jump| self.set_target(jump));
        Ok(())
    }

    /// SQL-25 to SQL-27. A constant pattern is compiled once.
    fn like(&mut self, from: usize) -> Parsed<()> {
        let first = self.program.steps.len();
        self.value("a pattern")?;
        let escaped = self.take_keyword(Keyword::Escape)?;
        if escaped {
            self.value("an escape character")?;
        }
        if let Some(pattern) = self.constant_pattern(first, escaped) {
            self.truncate(first);
            self.program.patterns.push(pattern);
            let pattern = place(self.program.patterns.len() - 1);
            self.emit(Step::LikePattern(pattern), from);
            return Ok(());
        }
        self.emit(if escaped { Step::LikeEscape } else { Step::Like }, from);
        Ok(())
    }

    /// The pattern, if all its parts are constant text. A malformed pattern is an error of the
    /// evaluation (SQL-27).
    fn constant_pattern(&self, first: usize, escaped: bool) -> Option<Pattern> {
        let text = |at: usize| match self.program.steps.get(at)? {
            Step::Constant(place) => match self.program.constants.get(index(*place))? {
                Value::String(text) => Some(text.as_str()),
                _ => None,
            },
            _ => None,
        };
        let escape = if escaped { Some(text(first + 1)?) } else { None };
        let count = 1 + usize::from(escaped);
        if self.program.steps.len() != first + count {
            return None;
        }
        Pattern::new(text(first)?, escape).ok()
    }

    // Values

    /// Parses a value, and refuses a condition.
    fn value(&mut self, expected: &'static str) -> Parsed<()> {
        let from = self.token.from;
        let shape = self.sum(expected)?;
        self.must_be_value(shape, from)
    }

    fn must_be_value(&self, shape: Shape, from: usize) -> Parsed<()> {
        match shape {
            Shape::Value => Ok(()),
            Shape::Condition => Err(self.lexer.error(from, Problem::ConditionAsValue)),
        }
    }

    fn sum(&mut self, expected: &'static str) -> Parsed<Shape> {
        self.binary(
            expected,
            |mark| match mark {
                Mark::Plus => Some(Arithmetic::Add),
                Mark::Minus => Some(Arithmetic::Subtract),
                _ => None,
            },
            Self::product,
        )
    }

    fn product(&mut self, expected: &'static str) -> Parsed<Shape> {
        self.binary(
            expected,
            |mark| match mark {
                Mark::Star => Some(Arithmetic::Multiply),
                Mark::Slash => Some(Arithmetic::Divide),
                Mark::Percent => Some(Arithmetic::Modulo),
                _ => None,
            },
            Self::signed,
        )
    }

    /// Operators of equal precedence, grouped to the left (SQL-03).
    fn binary(
        &mut self,
        expected: &'static str,
        operator: impl Fn(Mark) -> Option<Arithmetic>,
        operand: impl Fn(&mut Self, &'static str) -> Parsed<Shape>,
    ) -> Parsed<Shape> {
        let from = self.token.from;
        let first = self.program.steps.len();
        let shape = operand(self, expected)?;
        loop {
            let Word::Mark(mark) = self.token.word else { return Ok(shape) };
            let Some(operator) = operator(mark) else { return Ok(shape) };
            self.must_be_value(shape, from)?;
            self.advance()?;
            let right_from = self.token.from;
            let right = operand(self, "a value")?;
            self.must_be_value(right, right_from)?;
            self.emit(Step::Compute(operator), from);
            self.fold(first);
        }
    }

    fn signed(&mut self, expected: &'static str) -> Parsed<Shape> {
        let mut signs = Vec::new();
        loop {
            let step = match self.token.word {
                Word::Mark(Mark::Plus) => Step::Plus,
                Word::Mark(Mark::Minus) => Step::Minus,
                _ => break,
            };
            signs.push((step, self.token.from));
            self.advance()?;
        }
        let from = self.token.from;
        let first = self.program.steps.len();
        let shape = self.atom(if signs.is_empty() { expected } else { "a value" })?;
        if !signs.is_empty() {
            self.must_be_value(shape, from)?;
        }
        for (step, from) in signs.into_iter().rev() {
            self.emit(step, from);
            self.fold(first);
        }
        Ok(shape)
    }

    fn atom(&mut self, expected: &'static str) -> Parsed<Shape> {
        let from = self.token.from;
        let constant = match &self.token.word {
            Word::Integer(value) => Value::I64(*value),
            Word::Float(value) => Value::F64(*value),
            Word::Text(text) => Value::String(text.clone().into_owned()),
            Word::Keyword(Keyword::True) => Value::Bool(true),
            Word::Keyword(Keyword::False) => Value::Bool(false),
            Word::Keyword(Keyword::Null) => Value::Null,
            Word::Parameter(name) => match self.parameters.get(name) {
                Some(value) => value.clone(),
                None => {
                    let name = super::error::excerpt(&format!("@{name}"));
                    return Err(self.lexer.error(from, Problem::UnknownParameter(name)));
                }
            },
            Word::Mark(Mark::Open) => return self.parenthesis(),
            Word::Regular(_) if self.is_followed_by(Mark::Open) => {
                return self.function().map(|()| Shape::Value);
            }
            Word::Regular(_) | Word::Delimited(_) => {
                let step = match self.target(expected)? {
                    Target::User(name) => Step::User(self.add_name(name)),
                    Target::System(property) => Step::System(property),
                    Target::NoSuchProperty => Step::NoSuchProperty,
                };
                self.emit(step, from);
                return Ok(Shape::Value);
            }
            Word::Keyword(_) | Word::Mark(_) | Word::End => return Err(self.unexpected(expected)),
        };
        self.advance()?;
        self.push_constant(constant, from);
        Ok(Shape::Value)
    }

    fn parenthesis(&mut self) -> Parsed<Shape> {
        self.deeper()?;
        self.advance()?;
        let shape = self.or("a condition or a value")?;
        self.expect_mark(Mark::Close, "an operator or `)`")?;
        self.depth -= 1;
        Ok(shape)
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.lexer.error(self.token.from, Problem::TooDeep(DEPTH_MAX)));
        }
        Ok(())
    }

    /// SQL-12
    fn function(&mut self) -> Parsed<()> {
        let from = self.token.from;
        let Word::Regular(name) = self.token.word else {
            return Err(self.unexpected("the name of a function"));
        };
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("newid") {
            self.advance()?;
            self.advance()?;
            self.expect_mark(Mark::Close, "`)`; newid has no arguments")?;
            self.emit(Step::NewId, from);
            return Ok(());
        }
        if !is("property") && !is("p") {
            return Err(self.unexpected("one of the functions newid, property and p"));
        }
        self.deeper()?;
        self.advance()?;
        self.advance()?;
        let first = self.program.steps.len();
        self.value("the name of a property")?;
        self.expect_mark(Mark::Close, "`)`")?;
        self.depth -= 1;
        match self.constant_name(first) {
            Some(step) => {
                self.truncate(first);
                self.emit(step, from);
            }
            None => {
                self.emit(Step::Named, from);
            }
        }
        Ok(())
    }

    /// The property of a constant name.
    fn constant_name(&mut self, first: usize) -> Option<Step> {
        let [Step::Constant(place)] = self.program.steps.get(first..)? else {
            return None;
        };
        let Value::String(name) = self.program.constants.get(index(*place))? else {
            return None;
        };
        Some(match scoped(name) {
            ScopedName::System(name) => {
                SystemProperty::parse(name).map_or(Step::NoSuchProperty, Step::System)
            }
            ScopedName::User(name) => {
                let name = Box::from(name);
                Step::User(self.add_name(name))
            }
        })
    }
}

const fn comparison(word: &Word<'_>) -> Option<Comparison> {
    let Word::Mark(mark) = word else { return None };
    Some(match mark {
        Mark::Equal => Comparison::Equal,
        Mark::NotEqual => Comparison::NotEqual,
        Mark::Less => Comparison::Less,
        Mark::LessOrEqual => Comparison::LessOrEqual,
        Mark::Greater => Comparison::Greater,
        Mark::GreaterOrEqual => Comparison::GreaterOrEqual,
        _ => return None,
    })
}
