//! Explanations for people: the reason why a rule selects a message or not, test by test.
//! Management and [`try_rules`](super::try_rules) make them; a topic never does while it publishes.

use std::fmt;

use super::action::{self, CopyChanges};
use super::correlation::{condition_steps, refuse_too_many_steps};
use super::properties::PublishedMessage;
use super::selection::Cause;
use super::sql::{Observer, Operand, Random, Unobserved};
use super::system::SystemProperty;
use super::{Filter, Rule};
use crate::limits::Limits;
use crate::message::PropertyChange;

/// Maximum number of characters of a value; the rest is cut.
const VALUE_CHARS_MAX: usize = 200;
/// Maximum number of recorded reads, and of recorded tests.
const RECORDED_MAX: usize = 1_000;

/// The result of a rule for one message, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The rule.
    pub rule: String,
    /// The result.
    pub verdict: Verdict,
    /// The properties that the rule read, in order.
    pub reads: Vec<Read>,
    /// The tests that the rule made, in order, without skipped ones (SQL-21).
    pub tests: Vec<FilterTest>,
    /// The changes of the action.
    pub changes: Vec<String>,
}

/// The result of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The rule selects the message.
    Matches,
    /// The rule does not select the message.
    DoesNotMatch,
    /// The rule does not select the message, because a value that it needs is missing (SQL-15).
    Unknown,
    /// The filter failed (SQL-40).
    FilterFailed(String),
    /// The filter selects the message, and the action failed (ACT-10).
    ActionFailed(String),
    /// The rule belongs to a catch-all and was not evaluated, because the subscription of that name
    /// selects the message (TOP-30).
    NotEvaluated(String),
}

/// A property that a rule read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The name in the spelling of the rule.
    pub name: String,
    /// The value in SQL; `None` if the property is missing.
    pub value: Option<String>,
}

/// One test of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterTest {
    /// The test in the spelling of the rule.
    pub text: String,
    /// The values of its operands in SQL.
    pub operands: Vec<String>,
    /// The result; `None` is Unknown.
    pub result: Option<bool>,
}

impl Rule {
    /// Tests a message as a topic does, and records the tests.
    #[must_use]
    pub fn explain(
        &self,
        published: &PublishedMessage<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> Explanation {
        self.explain_counted(published, limits, random).0
    }

    /// Returns the explanation, and the number of steps that it took.
    #[must_use]
    pub fn explain_counted(
        &self,
        published: &PublishedMessage<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> (Explanation, u64) {
        let text = match &self.description.filter {
            Filter::Sql(sql) => sql.text.as_ref(),
            Filter::True | Filter::False | Filter::Correlation(_) => "",
        };
        let mut recorder = Recorder { text, reads: Vec::new(), tests: Vec::new(), steps: 0 };
        if let Filter::Correlation(filter) = &self.description.filter
            && refuse_too_many_steps(filter.len(), published).is_ok()
        {
            // These steps come on top of the test below, which looks the properties up again.
            recorder.count_steps(condition_steps(published).saturating_mul(filter.len() as u64));
            for condition in filter.ordered_conditions().into_iter().take(RECORDED_MAX) {
                let property = condition.property();
                let value = property.of(published);
                let wanted = condition.wanted();
                let known = (value != Operand::Unknown).then_some(&value);
                recorder.read(&property.to_string(), known);
                recorder.tests.push(FilterTest {
                    text: format!("{property} = {}", shown(&wanted)),
                    operands: vec![shown(&value), shown(&wanted)],
                    result: known.map(|_| condition.holds(published)),
                });
            }
        }
        let mut changes = Vec::new();
        let verdict = match self.test(published, random, &mut recorder) {
            Ok(Some(true)) => match self.explain_action(published, limits, random) {
                Ok(changed) => {
                    changes = changed.iter().flat_map(describe_changes).collect();
                    Verdict::Matches
                }
                Err(error) => Verdict::ActionFailed(error),
            },
            Ok(Some(false)) => Verdict::DoesNotMatch,
            Ok(None) => Verdict::Unknown,
            Err(error) => Verdict::FilterFailed(self.describe(Cause::Filter, &error)),
        };
        let Recorder { reads, tests, steps, .. } = recorder;
        (Explanation { rule: self.name().to_owned(), verdict, reads, tests, changes }, steps)
    }

    /// The explanation for a rule of a catch-all that was not evaluated, because the subscription
    /// of that name selects the message (TOP-30).
    #[must_use]
    pub fn not_evaluated(&self, selected_by: &str) -> Explanation {
        Explanation {
            rule: self.name().to_owned(),
            verdict: Verdict::NotEvaluated(selected_by.to_owned()),
            reads: Vec::new(),
            tests: Vec::new(),
            changes: Vec::new(),
        }
    }

    fn explain_action(
        &self,
        published: &PublishedMessage<'_>,
        limits: &Limits,
        random: &mut Random<'_>,
    ) -> Result<Option<CopyChanges>, String> {
        let Some(statements) = &self.action else { return Ok(None) };
        action::run(self.name(), statements, (published, limits), random, &mut Unobserved)
            .map(Some)
            .map_err(|error| self.describe(Cause::Action, &error))
    }
}

struct Recorder<'t> {
    text: &'t str,
    reads: Vec<Read>,
    tests: Vec<FilterTest>,
    steps: u64,
}

impl Observer for Recorder<'_> {
    fn read(&mut self, name: &str, value: Option<&Operand<'_>>) {
        if self.reads.len() < RECORDED_MAX && self.reads.iter().all(|read| read.name != name) {
            self.reads.push(Read { name: name.to_owned(), value: value.map(shown) });
        }
    }

    fn count_steps(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(steps);
    }

    /// With the prefix of SQL: an application property may have the same name.
    fn read_system(&mut self, property: SystemProperty, value: Option<&Operand<'_>>) {
        self.read(&format!("sys.{property}"), value);
    }

    fn record_test(&mut self, from: u32, to: u32, operands: &[Operand<'_>], result: Option<bool>) {
        let place = |at| usize::try_from(at).unwrap_or(usize::MAX);
        if self.tests.len() < RECORDED_MAX {
            self.tests.push(FilterTest {
                text: self.text.get(place(from)..place(to)).unwrap_or_default().to_owned(),
                operands: operands.iter().map(shown).collect(),
                result,
            });
        }
    }
}

fn shown(operand: &Operand<'_>) -> String {
    let text = operand.to_string();
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

fn describe_changes(changed: &CopyChanges) -> Vec<String> {
    let changes = changed.overlay.changes().map(|change| match change {
        PropertyChange::Set(key, value) => format!("SET {key} = {}", shown(&value.into())),
        PropertyChange::Remove(key) => format!("REMOVE {key}"),
        PropertyChange::SetBroker(property, value) => {
            format!("SET sys.{} = {}", property.name(), shown(&value.into()))
        }
    });
    changes.collect()
}

/// Text for people: the result, then each test with its operands.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match &self.verdict {
            Verdict::Matches => "matches".to_owned(),
            Verdict::DoesNotMatch => "does not match".to_owned(),
            Verdict::Unknown => "does not match: the result is unknown".to_owned(),
            Verdict::FilterFailed(error) => format!("its filter fails: {error}"),
            Verdict::ActionFailed(error) => format!("matches, and its action fails: {error}"),
            Verdict::NotEvaluated(by) => {
                format!("is not evaluated: the subscription {by} selects the message")
            }
        };
        write!(f, "rule {} {verdict}", self.rule)?;
        for FilterTest { text, operands, result } in &self.tests {
            let result = match result {
                Some(true) => "true",
                Some(false) => "false",
                None => "unknown",
            };
            write!(f, "\n  {result:<7} {text}")?;
            if !operands.is_empty() {
                write!(f, "   saw {}", operands.join(" and "))?;
            }
        }
        for Read { name, value } in &self.reads {
            match value {
                Some(value) => write!(f, "\n  {name} is {value}")?,
                None => write!(f, "\n  {name} is missing")?,
            }
        }
        self.changes.iter().try_for_each(|change| write!(f, "\n  {change}"))
    }
}
