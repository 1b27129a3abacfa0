//! Tables: one line a row, numbers to the right, as wide as the terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row};

use super::{Out, line};

/// Spaces between two columns.
const GAP: u16 = 2;

/// What stands in one place.
pub enum Cell {
    /// Text of anybody's; made harmless when it is shown.
    Text(String),
    /// A number.
    Number(u64),
    /// A number that asks for attention unless it is 0.
    Alarm(u64),
    /// Something else that is aligned like a number.
    Right(String),
}

/// A table that is being filled.
pub struct Table {
    table: comfy_table::Table,
    heads: Vec<&'static str>,
    /// The columns from this one on may be cut to fit a terminal.
    flexible: usize,
    colours: bool,
}

impl Table {
    /// A table with these heads.
    pub fn new(heads: &[&'static str], flexible: usize, colours: bool) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_truncation_indicator("…").force_no_tty();
        if colours {
            table.enforce_styling();
        }
        Self { table, heads: heads.to_vec(), flexible, colours }
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

    /// The head of a column, aligned as what stands in it.
    fn head(&self, head: &str, cell: &Cell) -> comfy_table::Cell {
        let alignment = match cell {
            Cell::Text(_) => CellAlignment::Left,
            Cell::Number(_) | Cell::Alarm(_) | Cell::Right(_) => CellAlignment::Right,
        };
        let head = comfy_table::Cell::new(head).set_alignment(alignment);
        if self.colours { head.add_attribute(Attribute::Bold) } else { head }
    }

    /// The lines, and whether something was cut to make them fit.
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
            for column in self.table.column_iter_mut().take(self.flexible) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let lines = self.table.lines().map(|line| line.trim_end().to_owned()).collect();
        (lines, narrow.is_some())
    }

    /// The text, and whether something was cut to make it fit.
    pub fn text(self, out: &Out) -> (String, bool) {
        let (lines, is_cut) = self.lines(out.width());
        let mut text = lines.join("\n");
        text.push('\n');
        (text, is_cut)
    }
}
