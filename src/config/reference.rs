//! The rows of docs/reference/settings.md and docs/reference/limits.md follow from the tables in the code. With
//! `PEEKLOCK_REFERENCE=write` in the environment, the tests write the rows.

use std::path::Path;

use peeklock::limits::{Amount, Limits};

use super::table::{Allowed, size_text};
use super::{Config, sections, span_text};

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

/// An amount as a reader takes it in at once.
fn readable(value: Amount, is_size: bool) -> String {
    match value {
        Amount::Number(u64::MAX) => "unlimited".to_owned(),
        Amount::Number(number) => {
            size_text(number).filter(|_| is_size).unwrap_or_else(|| grouped(number))
        }
        Amount::Span(span) => span_text(span),
    }
}

/// Compares the rows of a page with the expected ones, each found by its first cell, or writes them.
fn check_rows(page: &str, rows: impl Iterator<Item = (String, String)>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, rest) in rows {
        let start = format!("| `{key}` |");
        let row = format!("{start} {rest} |");
        let mut found = lines.iter_mut().filter(|line| line.starts_with(&start));
        match (found.next(), found.next()) {
            (Some(line), None) => *line = row,
            _ => panic!("{page} has no row, or several, for `{key}`: {row}"),
        }
    }
    let expected = format!("{}\n", lines.join("\n"));
    if std::env::var_os("PEEKLOCK_REFERENCE").is_some_and(|value| value == "write") {
        std::fs::write(path, expected).unwrap();
        return;
    }
    assert_eq!(text, expected, "run this test with PEEKLOCK_REFERENCE=write to write the page");
}

#[test]
fn settings_page_has_the_rows_of_the_table() {
    let defaults = Config::new();
    let rows = sections::all().map(|setting| {
        let is_size = setting.is_size();
        let value = (setting.value)(&defaults);
        let kind = match (value.written(), value.amount()) {
            _ if is_size => "bytes",
            (_, Some(Amount::Span(_))) => "duration",
            (toml::Value::Boolean(_), _) => "boolean",
            (toml::Value::Integer(_) | toml::Value::Float(_), _) => "number",
            (toml::Value::Array(_), _) => "list",
            _ => "string",
        };
        let mut default = format!("`{}`", value.written());
        if let (true, Some(Amount::Number(number @ 1..))) = (is_size, value.amount()) {
            default += &format!(" ({})", readable(Amount::Number(number), true));
        }
        let range = match &setting.allowed {
            Allowed::Text(text) => (*text).to_owned(),
            Allowed::NotEmpty(_) => "not empty".to_owned(),
            _ => setting.range_text().unwrap(),
        };
        let rest = format!("{kind} | {default} | {range} | {}", setting.effect());
        (setting.key.to_owned(), rest)
    });
    check_rows("docs/reference/settings.md", rows);
}

/// QUO-01, QUO-02.
#[test]
fn limits_page_has_the_rows_of_the_table() {
    let defaults = Limits::default();
    let rows = Limits::TABLE.iter().map(|limit| {
        let is_size = limit.name.contains("_bytes_");
        let [least, most] = limit.range().map(|end| readable(end, is_size));
        let value = limit.of(&defaults);
        let text = readable(value, is_size);
        let default = match value {
            Amount::Number(number) if number >= 100_000 || text.ends_with('B') => {
                format!("`{number}` ({text})")
            }
            Amount::Number(number) => format!("`{number}`"),
            Amount::Span(_) => format!("`\"{text}\"`"),
        };
        let rest = format!("{default} | {least} to {most} | {}", limit.effect());
        (format!("limits.{}", limit.name), rest)
    });
    check_rows("docs/reference/limits.md", rows);
}
