//! Properties of a single item: names on the left, values on the right, or JSON.

use std::fmt::Write as _;

use super::super::connect::Output;
use super::{Out, json, line};

/// Text with a name and a value per line.
pub fn sheet(rows: &[(&str, String)], out: &Out) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let (bold, plain) = if out.colours { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
    let mut shown = String::new();
    for (name, value) in rows {
        // Writing into a string cannot fail.
        writeln!(shown, "{bold}{name:<width$}{plain}  {}", line(value)).unwrap_or_default();
    }
    shown
}

/// JSON text in the requested format; the caller handles tables.
pub fn object(text: &str, output: Output) -> String {
    if output == Output::Ndjson {
        return format!("{}\n", json(text));
    }
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let pretty = serde_json::to_string_pretty(&value).unwrap_or_else(|_| text.to_owned());
    format!("{}\n", json(&pretty))
}
