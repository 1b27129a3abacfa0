//! Output of `peeklock dlq resubmit --dry-run`: the copies that would be sent. `resubmit.rs` uses
//! it.

use peeklock::command::ActResult;
use peeklock::message::Message;
use peeklock::websocket::client::{Received, message_to_json};
use peeklock_json::{ActResultName, JsonName as _};
use serde_json::json;

use super::super::Failure;
use super::super::connect::CommandConnection;
use super::super::message::{CELL_CHARS_MAX, id, plain};
use super::super::peek::ROWS_MAX;
use super::super::terminal::{Cell, Table, cut, note};
use crate::config::span_text;

/// JSON object of a copy and its dead letter, with the result if it would stay.
pub fn to_json(letter: &Received, copy: &Message, stays: Option<ActResult>) -> String {
    let mut head = json!({
        "sequenceNumber": letter.sequence_number().0,
        "reason": letter.dead_letter_reason(),
        "description": letter.dead_letter_error_description(),
    });
    if let Some(stays) = stays {
        head["stays"] = ActResultName::from(stays).text().into();
    }
    // The copy is spliced in as text, since `serde_json` values would not keep all its numbers.
    let head = head.to_string();
    let head = head.trim_end_matches('}');
    format!("{head},\"message\":{}}}", message_to_json(copy))
}

/// Table of copies.
pub struct Copies {
    table: Table,
    count: u64,
    is_cut: bool,
    /// Whether a column shows the messages that would stay.
    shows_staying: bool,
}

impl Copies {
    pub fn new(colours: bool, shows_staying: bool) -> Self {
        let mut heads = vec!["SEQUENCE", "REASON", "TTL", "ID", "PROPERTIES", "BODY"];
        if shows_staying {
            heads.push("STAYS");
        }
        Self { table: Table::new(&heads, 1, colours), count: 0, is_cut: false, shows_staying }
    }

    /// Adds a copy, up to `ROWS_MAX`.
    pub fn add(&mut self, letter: &Received, copy: &Message, stays: Option<ActResult>) {
        self.count += 1;
        if self.count > ROWS_MAX {
            return;
        }
        let mut cell = |bytes: &[u8]| {
            let (text, is_cut) = cut(bytes, CELL_CHARS_MAX);
            self.is_cut |= is_cut;
            Cell::Text(text)
        };
        let ttl = copy.time_to_live.filter(|span| !span.is_unlimited()).map(span_text);
        let properties: Vec<String> = copy
            .application_properties
            .iter()
            .map(|(key, value)| format!("{key}={}", plain(value)))
            .collect();
        let mut cells = vec![
            Cell::Number(letter.sequence_number().0),
            cell(letter.dead_letter_reason().unwrap_or_default().as_bytes()),
            Cell::Text(ttl.unwrap_or_default()),
            cell(id(copy).as_bytes()),
            cell(properties.join(" ").as_bytes()),
            cell(copy.body.as_bytes()),
        ];
        if self.shows_staying {
            let text = if stays.is_some() { "the patch does not apply" } else { "" };
            cells.push(Cell::Text(text.to_owned()));
        }
        self.table.row(cells);
    }

    pub fn show(self, session: &CommandConnection) -> Result<(), Failure> {
        let (text, was_narrow) = self.table.text(&session.out);
        session.out.print(&text)?;
        if self.count > ROWS_MAX {
            note(&format!("and {} more; -o ndjson shows all", self.count - ROWS_MAX));
        }
        if self.is_cut || was_narrow {
            note("some text is shortened; -o ndjson shows the full text");
        }
        Ok(())
    }
}
