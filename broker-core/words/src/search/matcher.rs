//! Tests messages with the clauses of a where: first with facts, then with the head, then with the
//! body as a stream. Each clause is decided as early as possible.

use std::ops::Range;

use super::groups::GroupBy;
use super::json::{FoundValue, JsonMatcher, JsonScan};
use super::property::{SqlProperties, each_property, field, field_name};
use super::text::Pattern;
use super::{NumberField, Test, TextField, TextTest, Where, compile_sql};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::Message;
use crate::rule::sql::{Comparison, Observer};
use crate::rule::{Facts, PublishedMessage, Rule};
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of characters of an excerpt (CON-05).
pub const EXCERPT_CHARS_MAX: usize = 120;

/// Facts about a message that need no content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<'a> {
    /// Sequence number.
    pub sequence: SequenceNumber,
    /// The number at its original point of submission, otherwise 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Instant at which it was enqueued.
    pub enqueued_at: Timestamp,
    /// Instant for which it is scheduled.
    pub scheduled_at: Option<Timestamp>,
    /// Instant of expiry.
    pub expires_at: Option<Timestamp>,
    /// Time to live.
    pub time_to_live: Option<TimeSpan>,
    /// Delivery count.
    pub delivery_count: u32,
    /// Stored size in bytes.
    pub size: u64,
    /// State, as SQL filters name it.
    pub state: &'a str,
}

/// The properties of a message.
#[derive(Clone, Copy, Debug)]
pub struct CandidateHead<'a> {
    /// The message; its body is not looked at.
    pub message: &'a Message,
    /// Entity that dead-lettered it before it was forwarded (FWD-26).
    pub dead_letter_source: Option<&'a str>,
}

/// Current result of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// All clauses hold.
    Holds,
    /// A clause does not hold, or cannot be decided.
    Fails,
    /// More of the body is needed.
    NeedsBody,
}

/// Place in a message that meets the first clause with a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MatchPlace {
    /// Positions in the body.
    Body(Range<u64>),
    /// A property.
    Property {
        /// Its name.
        name: String,
        /// The text around the match.
        excerpt: String,
    },
}

/// Compiled conditions and the value by which messages are grouped.
#[derive(Debug)]
pub struct Matcher {
    clauses: Vec<CompiledClause>,
    /// Path by whose value messages are grouped.
    group_path: Option<JsonMatcher>,
    needs_head: bool,
}

#[derive(Debug)]
struct CompiledClause {
    is_negated: bool,
    test: CompiledTest,
}

#[derive(Debug)]
enum CompiledTest {
    Anywhere(Pattern),
    Body(Pattern),
    Properties(Pattern),
    Contains(TextField, Pattern),
    Equals(TextField, Box<str>),
    Json(JsonMatcher),
    Sql(Box<Rule>),
    Number(NumberField, Comparison, i64),
}

/// Test of a message.
#[derive(Debug)]
pub struct Evaluation<'m> {
    /// Clauses that are not decided.
    open: Vec<OpenClause<'m>>,
    group: Option<JsonScan<'m>>,
    group_value: Option<String>,
    decision: Decision,
    place: Option<(usize, MatchPlace)>,
    /// Bytes of the body that were read.
    position: u64,
    steps: u64,
}

#[derive(Debug)]
struct OpenClause<'m> {
    /// Place of the clause in the where.
    index: usize,
    is_negated: bool,
    scan: BodyScan<'m>,
}

#[derive(Debug)]
enum BodyScan<'m> {
    Text { pattern: &'m Pattern, matched: usize },
    Json(JsonScan<'m>),
}

impl Matcher {
    /// Compiles the conditions.
    ///
    /// # Errors
    /// As [`Where::new`].
    pub fn new(conditions: &Where, group_by: Option<&GroupBy>) -> Result<Self, Rejection> {
        let compiled = conditions.clauses().iter().map(|clause| {
            let test = match &clause.test {
                Test::Anywhere(pattern) => CompiledTest::Anywhere(Pattern::of(pattern)),
                Test::Body(pattern) => CompiledTest::Body(Pattern::of(pattern)),
                Test::Properties(pattern) => CompiledTest::Properties(Pattern::of(pattern)),
                Test::Field(field, TextTest::Contains(pattern)) => {
                    CompiledTest::Contains(*field, Pattern::of(pattern))
                }
                Test::Field(field, TextTest::Equals(text)) => {
                    CompiledTest::Equals(*field, text.clone())
                }
                Test::Json(path, test) => CompiledTest::Json(JsonMatcher::new(path, test)),
                Test::Sql(text) => CompiledTest::Sql(Box::new(compile_sql(text)?)),
                Test::Number(field, comparison, number) => {
                    CompiledTest::Number(*field, *comparison, *number)
                }
            };
            Ok(CompiledClause { is_negated: clause.is_negated, test })
        });
        let clauses = compiled.collect::<Result<Vec<_>, Rejection>>()?;
        let group_path = match group_by {
            Some(GroupBy::Json(path)) => Some(JsonMatcher::capture(path)),
            _ => None,
        };
        let is_number = |clause: &CompiledClause| matches!(clause.test, CompiledTest::Number(..));
        let needs_head = !clauses.iter().all(is_number)
            || group_by.is_some_and(|by| !matches!(by, GroupBy::Slot(_)));
        Ok(Self { clauses, group_path, needs_head })
    }

    /// Whether the clauses about numbers and instants hold. A message for which they do not hold
    /// needs no further test.
    #[must_use]
    pub fn test_facts(&self, candidate: &Candidate<'_>) -> bool {
        self.clauses.iter().all(|clause| match clause.test {
            CompiledTest::Number(field, comparison, number) => {
                let value = candidate.number(field);
                let holds = value.is_some_and(|value| comparison.holds(value.cmp(&number)));
                holds != clause.is_negated
            }
            _ => true,
        })
    }

    /// Whether a message that passes [`Matcher::test_facts`] needs its head for more than its
    /// result.
    #[must_use]
    pub const fn needs_head(&self) -> bool {
        self.needs_head
    }

    /// Tests a message that passes [`Matcher::test_facts`] with its head.
    #[must_use]
    pub fn begin(&self, candidate: &Candidate<'_>, head: &CandidateHead<'_>) -> Evaluation<'_> {
        let mut evaluation = Evaluation {
            open: Vec::new(),
            group: self.group_path.as_ref().map(JsonMatcher::scan),
            group_value: None,
            decision: Decision::NeedsBody,
            place: None,
            position: 0,
            steps: 0,
        };
        for (index, clause) in self.clauses.iter().enumerate() {
            let is_negated = clause.is_negated;
            let holds = match evaluation.test(index, clause, candidate, head) {
                Tested::Result(holds) => holds != is_negated,
                Tested::Undecidable => false,
                Tested::NeedsBody(scan) => {
                    evaluation.open.push(OpenClause { index, is_negated, scan });
                    true
                }
            };
            if !holds {
                evaluation.decision = Decision::Fails;
                return evaluation;
            }
        }
        evaluation.conclude();
        evaluation
    }
}

/// Result of a test of the head.
enum Tested<'m> {
    Result(bool),
    /// The test fails, negated or not.
    Undecidable,
    NeedsBody(BodyScan<'m>),
}

impl<'m> Evaluation<'m> {
    fn test(
        &mut self,
        index: usize,
        clause: &'m CompiledClause,
        candidate: &Candidate<'_>,
        head: &CandidateHead<'_>,
    ) -> Tested<'m> {
        let is_shown = !clause.is_negated;
        let holds = match &clause.test {
            CompiledTest::Anywhere(pattern) => {
                if !self.find_in_properties(index, pattern, head, is_shown) {
                    return Tested::NeedsBody(BodyScan::Text { pattern, matched: 0 });
                }
                true
            }
            CompiledTest::Body(pattern) => {
                return Tested::NeedsBody(BodyScan::Text { pattern, matched: 0 });
            }
            CompiledTest::Json(matcher) => {
                return Tested::NeedsBody(BodyScan::Json(matcher.scan()));
            }
            CompiledTest::Properties(pattern) => {
                self.find_in_properties(index, pattern, head, is_shown)
            }
            CompiledTest::Contains(wanted, pattern) => field(*wanted, head).is_some_and(|text| {
                let at = pattern.find(&text, &mut self.steps);
                self.found_in(index, field_name(*wanted), &text, at, pattern.length(), is_shown)
            }),
            CompiledTest::Equals(wanted, value) => field(*wanted, head).is_some_and(|text| {
                self.steps += value.len() as u64;
                let at = (text == **value).then_some(0);
                self.found_in(index, field_name(*wanted), &text, at, text.len(), is_shown)
            }),
            CompiledTest::Sql(rule) => {
                let content = head.message.encode();
                let facts = candidate.rule_facts(head);
                let published = PublishedMessage::new(content.property_view(), facts);
                let properties = SqlProperties { published, candidate };
                let mut observer = StepCount(&mut self.steps);
                match rule.test(&properties, &mut || 0, &mut observer) {
                    Ok(result) => result == Some(true),
                    Err(_) => return Tested::Undecidable,
                }
            }
            // `Matcher::test_facts` has tested it.
            CompiledTest::Number(..) => return Tested::Result(is_shown),
        };
        Tested::Result(holds)
    }

    fn find_in_properties(
        &mut self,
        index: usize,
        pattern: &Pattern,
        head: &CandidateHead<'_>,
        is_shown: bool,
    ) -> bool {
        each_property(head, |name, text| {
            let at = pattern.find(text, &mut self.steps);
            self.found_in(index, name, text, at, pattern.length(), is_shown)
        })
    }

    /// Notes a match in a property.
    fn found_in(
        &mut self,
        index: usize,
        name: &str,
        text: &str,
        at: Option<usize>,
        length: usize,
        is_shown: bool,
    ) -> bool {
        let Some(at) = at else { return false };
        if is_shown {
            let excerpt = excerpt(text.as_bytes(), at..at + length);
            self.set_place(index, MatchPlace::Property { name: name.to_owned(), excerpt });
        }
        true
    }

    fn set_place(&mut self, index: usize, place: MatchPlace) {
        if self.place.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
            self.place = Some((index, place));
        }
    }

    /// Decides if no clause is open and the value of the group is known.
    fn conclude(&mut self) {
        if self.decision == Decision::NeedsBody && self.open.is_empty() && self.group.is_none() {
            self.decision = Decision::Holds;
        }
    }

    /// The current result.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Tests the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) -> Decision {
        if self.decision != Decision::NeedsBody {
            return self.decision;
        }
        let mut place = 0;
        while let Some(clause) = self.open.get_mut(place) {
            let found = match &mut clause.scan {
                BodyScan::Text { pattern, matched } => {
                    find_in(pattern, matched, piece, self.position, &mut self.steps)
                }
                BodyScan::Json(scan) => scan.feed(piece, &mut self.steps).map(FoundValue::range),
            };
            let Some(found) = found else {
                place += 1;
                continue;
            };
            let OpenClause { index, is_negated, .. } = self.open.remove(place);
            if is_negated {
                self.decision = Decision::Fails;
                return self.decision;
            }
            self.set_place(index, MatchPlace::Body(found));
        }
        if let Some(scan) = &mut self.group
            && let Some(found) = scan.feed(piece, &mut self.steps)
        {
            self.group_value.clone_from(&found.text);
            self.group = None;
        }
        self.position += piece.len() as u64;
        self.conclude();
        self.decision
    }

    /// Ends the body. `is_whole` is whether it was read to its end. Returns whether all clauses hold,
    /// and whether a clause could not be decided, because the body was read only in part.
    pub fn end(&mut self, is_whole: bool) -> (bool, bool) {
        let mut is_undecided = false;
        for clause in std::mem::take(&mut self.open) {
            let OpenClause { index, is_negated, mut scan } = clause;
            let (found, is_cut) = match &mut scan {
                BodyScan::Text { .. } => (None, !is_whole),
                BodyScan::Json(scan) => {
                    let found = scan.end(&mut self.steps).map(FoundValue::range);
                    (found, !is_whole || scan.is_too_deep())
                }
            };
            let holds = match found {
                Some(found) if !is_negated => {
                    self.set_place(index, MatchPlace::Body(found));
                    true
                }
                Some(_) => false,
                None => {
                    is_undecided |= is_cut;
                    is_negated && !is_cut
                }
            };
            if !holds {
                self.decision = Decision::Fails;
            }
        }
        if let Some(mut scan) = self.group.take() {
            let found = scan.end(&mut self.steps);
            self.group_value = found.and_then(|found| found.text.clone());
            is_undecided |= !is_whole && self.group_value.is_none();
        }
        self.conclude();
        (self.decision == Decision::Holds, is_undecided)
    }

    /// Place of the match that the first clause with one has found.
    #[must_use]
    pub fn place(&self) -> Option<&MatchPlace> {
        self.place.as_ref().map(|(_, place)| place)
    }

    /// Value of the path by which messages are grouped.
    #[must_use]
    pub fn group_value(&self) -> Option<&str> {
        self.group_value.as_deref()
    }

    /// Number of steps up to now; a step is about a byte looked at by a clause.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }
}

impl FoundValue {
    const fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// Finds a text in the next piece of a stream; returns its positions in the stream.
fn find_in(
    pattern: &Pattern,
    matched: &mut usize,
    piece: &[u8],
    position: u64,
    steps: &mut u64,
) -> Option<Range<u64>> {
    let last = piece.iter().position(|byte| pattern.advance(matched, *byte, steps))?;
    let end = position + last as u64 + 1;
    Some(end - pattern.length() as u64..end)
}

impl Candidate<'_> {
    fn number(&self, field: NumberField) -> Option<i64> {
        let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        match field {
            NumberField::SequenceNumber => number(self.sequence.0),
            NumberField::DeliveryCount => number(self.delivery_count.into()),
            NumberField::Size => number(self.size),
            NumberField::EnqueuedAt => Some(self.enqueued_at.ticks()),
            NumberField::ScheduledAt => self.scheduled_at.map(Timestamp::ticks),
            NumberField::ExpiresAt => self.expires_at.map(Timestamp::ticks),
        }
    }

    const fn rule_facts<'h>(&self, head: &CandidateHead<'h>) -> Facts<'h> {
        Facts {
            sequence: self.sequence,
            enqueued_sequence: self.enqueued_sequence,
            enqueued_at: self.enqueued_at,
            expires_at: self.expires_at,
            time_to_live: self.time_to_live,
            size: self.size,
            dead_letter_source: head.dead_letter_source,
        }
    }
}

struct StepCount<'s>(&'s mut u64);

impl Observer for StepCount<'_> {
    fn count_steps(&mut self, steps: u64) {
        *self.0 += steps;
    }
}

/// Returns up to [`EXCERPT_CHARS_MAX`] characters around a part of a text, of which `bytes` may be a
/// piece that begins and ends anywhere.
fn excerpt(bytes: &[u8], part: Range<usize>) -> String {
    let text = |range: Range<usize>| {
        let range = range.start.min(bytes.len())..range.end.min(bytes.len());
        String::from_utf8_lossy(bytes.get(range).unwrap_or_default())
    };
    let found: String = text(part.clone()).chars().take(EXCERPT_CHARS_MAX).collect();
    let side = (EXCERPT_CHARS_MAX - found.chars().count()) / 2;
    // Each character has at most four bytes.
    let before = text(part.start.saturating_sub(4 * side)..part.start);
    let after = text(part.end..part.end + 4 * side);
    // A character that is cut is no part of the excerpt.
    let before = before.trim_start_matches('\u{fffd}');
    let after = after.trim_end_matches('\u{fffd}');
    let skipped = before.chars().count().saturating_sub(side);
    before.chars().skip(skipped).chain(found.chars()).chain(after.chars().take(side)).collect()
}

impl MatchPlace {
    /// Positions of the bytes of a body that [`MatchPlace::body_excerpt`] needs.
    #[must_use]
    pub fn body_window(found: &Range<u64>) -> Range<u64> {
        const BYTES: u64 = 4 * EXCERPT_CHARS_MAX as u64;
        found.start.saturating_sub(BYTES / 2)..found.end.min(found.start + BYTES) + BYTES / 2
    }

    /// Returns the text around a match in a body, of which `bytes` begin at position `at`.
    #[must_use]
    pub fn body_excerpt(found: &Range<u64>, bytes: &[u8], at: u64) -> String {
        let place =
            |position: u64| usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX / 2);
        excerpt(bytes, place(found.start)..place(found.end))
    }
}
