//! Pages of the trail, newest or oldest first, with the conditions of a query.

use std::io;

use peeklock_core::contract::{AUDIT_PAGE_MAX, AuditPage, AuditQuery};
use peeklock_core::store::journal::disk::Disk;

use crate::line::Line;
use crate::log::{FileFacts, read};

/// Maximum bytes of the entries of a page, unless the first one is longer.
const PAGE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of files that are read for a page; then the page is short and names the next one.
const PAGE_FILES_MAX: usize = 4;

/// A page in the making.
pub struct PageBuilder<'a> {
    query: &'a AuditQuery,
    page: AuditPage,
    bytes: usize,
    /// Number of the last line that was examined.
    last: Option<u64>,
}

impl<'a> PageBuilder<'a> {
    /// Begins a page.
    pub fn new(query: &'a AuditQuery) -> Self {
        Self { query, page: AuditPage::default(), bytes: 0, last: query.after }
    }

    /// Examines the next line in the order of the query. False if the page is full, and the line is
    /// for the next one.
    pub fn add(&mut self, text: &str) -> bool {
        let Ok(line) = serde_json::from_str::<Line>(text) else { return true };
        if let Some(after) = self.query.after
            && (line.number == after || (line.number > after) != self.query.is_ascending)
        {
            return true;
        }
        if selects(self.query, &line) {
            let count_max = self.query.count_max.clamp(1, AUDIT_PAGE_MAX) as usize;
            let is_full = self.page.lines.len() >= count_max
                || self.bytes + text.len() > PAGE_BYTES_MAX && !self.page.lines.is_empty();
            if is_full {
                return false;
            }
            self.bytes += text.len();
            self.page.lines.push(text.into());
        }
        self.last = Some(line.number);
        true
    }

    /// Returns the page; `has_more` reports whether the trail goes on after it.
    pub fn end(mut self, has_more: bool) -> AuditPage {
        self.page.next = self.last.filter(|_| has_more);
        self.page
    }
}

fn selects(query: &AuditQuery, line: &Line) -> bool {
    let same = |asked: &Option<Box<str>>, value: Option<&str>| {
        asked.as_deref().is_none_or(|asked| value == Some(asked))
    };
    let at = line.instant();
    query.since.is_none_or(|since| at.is_some_and(|at| at >= since))
        && query.until.is_none_or(|until| at.is_some_and(|at| at < until))
        && same(&query.policy, line.policy.as_deref())
        && same(&query.action, Some(&line.operation))
        && same(&query.result, line.result.as_deref())
        && query.resource.as_deref().is_none_or(|path| line.resource.eq_ignore_ascii_case(path))
}

/// Reads a page from files, which are given oldest first.
pub fn read_page(
    disk: &dyn Disk,
    files: &[FileFacts],
    query: &AuditQuery,
) -> io::Result<AuditPage> {
    let mut page = PageBuilder::new(query);
    let mut places: Vec<usize> =
        (0..files.len()).filter(|at| may_have(files, *at, query)).collect();
    if !query.is_ascending {
        places.reverse();
    }
    for (count, at) in places.iter().enumerate() {
        if count >= PAGE_FILES_MAX {
            return Ok(page.end(true));
        }
        let Some(facts) = files.get(*at) else { continue };
        let content = match disk.open(&facts.name).and_then(|file| read(&*file, facts.bytes)) {
            Ok(content) => content,
            // Removed meanwhile, as the oldest file of a full trail.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let content = String::from_utf8_lossy(&content);
        let is_whole = match query.is_ascending {
            true => content.lines().all(|line| page.add(line)),
            false => content.lines().rev().all(|line| page.add(line)),
        };
        if !is_whole {
            return Ok(page.end(true));
        }
    }
    Ok(page.end(false))
}

/// Whether a file may have lines of a page. Its lines end where the next file begins.
fn may_have(files: &[FileFacts], at: usize, query: &AuditQuery) -> bool {
    let Some(file) = files.get(at) else { return false };
    let next = files.get(at + 1);
    let is_before = query.since.is_some_and(|since| next.is_some_and(|next| next.began_at < since));
    let is_after = query.until.is_some_and(|until| file.began_at >= until);
    let is_seen = query.after.is_some_and(|after| match query.is_ascending {
        true => next.is_some_and(|next| next.first <= after.saturating_add(1)),
        false => file.first >= after,
    });
    !is_before && !is_after && !is_seen
}
