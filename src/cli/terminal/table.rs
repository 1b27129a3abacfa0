//! Tables: one line a row, numbers to the right, as wide as the terminal. Sheets: one thing with its properties, names to the
//! left and values to the right, or its JSON.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Width,
};

use super::super::connect::Output;
use super::{Out, json, line};

/// Spaces between columns.
const GAP: u16 = 2;
/// Minimum width of a column that may be cut; with less room it is hidden.
const FLEXIBLE_WIDTH_MIN: u16 = 8;

/// Content of a table cell.
pub enum Cell {
    /// Text from any source; control characters are escaped.
    Text(String),
    /// A number.
    Number(u64),
    /// Number that is highlighted unless it is 0.
    Alarm(u64),
    /// Other text that is aligned like a number.
    Right(String),
}

/// Columns to keep if there is no room for all.
struct Importance {
    /// Column indexes by importance. The first column is cut before other essential columns are
    /// hidden.
    order: Vec<usize>,
    /// Number of essential columns, counted from the front of `order`.
    essential: usize,
}

/// Indexes of the columns that fit: the first, the last, then the others from the left.
fn kept(contents: &[u16], flexible: usize, width: u16) -> Vec<usize> {
    let needed = |index: usize, content: u16| {
        let least = if index < flexible { content } else { content.min(FLEXIBLE_WIDTH_MIN) };
        u32::from(least) + u32::from(GAP)
    };
    let last = contents.len().saturating_sub(1);
    let mut order: Vec<_> = contents.iter().copied().enumerate().collect();
    order.sort_by_key(|(index, _)| (*index != 0, *index != last, *index));
    let (mut kept, mut used) = (Vec::new(), 0);
    for (index, content) in order {
        let more = needed(index, content);
        if index == 0 || used + more <= u32::from(width) {
            used += more;
            kept.push(index);
        }
    }
    kept
}

impl Importance {
    /// Indexes of the columns that fit, and the first with its width if it must be cut.
    fn kept(&self, contents: &[u16], width: u16) -> (Vec<usize>, Option<(usize, u16)>) {
        let content = |index: &usize| contents.get(*index).copied().unwrap_or(0);
        let Some((first, others)) = self.order.split_first() else { return (Vec::new(), None) };
        let essential: u16 = others
            .iter()
            .take(self.essential.saturating_sub(1))
            .map(|index| content(index).saturating_add(GAP))
            .fold(GAP, u16::saturating_add);
        let room = width.saturating_sub(essential).max(FLEXIBLE_WIDTH_MIN);
        let first_width = content(first).min(room);
        let mut used = u32::from(first_width) + u32::from(GAP);
        let mut kept = vec![*first];
        for index in others {
            let more = u32::from(content(index)) + u32::from(GAP);
            if used + more <= u32::from(width) {
                used += more;
                kept.push(*index);
            }
        }
        (kept, (first_width < content(first)).then_some((*first, first_width)))
    }
}

/// A table that is being filled.
pub struct Table {
    table: comfy_table::Table,
    heads: Vec<String>,
    /// Index from which on columns may be cut to fit a terminal.
    flexible: usize,
    importance: Option<Importance>,
    colours: bool,
}

impl Table {
    /// Creates a table with these column heads.
    pub fn new(heads: &[impl ToString], flexible: usize, colours: bool) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_truncation_indicator("…").force_no_tty();
        if colours {
            table.enforce_styling();
        }
        let heads = heads.iter().map(ToString::to_string).collect();
        Self { table, heads, flexible, importance: None, colours }
    }

    /// Sets the order in which a narrow terminal hides columns, from the end of `order`. The first
    /// column is cut if the first `essential` columns would not fit.
    pub fn with_importance(mut self, order: Vec<usize>, essential: usize) -> Self {
        self.importance = Some(Importance { order, essential });
        self
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        if self.table.is_empty() {
            let heads: Vec<_> =
                self.heads.iter().zip(&cells).map(|(head, cell)| self.head(head, cell)).collect();
            self.table.set_header(heads);
        }
        let number =
            |text: String| comfy_table::Cell::new_owned(text).set_alignment(CellAlignment::Right);
        let cells = cells.into_iter().map(|cell| match cell {
            Cell::Text(text) => comfy_table::Cell::new_owned(line(&text).into_owned()),
            Cell::Alarm(value) if value > 0 && self.colours => {
                number(value.to_string()).fg(Color::Yellow)
            }
            Cell::Number(value) | Cell::Alarm(value) => number(value.to_string()),
            Cell::Right(text) => number(line(&text).into_owned()),
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        self.table.add_row(row);
    }

    /// Head of a column, aligned like the cell.
    fn head(&self, head: &str, cell: &Cell) -> comfy_table::Cell {
        let alignment = match cell {
            Cell::Text(_) => CellAlignment::Left,
            Cell::Number(_) | Cell::Alarm(_) | Cell::Right(_) => CellAlignment::Right,
        };
        let head = comfy_table::Cell::new(head).set_alignment(alignment);
        if self.colours { head.add_attribute(Attribute::Bold) } else { head }
    }

    /// Lines of the table, and whether columns were cut or hidden to fit.
    pub fn lines(mut self, width: Option<u16>) -> (Vec<String>, bool) {
        for column in self.table.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        let needed: u32 = self
            .table
            .column_max_content_widths()
            .iter()
            .map(|width| u32::from(*width) + u32::from(GAP))
            .sum();
        let narrow = width.filter(|width| u32::from(*width) + u32::from(GAP) < needed);
        if let Some(width) = narrow {
            self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            let contents = self.table.column_max_content_widths();
            let (kept, cut) = match &self.importance {
                Some(importance) => importance.kept(&contents, width),
                None => (kept(&contents, self.flexible, width), None),
            };
            for (index, column) in self.table.column_iter_mut().enumerate() {
                if !kept.contains(&index) {
                    column.set_constraint(ColumnConstraint::Hidden);
                } else if let Some((_, width)) = cut.filter(|(cut, _)| *cut == index) {
                    column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + GAP)));
                } else if index < self.flexible && kept.len() > 1 {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        let lines = self.table.lines().map(|line| line.trim_end().to_owned()).collect();
        (lines, narrow.is_some())
    }

    /// Text of the table, and whether columns were cut or hidden to fit.
    pub fn text(self, out: &Out) -> (String, bool) {
        let (lines, is_cut) = self.lines(out.width());
        let mut text = lines.join("\n");
        text.push('\n');
        (text, is_cut)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_room_is_left_out_and_the_others_can_be_read() {
        let heads = ["SEQUENCE", "STATE", "ENQUEUED", "TRIES", "ID", "SUBJECT", "BODY"];
        let mut table = Table::new(&heads, 4, false);
        let text = |text: &str| Cell::Text(text.to_owned());
        table.row(vec![
            Cell::Number(1001),
            text("active"),
            text("2026-05-01T12:00:00Z"),
            Cell::Number(0),
            text("an-id-of-some-length"),
            text("a subject of some length"),
            text("a body that is longer than all the rest of it"),
        ]);
        let (lines, is_cut) = table.lines(Some(40));
        assert!(is_cut);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert!(lines[0].contains("SEQUENCE") && lines[0].contains("BODY"), "{lines:?}");
        assert!(lines[1].contains("1001") && lines[1].contains("a body"), "{lines:?}");
    }
}
