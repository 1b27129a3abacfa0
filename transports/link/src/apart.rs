//! Work beside the connection: what takes more than one command. Few at a time, the others in order.

use std::collections::VecDeque;

/// Pieces of work that go on at once.
pub const WORKING_MAX: usize = 4;

/// The work of one connection. What waits was paid for as a command; what it answers is counted when
/// it is here, and nothing more is begun while the connection has no room for answers.
pub struct Apart<W> {
    waiting: VecDeque<W>,
    working: usize,
}

impl<W> Default for Apart<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), working: 0 }
    }
}

impl<W> Apart<W> {
    /// Adds a piece.
    pub fn push(&mut self, work: W) {
        self.waiting.push_back(work);
    }

    /// A piece to begin now, if there is room for its answer and few are under way.
    pub fn begin(&mut self, has_room: bool) -> Option<W> {
        if !has_room || self.working >= WORKING_MAX {
            return None;
        }
        let work = self.waiting.pop_front()?;
        self.working += 1;
        Some(work)
    }

    /// A piece is done.
    pub const fn done(&mut self) {
        self.working = self.working.saturating_sub(1);
    }

    /// Forgets what was not begun.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}
