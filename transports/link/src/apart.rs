//! Work beside the connection: what takes more than one command. Few at a time, the others in order.

use std::collections::VecDeque;

/// Pieces of work that go on at once.
pub const WORKING_MAX: usize = 32;
/// Those of them that go on until something long is made, such as a list.
pub const LONG_MAX: usize = 4;

/// How much a piece of work may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// One thing, such as a description.
    Short,
    /// Many.
    Long,
}

/// The work of one connection. What waits was paid for as a command; what it answers is counted when
/// it is here, and nothing more is begun while the connection has no room for answers.
pub struct Apart<W> {
    waiting: VecDeque<(Size, W)>,
    short: usize,
    long: usize,
}

impl<W> Default for Apart<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), short: 0, long: 0 }
    }
}

impl<W> Apart<W> {
    /// Adds a piece.
    pub fn push(&mut self, size: Size, work: W) {
        self.waiting.push_back((size, work));
    }

    /// The next piece to begin now, if there is room for its answer and few are under way.
    pub fn begin(&mut self, has_room: bool) -> Option<(Size, W)> {
        let (size, _) = self.waiting.front()?;
        let is_full = match size {
            Size::Short => false,
            Size::Long => self.long >= LONG_MAX,
        };
        if !has_room || is_full || self.short + self.long >= WORKING_MAX {
            return None;
        }
        let (size, work) = self.waiting.pop_front()?;
        *self.working(size) += 1;
        Some((size, work))
    }

    /// Whether any is under way, or waits to be.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.short + self.long > 0 || !self.waiting.is_empty()
    }

    /// A piece is done.
    pub fn done(&mut self, size: Size) {
        let working = self.working(size);
        *working = working.saturating_sub(1);
    }

    /// Forgets what was not begun.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn working(&mut self, size: Size) -> &mut usize {
        match size {
            Size::Short => &mut self.short,
            Size::Long => &mut self.long,
        }
    }
}
