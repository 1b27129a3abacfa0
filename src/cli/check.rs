//! `peeklock config check`: validates the configuration, and prints each value with its source.
//! `cli.rs` dispatches to it. It performs the checks of a start without starting a broker.

use std::fmt::Write as _;

use super::{Failure, FileFlag, print, terminal};
use crate::config::{Layers, Loaded, Row};

pub fn check(file: FileFlag) -> Result<(), Failure> {
    let layers = Layers { file: file.config, ..Layers::default() };
    let loaded = Loaded::load(&layers)?;
    let rows = loaded.rows().into_iter().map(shown).collect::<Vec<_>>();
    let changed = rows.iter().filter(|row| row.source.is_some()).count();
    let file = match &loaded.file {
        Some(file) => format!("file {}", terminal::line(&file.display().to_string())),
        None => "no file".to_owned(),
    };
    let values = if changed == 1 { "1 value is" } else { &format!("{changed} values are") };
    print(&format!(
        "configuration is valid ({file}); {values} set, the others are defaults\n\n{}",
        table(&rows)
    ))
}

/// Row without control characters, because the file may come from others.
fn shown(row: Row) -> Row {
    let line = |text: &str| terminal::line(text).into_owned();
    Row { key: line(&row.key), value: line(&row.value), source: row.source.as_deref().map(line) }
}

/// Table of the rows.
fn table(rows: &[Row]) -> String {
    let width = |text: fn(&Row) -> &str, head: &str| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0).max(head.len())
    };
    let (key_width, value_width) = (width(|row| &row.key, "KEY"), width(|row| &row.value, "VALUE"));
    let mut text = String::new();
    let mut line = |key: &str, value: &str, source: &str| {
        // Writing into a string cannot fail.
        writeln!(text, "{key:<key_width$}  {value:<value_width$}  {source}").unwrap_or_default();
    };
    line("KEY", "VALUE", "SOURCE");
    for row in rows {
        line(&row.key, &row.value, row.source.as_deref().unwrap_or("default"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let row = |key: &str, value: &str, source: Option<&str>| Row {
            key: key.to_owned(),
            value: value.to_owned(),
            source: source.map(str::to_owned),
        };
        let rows =
            [row("http.address", "127.0.0.1:1", Some("--http")), row("log.format", "text", None)];
        assert_eq!(
            table(&rows),
            "KEY           VALUE        SOURCE\n\
             http.address  127.0.0.1:1  --http\n\
             log.format    text         default\n"
        );
    }
}
