//! Rows of a resolution, oldest first, in packed blocks.
//!
//! A block has consecutive slots; a gap begins a new block. Quiet rows take no bytes: a run of
//! quiet rows is one number. So the memory of a series follows its activity, not its length.

use std::collections::VecDeque;

use super::row::{GAUGE_COUNT, GaugeValues, Row, read_number, write_number};

/// Bytes after which a block is closed.
const BLOCK_BYTES: usize = 1 << 10;
/// Mask of a run of quiet rows, before its length.
const QUIET: u32 = 0;

/// Rows of a resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ring {
    /// Length of a slot in seconds.
    seconds: u64,
    blocks: VecDeque<Block>,
    /// Gauges of the last row.
    last: GaugeValues,
    /// Whether the last block takes further rows.
    is_open: bool,
}

/// Consecutive rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    /// First slot: seconds since 1970 divided by the length of a slot.
    first: u64,
    count: u64,
    /// Quiet rows at the end, which `bytes` lacks.
    quiet: u64,
    bytes: Vec<u8>,
}

impl Block {
    const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    fn flush(&mut self) {
        if self.quiet > 0 {
            write_number(QUIET.into(), &mut self.bytes);
            write_number(self.quiet, &mut self.bytes);
            self.quiet = 0;
        }
    }
}

impl Ring {
    pub(super) const fn new(seconds: u64) -> Self {
        Self { seconds, blocks: VecDeque::new(), last: [0; GAUGE_COUNT], is_open: false }
    }

    /// Length of a slot in seconds.
    pub(super) const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Appends a row `count` times, from a slot on, and drops rows older than `keep` slots. Slots
    /// that the series already has stay as they are.
    pub(super) fn push(&mut self, slot: u64, count: u64, row: &Row, keep: u64) {
        let end = slot.saturating_add(count);
        let slot = self.blocks.back().map_or(slot, |block| block.end().max(slot));
        let count = end.saturating_sub(slot);
        if count == 0 {
            return;
        }
        let has_place = |block: &Block| block.end() == slot && block.bytes.len() < BLOCK_BYTES;
        if !(self.is_open && self.blocks.back().is_some_and(has_place)) {
            if let Some(block) = self.blocks.back_mut() {
                block.bytes.shrink_to_fit();
            }
            (self.last, self.is_open) = ([0; GAUGE_COUNT], true);
            self.blocks.push_back(Block { first: slot, count: 0, quiet: 0, bytes: Vec::new() });
        }
        let Some(block) = self.blocks.back_mut() else { return };
        let mut repeated = count;
        if !row.is_quiet(&self.last) {
            block.flush();
            row.write(&self.last, &mut block.bytes);
            self.last = row.gauges;
            repeated = repeated.saturating_sub(1);
        }
        block.quiet += repeated;
        block.count += count;
        self.keep_from(end.saturating_sub(keep));
    }

    /// Drops the rows from a slot on, and with them those older than `keep` slots.
    pub(super) fn keep_until(&mut self, slot: u64, keep: u64) {
        if self.blocks.back().is_some_and(|block| block.end() > slot) {
            let mut ring = Self::new(self.seconds);
            self.read(slot.saturating_sub(keep), slot, |slot, row| ring.push(slot, 1, row, keep));
            *self = ring;
        }
    }

    /// Drops blocks that end before a slot.
    pub(super) fn keep_from(&mut self, oldest: u64) {
        while self.blocks.front().is_some_and(|block| block.end() <= oldest) {
            self.blocks.pop_front();
        }
    }

    /// Calls `visit` with each known row of the slots `from..until`, in order.
    pub(super) fn read(&self, from: u64, until: u64, mut visit: impl FnMut(u64, &Row)) {
        for block in self.blocks.iter().filter(|block| block.end() > from && block.first < until) {
            let (mut slot, mut gauges) = (block.first, [0; GAUGE_COUNT]);
            let mut repeat = |slot: &mut u64, count: u64, row: &Row| {
                let end = slot.saturating_add(count);
                for slot in (*slot).max(from)..end.min(until) {
                    visit(slot, row);
                }
                *slot = end;
            };
            let mut rest = &*block.bytes;
            while let Some(mask) = read_number(&mut rest).and_then(|mask| u32::try_from(mask).ok())
            {
                if mask == QUIET {
                    let Some(count) = read_number(&mut rest) else { break };
                    repeat(&mut slot, count, &Row { gauges, ..Row::default() });
                } else {
                    let Some(row) = Row::read(mask, &gauges, &mut rest) else { break };
                    gauges = row.gauges;
                    repeat(&mut slot, 1, &row);
                }
            }
            repeat(&mut slot, block.quiet, &Row { gauges, ..Row::default() });
        }
    }

    /// Drops all rows. The next row begins a new block.
    pub(super) fn clear(&mut self) {
        self.blocks = VecDeque::new();
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Block>();
        let packed: usize = self.blocks.iter().map(|block| block.bytes.capacity()).sum();
        (blocks + packed) as u64
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_number(self.blocks.len() as u64, out);
        for block in &self.blocks {
            let mut whole = block.clone();
            whole.flush();
            write_number(whole.first, out);
            write_number(whole.count, out);
            write_number(whole.bytes.len() as u64, out);
            out.extend_from_slice(&whole.bytes);
        }
    }

    /// Reads the stored form; none if it is damaged. The next row begins a new block.
    pub(super) fn parse(seconds: u64, bytes: &mut &[u8]) -> Option<Self> {
        let mut ring = Self::new(seconds);
        for _ in 0..read_number(bytes)? {
            let (first, count) = (read_number(bytes)?, read_number(bytes)?);
            let length = usize::try_from(read_number(bytes)?).ok()?;
            let (packed, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            if ring.blocks.back().is_some_and(|block| block.end() > first) {
                return None;
            }
            ring.blocks.push_back(Block { first, count, quiet: 0, bytes: packed.to_vec() });
        }
        Some(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, active: u64) -> Row {
        let mut row = Row::default();
        (row.counts[0], row.gauges[0]) = (count, active);
        row
    }

    fn known(ring: &Ring, from: u64, until: u64) -> Vec<(u64, u64, u64)> {
        let mut rows = Vec::new();
        ring.read(from, until, |slot, row| rows.push((slot, row.counts[0], row.gauges[0])));
        rows
    }

    /// CON-32: rows come back with their slots; a gap stays a gap, and old rows are dropped.
    #[test]
    fn ring_returns_its_rows_and_no_others() {
        let mut ring = Ring::new(1);
        ring.push(10, 3, &row(0, 5), 100);
        ring.push(13, 1, &row(2, 7), 100);
        ring.push(14, 2, &row(0, 7), 100);
        ring.push(20, 1, &row(0, 0), 100);
        let all =
            [(10, 0, 5), (11, 0, 5), (12, 0, 5), (13, 2, 7), (14, 0, 7), (15, 0, 7), (20, 0, 0)];
        assert_eq!(known(&ring, 0, 100), all);
        assert_eq!(known(&ring, 12, 15), all[2..5]);
        // A slot is never written twice.
        ring.push(15, 1, &row(9, 9), 100);
        assert_eq!(known(&ring, 0, 100), all);
        let mut stored = Vec::new();
        ring.write(&mut stored);
        let read = Ring::parse(1, &mut &*stored).unwrap();
        assert_eq!(known(&read, 0, 100), all);
        assert_eq!(Ring::parse(1, &mut &stored[..stored.len() - 1]), None);
        ring.push(115, 1, &row(1, 0), 100);
        assert_eq!(known(&ring, 0, 1_000), [(20, 0, 0), (115, 1, 0)]);
        ring.clear();
        assert_eq!(ring.bytes(), 0);
    }

    /// CON-32: a run that begins in known slots continues after them.
    #[test]
    fn run_continues_after_known_slots() {
        let mut ring = Ring::new(1);
        ring.push(10, 2, &row(1, 5), 100);
        ring.push(8, 6, &row(0, 7), 100);
        assert_eq!(known(&ring, 0, 100), [(10, 1, 5), (11, 0, 5), (12, 0, 7), (13, 0, 7)]);
        ring.keep_until(13, 100);
        ring.push(13, 1, &row(3, 8), 100);
        assert_eq!(known(&ring, 0, 100), [(10, 1, 5), (11, 0, 5), (12, 0, 7), (13, 3, 8)]);
    }

    /// CON-32: a quiet entity takes no bytes for its rows; a busy one under 8 bytes here.
    #[test]
    fn quiet_rows_take_no_memory() {
        let mut ring = Ring::new(1);
        for slot in 0..3_600 {
            ring.push(slot, 1, &row(0, 3), 3_600);
        }
        assert!(ring.bytes() < 400, "{}", ring.bytes());
        for slot in 3_600..7_200 {
            ring.push(slot, 1, &row(slot % 7, slot % 9), 3_600);
        }
        assert_eq!(known(&ring, 3_600, 7_200).len(), 3_600);
        assert!(ring.bytes() < 8 * 3_600, "{}", ring.bytes());
    }
}
