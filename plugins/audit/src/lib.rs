//! Audit trail of a Peeklock broker (CON-23): the actions of operators and their results.
//!
//! ```text
//!  Auditor::record ─► queue ─► writer: all that waits in one write, one sync ─► files
//!  Auditor::read   ─► reader: newest or oldest first ◄────────────────────────── files
//!  verify          ─► hashes of all lines, offline ◄──────────────────────────── files
//! ```
//!
//! The trail is a directory of text files. Each line is a JSON object with the SHA-256 hash of the
//! line before it, so that a line that was changed, added or removed is found. The oldest file is
//! removed when the trail is full or too old, and an entry names the number with which the trail
//! begins from then on. A broker without a data directory keeps the last entries in memory.
//!
//! The modules in reading order: `line` (the form of an entry), `log` (files, bounds and repair),
//! `trail` (the auditor with its threads), `page` (selections), `memory`, and `check` (verification).

mod check;
mod line;
mod log;
mod memory;
mod page;
mod trail;

pub use check::{Fault, NotedEntry, Report, verify, verify_lines};
pub use line::HASH_CHARS;
pub use log::{AuditConfig, OpenError};
pub use memory::MemoryTrail;
pub use trail::AuditTrail;
