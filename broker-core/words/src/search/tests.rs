//! Tests of conditions: lines, paths, streams and their steps.

use super::json::{DEPTH_MAX, JsonMatcher};
use super::matcher::{Candidate, CandidateHead};
use super::text::Pattern;
use super::*;
use crate::ids::SequenceNumber;
use crate::message::{Message, Overlay};
use crate::time::TimeSpan;

mod groups;
mod json;
mod line;
mod matching;

const NOW: Timestamp = Timestamp::from_unix_ms(1_777_636_800_000);

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }
}

fn parse(line: &str) -> Where {
    Where::parse(line, NOW).unwrap_or_else(|error| panic!("{line}: {}", error.detail()))
}

fn refused(line: &str) -> String {
    Where::parse(line, NOW).expect_err(line).detail().to_owned()
}

fn candidate() -> Candidate<'static> {
    Candidate {
        sequence: SequenceNumber(17),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: NOW,
        scheduled_at: None,
        expires_at: None,
        time_to_live: None,
        delivery_count: 3,
        size: 1_000,
        state: "Active",
    }
}

/// Tests a message with a body in pieces of this size.
fn evaluate(
    line: &str,
    message: &Message,
    body: &[u8],
    piece: usize,
) -> (bool, Option<MatchPlace>) {
    let matcher = Matcher::new(&parse(line), None).unwrap();
    let candidate = candidate();
    if !matcher.test_facts(&candidate) {
        return (false, None);
    }
    let head = CandidateHead { message, dead_letter_source: Some("orders") };
    let mut evaluation = matcher.begin(&candidate, &head);
    for piece in body.chunks(piece) {
        if evaluation.feed(piece) != Decision::NeedsBody {
            break;
        }
    }
    let holds = match evaluation.decision() {
        Decision::NeedsBody => evaluation.end(true).0,
        decision => decision == Decision::Holds,
    };
    (holds, evaluation.place().cloned())
}

fn holds(line: &str, message: &Message, body: &str) -> bool {
    let results = [1, 7, 1 << 20].map(|piece| evaluate(line, message, body.as_bytes(), piece));
    assert!(results.iter().all(|result| *result == results[0]), "{line}: {results:?}");
    results[0].0
}
