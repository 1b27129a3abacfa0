//! Trail of a broker without a data directory: the last entries in memory.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use peeklock_core::contract::{AuditEntry, AuditError, AuditPage, AuditQuery, Auditor, Recorded};

use crate::line::{Line, Place};
use crate::page::PageBuilder;

/// Keeps entries up to a number of bytes, and forgets the oldest ones.
pub struct MemoryTrail {
    held: Mutex<Held>,
    bytes_max: usize,
    records_reads: bool,
}

struct Held {
    lines: VecDeque<Box<str>>,
    bytes: usize,
    place: Place,
}

impl MemoryTrail {
    /// Maximum bytes of entries by default.
    pub const BYTES_MAX: usize = 4 << 20;

    /// Creates a trail without entries. `records_reads` is `console.audit_reads`.
    #[must_use]
    pub const fn new(bytes_max: usize, records_reads: bool) -> Self {
        let held = Held { lines: VecDeque::new(), bytes: 0, place: Place::FIRST };
        Self { held: Mutex::new(held), bytes_max, records_reads }
    }

    fn add(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let text = Line::of_entry(held.place, entry).text();
        let text = text.map_err(|error| AuditError::Failed(error.to_string().into()))?;
        held.place = held.place.after(&text);
        held.bytes += text.len();
        held.lines.push_back(text.into());
        while held.bytes > self.bytes_max
            && let Some(oldest) = held.lines.pop_front()
        {
            held.bytes -= oldest.len();
        }
        Ok(())
    }
}

#[async_trait]
impl Auditor for MemoryTrail {
    fn record(&self, entry: AuditEntry) -> Recorded {
        let added = self.add(&entry);
        Box::pin(std::future::ready(added))
    }

    async fn read(&self, query: AuditQuery) -> Result<AuditPage, AuditError> {
        let mut page = PageBuilder::new(&query);
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole = match query.is_ascending {
            true => held.lines.iter().all(|line| page.add(line)),
            false => held.lines.iter().rev().all(|line| page.add(line)),
        };
        Ok(page.end(!is_whole))
    }

    fn records_reads(&self) -> bool {
        self.records_reads
    }
}

impl fmt::Debug for MemoryTrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTrail").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}
