//! What became of the messages sent.

use std::io;

use super::super::connect::{Output, code, may_be_done, told};
use super::super::terminal::{Bar, Out, line, note};
use super::super::{Failure, exit};
use super::Answered;

/// So many failures are told one by one.
const TOLD_MAX: u64 = 20;

/// Counts, and tells of each failure.
pub struct Report {
    out: Out,
    output: Output,
    /// Whether places are lines of the input.
    names_lines: bool,
    accepted: u64,
    duplicates: u64,
    failed: u64,
    is_interrupted: bool,
    /// The lowest and the highest number given.
    numbers: Option<(u64, u64)>,
    /// The exit code of the last failure.
    code: u8,
}

impl Report {
    pub const fn new(out: Out, output: Output, names_lines: bool) -> Self {
        Self {
            out,
            output,
            names_lines,
            accepted: 0,
            duplicates: 0,
            failed: 0,
            is_interrupted: false,
            numbers: None,
            code: 1,
        }
    }

    /// Takes an answer; whether the message was taken.
    pub fn answered(&mut self, answered: Answered, bar: &Bar) -> Result<bool, Failure> {
        let Answered { line: place, result, .. } = answered;
        let (told, is_taken) = match result {
            Ok(number) if number.0 == 0 => {
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
                let open = if is_open { "\n  it may have been stored all the same" } else { "" };
                self.fail(place, &format!("{}{open}", told(&error)), bar);
                let told = serde_json::json!({
                    "line": place,
                    "error": error.condition().name(),
                    "detail": error.detail(),
                    "retryable": error.retryable(),
                    "mayBeStored": is_open,
                    "trackingId": error.tracking_id().to_string(),
                });
                (told, false)
            }
        };
        if self.output == Output::Ndjson {
            // Who does not read this wants the messages sent all the same.
            let _wrote = self.out.write(format!("{told}\n"))?;
        }
        Ok(is_taken)
    }

    /// Takes a line that is no message.
    pub fn unreadable(&mut self, place: u64, error: &str, bar: &Bar) {
        self.code = exit::USAGE;
        self.fail(place, error, bar);
    }

    /// The input ended with an error.
    pub fn unfed(&mut self, error: &io::Error) {
        self.failed += 1;
        note(&format!("error: standard input cannot be read: {error}"));
    }

    /// The user wants no more.
    pub fn interrupted(&mut self, bar: &Bar) {
        self.is_interrupted = true;
        bar.note("interrupted: nothing further is sent, what is under way is answered");
    }

    fn fail(&mut self, place: u64, what: &str, bar: &Bar) {
        self.failed += 1;
        if self.failed > TOLD_MAX {
            return;
        }
        let name = if self.names_lines { "line" } else { "message" };
        bar.note(&format!("error: {name} {place}: {what}"));
    }

    /// Tells the sum.
    pub fn end(self, queue: &str) -> Result<(), Failure> {
        if self.failed > TOLD_MAX {
            note(&format!("and {} failures more", self.failed - TOLD_MAX));
        }
        match self.output {
            Output::Table => self.out.say(&self.sum(queue))?,
            Output::Json => {
                let sum = serde_json::json!({
                    "queue": queue,
                    "accepted": self.accepted,
                    "duplicates": self.duplicates,
                    "failed": self.failed,
                    "firstSequenceNumber": self.numbers.map(|(first, _)| first),
                    "lastSequenceNumber": self.numbers.map(|(_, last)| last),
                });
                self.out.say(&format!("{sum}\n"))?;
            }
            Output::Ndjson => {}
        }
        match (self.failed, self.accepted + self.duplicates) {
            _ if self.is_interrupted => Err(Failure::Told(exit::INTERRUPTED)),
            (0, _) => Ok(()),
            (_, 0) => Err(Failure::Told(self.code)),
            (_, _) => Err(Failure::Told(exit::IN_PART)),
        }
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
        for (count, what) in [(self.duplicates, "dropped as duplicates"), (self.failed, "failed")] {
            if count > 0 {
                sum.push_str(&format!("; {count} {what}"));
            }
        }
        sum.push('\n');
        sum
    }
}
