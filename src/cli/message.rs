//! Messages in the output formats: one line, all details, or JSON. `peek`, `receive` and the `dlq`
//! commands print with it.

use std::fmt::Write as _;

use clap::Args;
use peeklock::command::MessageState;
use peeklock::ids::{LockToken, TrackingId};
use peeklock::message::{Message, Value};
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::{Received, received_to_json};

use super::Failure;
use super::connect::Output;
use super::terminal::{Out, WriteOutcome, json, line, text};
use crate::config::span_text;

/// Maximum characters of a body or other text in a table cell.
pub const CELL_CHARS_MAX: usize = 60;

/// Flags that select the written part of a message.
#[derive(Args)]
pub struct BodyFlags {
    /// Write only bodies, one per line; on a terminal, control characters are escaped
    #[arg(long, conflicts_with_all = ["raw", "output"], help_heading = "Output")]
    body_only: bool,
    /// Write only the bytes of bodies, unchanged, also on a terminal
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    raw: bool,
}

/// Output form of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All details, for people.
    Long,
    /// The body and a line break.
    Body,
    /// The body only.
    Raw,
    /// Elements of a JSON array.
    Json,
    /// One JSON object per line.
    Ndjson,
}

impl BodyFlags {
    /// Form of the output; the long form in place of a table.
    pub const fn form(&self, output: Output) -> Form {
        match output {
            _ if self.raw => Form::Raw,
            _ if self.body_only => Form::Body,
            Output::Table => Form::Long,
            Output::Json => Form::Json,
            Output::Ndjson => Form::Ndjson,
        }
    }
}

/// Writes messages one after the other; each is flushed before the call returns.
pub struct Writer {
    out: Out,
    form: Form,
    count: u64,
}

impl Writer {
    pub const fn new(out: Out, form: Form) -> Self {
        Self { out, form, count: 0 }
    }

    pub fn message(&mut self, message: &Received) -> Result<WriteOutcome, Failure> {
        self.count += 1;
        match self.form {
            Form::Long => {
                let gap = if self.count > 1 { "\n" } else { "" };
                self.out.write(format!("{gap}{}", long(message)))
            }
            Form::Raw => self.out.write(message.body()),
            Form::Body if self.out.is_terminal => {
                self.out.write(format!("{}\n", text(message.body())))
            }
            Form::Body => {
                let mut bytes = message.body().to_vec();
                bytes.push(b'\n');
                self.out.write(bytes)
            }
            Form::Json | Form::Ndjson => self.element(&received_to_json(message)),
        }
    }

    /// Writes an object that is JSON text.
    pub fn object(&mut self, object: &str) -> Result<WriteOutcome, Failure> {
        self.count += 1;
        self.element(object)
    }

    fn element(&self, element: &str) -> Result<WriteOutcome, Failure> {
        let element = json(element);
        match (self.form, self.count) {
            (Form::Json, 1) => self.out.write(format!("[\n{element}")),
            (Form::Json, _) => self.out.write(format!(",\n{element}")),
            _ => self.out.write(format!("{element}\n")),
        }
    }

    /// Closes a JSON array.
    pub fn end(self) -> Result<(), Failure> {
        match (self.form, self.count) {
            (Form::Json, 0) => self.out.print("[]\n"),
            (Form::Json, _) => self.out.print("\n]\n"),
            _ => Ok(()),
        }
    }
}

/// All details of a message; the complete body comes last.
fn long(message: &Received) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        rows.extend(value.map(|value| (name.to_owned(), line(&value).into_owned())));
    };
    let sent = message.message();
    row("sequence number", Some(message.sequence_number().to_string()));
    let state = message.state();
    row("state", (state != MessageState::Active).then(|| state_name(state).to_owned()));
    row("delayed until", message.delayed_until().map(|at| at.to_string()));
    row("enqueued", Some(message.enqueued_at().to_string()));
    row("expires", message.expires_at().filter(|at| !at.is_never()).map(|at| at.to_string()));
    row("delivery count", Some(message.delivery_count().to_string()));
    row("dead-lettered in", message.dead_letter_source().map(str::to_owned));
    row("locked until", message.locked_until().map(|at| at.to_string()));
    row("lock token", message.lock_token().map(|token| token.to_string()));
    row("message id", sent.message_id.as_ref().map(ToString::to_string));
    row("correlation id", sent.correlation_id.as_ref().map(ToString::to_string));
    row("subject", sent.subject.clone());
    row("content type", sent.content_type.clone());
    row("to", sent.to.clone());
    row("reply to", sent.reply_to.clone());
    row("session id", sent.session_id.clone());
    row("reply to session", sent.reply_to_session_id.clone());
    row("partition key", sent.partition_key.clone());
    row("time to live", message.time_to_live().filter(|span| !span.is_unlimited()).map(span_text));
    row("scheduled for", sent.scheduled_enqueue_time.map(|at| at.to_string()));
    for (key, value) in &sent.application_properties {
        row(&format!("  {key}"), Some(typed(value)));
    }
    row("body", Some(body_note(message.body())));
    let width = rows.iter().map(|(name, _)| line(name).chars().count()).max().unwrap_or_default();
    let mut out = String::new();
    for (name, value) in rows {
        let name = line(&name);
        // Writing into a string cannot fail.
        writeln!(out, "{name:<width$}  {value}").unwrap_or_default();
    }
    if !message.body().is_empty() {
        out.push_str(&text(message.body()));
        out.push('\n');
    }
    out
}

fn body_note(body: &[u8]) -> String {
    let bytes = if body.len() == 1 { "byte" } else { "bytes" };
    let kind = if std::str::from_utf8(body).is_ok() { "" } else { ", not text" };
    format!("{} {bytes}{kind}", body.len())
}

/// Name of a state on the command line.
pub const fn state_name(state: MessageState) -> &'static str {
    match state {
        MessageState::Active => "active",
        MessageState::Deferred => "deferred",
        MessageState::Scheduled => "scheduled",
        MessageState::Delayed => "delayed",
    }
}

/// Text of a property value, with its type unless it is a string.
fn typed(value: &Value) -> String {
    match kind(value) {
        "string" => plain(value),
        kind => format!("{} ({kind})", plain(value)),
    }
}

/// Text of a property value.
pub fn plain(value: &Value) -> String {
    let guid = |value: u128| TrackingId(value).to_string();
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap_or_default();
            text
        })
    };
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::I8(value) => value.to_string(),
        Value::I16(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U8(value) => value.to_string(),
        Value::U16(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::Decimal128(bytes) => hex(bytes),
        Value::Char(value) => value.to_string(),
        Value::String(text) | Value::Uri(text) => text.clone(),
        Value::Uuid(value) => guid(*value),
        Value::Timestamp(ms) => Timestamp::from_unix_ms(*ms).to_string(),
        Value::Binary(bytes) => hex(bytes),
        Value::DateTimeOffset(ticks) => Timestamp::from_ticks(*ticks).to_string(),
        Value::TimeSpan(ticks) => TimeSpan::from_ticks(*ticks).to_string(),
    }
}

/// Name of the type of a property.
const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::I8(_) => "i8",
        Value::I16(_) => "i16",
        Value::I32(_) => "i32",
        Value::I64(_) => "i64",
        Value::U8(_) => "u8",
        Value::U16(_) => "u16",
        Value::U32(_) => "u32",
        Value::U64(_) => "u64",
        Value::F32(_) => "f32",
        Value::F64(_) => "f64",
        Value::Decimal128(_) => "decimal128",
        Value::Char(_) => "char",
        Value::String(_) => "string",
        Value::Uuid(_) => "uuid",
        Value::Timestamp(_) => "timestamp",
        Value::Binary(_) => "binary",
        Value::Uri(_) => "uri",
        Value::DateTimeOffset(_) => "dateTimeOffset",
        Value::TimeSpan(_) => "timeSpan",
    }
}

/// Text of an instant in a table, to the millisecond.
pub fn instant_exact(at: Timestamp) -> String {
    Timestamp::from_unix_ms(at.unix_ms()).to_string()
}

/// Text of an instant in a table, to the second.
pub fn instant(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// Text of a number of messages.
pub fn messages(count: u64) -> String {
    counted(count, "message")
}

/// Text of a count with a noun whose plural ends in s.
pub fn counted(count: u64, singular: &str) -> String {
    format!("{count} {singular}{}", if count == 1 { "" } else { "s" })
}

/// Message id; empty if there is none.
pub fn id(message: &Message) -> String {
    message.message_id.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Lock tokens of messages that are locked.
pub fn tokens<'a>(messages: impl IntoIterator<Item = &'a Received>) -> Vec<LockToken> {
    messages.into_iter().filter_map(Received::lock_token).collect()
}
