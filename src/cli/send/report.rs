//! Results of the sent messages: counts, listed failures and the exit code. `send.rs` records each
//! answer here. Failures over a limit are only counted.

use std::io;

use super::super::connect::{Output, code, error_text, may_be_done};
use super::super::terminal::{Bar, Out, line, note};
use super::super::{Failure, exit};
use super::{CONNECTION_LOST, SendResult, UnknownRun};
use peeklock::condition::Condition;

/// Maximum number of failures that are printed one by one.
const PRINTED_FAILURES_MAX: u64 = 20;

/// Counts results and prints failures.
pub struct Report {
    out: Out,
    output: Output,
    /// Whether places are lines of the input.
    names_lines: bool,
    accepted: u64,
    duplicates: u64,
    failed: u64,
    printed_count: u64,
    unprinted_count: u64,
    is_interrupted: bool,
    /// Whether sending stopped before the end of the input.
    is_stopped: bool,
    /// Places with an unknown result that are not printed yet.
    lost: UnknownRun,
    /// Last place that was sent, answered and accepted.
    last_taken: u64,
    last_answered: u64,
    last_accepted: u64,
    /// Error of standard output, which takes no more results.
    output_error: Option<Failure>,
    /// Lowest and highest sequence number.
    numbers: Option<(u64, u64)>,
    /// Exit code of the last failure.
    code: u8,
}

impl Report {
    pub const fn new(out: Out, output: Output, names_lines: bool) -> Self {
        let (one, many) = if names_lines { ("line", "lines") } else { ("message", "messages") };
        Self {
            out,
            output,
            names_lines,
            accepted: 0,
            duplicates: 0,
            failed: 0,
            printed_count: 0,
            unprinted_count: 0,
            is_stopped: false,
            is_interrupted: false,
            lost: UnknownRun::new(one, many),
            last_taken: 0,
            last_answered: 0,
            last_accepted: 0,
            output_error: None,
            numbers: None,
            code: 1,
        }
    }

    /// Records a result; returns whether the broker accepted the message.
    pub fn record_result(&mut self, answered: SendResult, bar: &Bar) -> bool {
        let SendResult { line: place, result, .. } = answered;
        self.last_answered = place;
        if result.is_ok() {
            self.print_lost(bar);
            self.last_accepted = self.last_accepted.max(place);
        }
        let (answer, is_taken) = match result {
            Ok(number) if number.is_duplicate() => {
                self.duplicates += 1;
                (serde_json::json!({ "line": place, "duplicate": true }), true)
            }
            Ok(number) => {
                self.accepted += 1;
                let (first, last) = self.numbers.unwrap_or((number.0, number.0));
                self.numbers = Some((first.min(number.0), last.max(number.0)));
                (serde_json::json!({ "line": place, "sequenceNumber": number.0 }), true)
            }
            Err(error) => {
                self.code = code(error.condition());
                let is_open = may_be_done(error.condition());
                if error.condition() == Condition::CommunicationProblem {
                    self.failed += 1;
                    self.lost.add(place);
                } else {
                    let open = if is_open { "\n  the message may have been stored" } else { "" };
                    self.fail(place, &format!("{}{open}", error_text(&error)), bar);
                }
                let answer = serde_json::json!({
                    "line": place,
                    "error": error.condition().name(),
                    "detail": error.detail(),
                    "retryable": error.retryable(),
                    "mayBeStored": is_open,
                    "trackingId": error.tracking_id().to_string(),
                });
                (answer, false)
            }
        };
        self.answer(&answer);
        is_taken
    }

    /// Records a line that is not a message; returns whether results can still be written.
    pub fn record_unreadable(&mut self, place: u64, error: &str, bar: &Bar) -> bool {
        self.code = exit::USAGE;
        self.last_taken = place;
        self.fail(place, error, bar);
        self.answer(&serde_json::json!({
            "line": place,
            "error": Condition::ArgumentError.name(),
            "detail": error,
            "retryable": false,
            "mayBeStored": false,
        }));
        !self.is_output_closed()
    }

    fn answer(&mut self, object: &serde_json::Value) {
        if self.output == Output::Ndjson && self.output_error.is_none() {
            // Sending continues without the results: a reader that has closed the pipe still wants
            // the messages sent.
            self.output_error = self.out.write(format!("{object}\n")).err();
        }
    }

    /// Whether results can no longer be written.
    pub const fn is_output_closed(&self) -> bool {
        self.output_error.is_some()
    }

    /// Records that the message of a place was sent.
    pub fn record_sent(&mut self, place: u64, bar: &Bar) {
        self.print_lost(bar);
        self.last_taken = place;
    }

    /// Records that `count` messages in flight remain without an answer.
    pub fn record_unanswered(&mut self, count: u64, bar: &Bar) {
        self.print_lost(bar);
        self.failed += count;
        self.lost.add(self.last_answered + 1);
        self.lost.add(self.last_taken);
        if let Some(text) = self.lost.take("not answered") {
            bar.note(&format!("error: {text}"));
        }
    }

    /// Prints the places with an unknown result.
    pub fn print_lost(&mut self, bar: &Bar) {
        if let Some(text) = self.lost.take(CONNECTION_LOST) {
            bar.note(&format!("error: {text}"));
        }
    }

    /// Records a read error of the input.
    pub fn record_input_error(&mut self, error: &io::Error) {
        self.failed += 1;
        note(&format!("error: standard input cannot be read: {error}"));
    }

    /// Sets whether sending stopped before the end of the input.
    pub const fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// Records the interruption by the user.
    pub fn record_interrupt(&mut self, bar: &Bar) {
        self.is_interrupted = true;
        bar.note("interrupted: no more messages are sent; waiting for answers to those in flight");
    }

    fn fail(&mut self, place: u64, reason: &str, bar: &Bar) {
        self.print_lost(bar);
        self.failed += 1;
        if self.printed_count == PRINTED_FAILURES_MAX {
            self.unprinted_count += 1;
            return;
        }
        self.printed_count += 1;
        let name = if self.names_lines { "line" } else { "message" };
        bar.note(&format!("error: {name} {place}: {reason}"));
    }

    /// Prints the totals; returns the result of the command.
    pub fn end(mut self, queue: &str) -> Result<(), Failure> {
        match self.unprinted_count {
            0 => {}
            1 => note("and 1 more failure"),
            omitted => note(&format!("and {omitted} more failures")),
        }
        if self.names_lines && self.is_stopped && self.last_taken > 0 {
            note(&format!("stopped: nothing after line {} was sent", self.last_taken));
        }
        let said = match (self.output_error.take(), self.output) {
            (Some(failure), _) => Err(failure),
            (None, Output::Table) => self.out.print(&self.sum(queue)),
            (None, Output::Json) => {
                let sum = serde_json::json!({
                    "queue": queue,
                    "accepted": self.accepted,
                    "duplicates": self.duplicates,
                    "failed": self.failed,
                    "firstSequenceNumber": self.numbers.map(|(first, _)| first),
                    "lastSequenceNumber": self.numbers.map(|(_, last)| last),
                });
                self.out.print(&format!("{sum}\n"))
            }
            (None, Output::Ndjson) => Ok(()),
        };
        if let Err(failure) = said {
            return Err(self.output_failure(failure));
        }
        match (self.failed, self.accepted + self.duplicates) {
            _ if self.is_interrupted => Err(Failure::Reported(exit::INTERRUPTED)),
            (0, _) => Ok(()),
            (_, 0) => Err(Failure::Reported(self.code)),
            (_, _) => Err(Failure::Reported(exit::IN_PART)),
        }
    }

    /// Failure of standard output, with the number of messages that were sent.
    fn output_failure(&self, failure: Failure) -> Failure {
        let count = self.accepted + self.duplicates;
        if count == 0 {
            return failure;
        }
        let were = if count == 1 { "message was" } else { "messages were" };
        let place = if self.names_lines {
            format!(", up to line {}", self.last_accepted)
        } else {
            String::new()
        };
        Failure::ended(exit::IN_PART, format!("{}\n  {count} {were} sent{place}", failure.text()))
    }

    fn sum(&self, queue: &str) -> String {
        let messages = if self.accepted == 1 { "message" } else { "messages" };
        let mut sum = format!("sent {} {messages} to {}", self.accepted, line(queue));
        match self.numbers {
            Some((first, last)) if first == last => {
                sum.push_str(&format!(", sequence number {first}"));
            }
            Some((first, last)) => sum.push_str(&format!(", sequence numbers {first} to {last}")),
            None => {}
        }
        for (count, outcome) in
            [(self.duplicates, "dropped as duplicates"), (self.failed, "failed")]
        {
            if count > 0 {
                sum.push_str(&format!("; {count} {outcome}"));
            }
        }
        sum.push('\n');
        sum
    }
}
