//! Output for terminals: text without control characters, tables, and a progress bar.

mod bar;
mod out;
mod table;

pub use bar::Bar;
pub use out::{Out, WriteOutcome, note};
pub use table::{Cell, Table, object, sheet};

pub use crate::visible::{cut, json, line, text, toml};
