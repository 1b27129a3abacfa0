//! The bytes of a file: the current ones, the ones at the last sync, and the changes in between.

use std::collections::BTreeMap;

use super::{Fault, SECTOR_BYTES};
use crate::Random;

#[derive(Clone, Default)]
pub(super) struct Inode {
    current: Vec<u8>,
    synced: Vec<u8>,
    /// Changes since the last sync, in order.
    changes: Vec<Change>,
    handle_count: usize,
}

#[derive(Clone)]
enum Change {
    /// Whole sectors after a write; the end of the file may cut the last one.
    Bytes {
        sector: usize,
        bytes: Vec<u8>,
    },
    Length(usize),
}

/// The unsynced part of a file that survives a crash.
#[derive(Clone, Copy)]
enum Luck {
    All,
    Nothing,
    /// All changes up to one, as if they were written back in order.
    UpTo(usize),
    /// Each sector has its newest content with this probability in eighths, or else any older one.
    Eighths(u64),
}

impl Luck {
    fn draw(random: &mut Random, change_count: usize) -> Self {
        match random.below(6) {
            0 => Self::All,
            1 => Self::Nothing,
            2 => Self::UpTo(random.index(change_count + 1)),
            // Rare faults appear if nearly all or nearly nothing survives.
            3 => Self::Eighths(7),
            4 => Self::Eighths(1),
            _ => Self::Eighths(4),
        }
    }

    /// Number of leading changes, of those at `places`, that survive.
    fn kept(self, random: &mut Random, places: &[usize]) -> usize {
        match self {
            Self::All => places.len(),
            Self::Nothing => 0,
            Self::UpTo(end) => places.iter().filter(|place| **place < end).count(),
            Self::Eighths(newest) if random.below(8) < newest => places.len(),
            Self::Eighths(_) => random.index(places.len()),
        }
    }
}

impl Inode {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.clone(), current: bytes, changes: Vec::new(), handle_count: 0 }
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn synced(&self) -> &[u8] {
        &self.synced
    }

    pub(super) const fn open(&mut self) {
        self.handle_count += 1;
    }

    pub(super) const fn close(&mut self) {
        self.handle_count = self.handle_count.saturating_sub(1);
    }

    pub(super) const fn close_all(&mut self) {
        self.handle_count = 0;
    }

    pub(super) const fn is_open(&self) -> bool {
        self.handle_count > 0
    }

    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.current.len().next_multiple_of(SECTOR_BYTES) as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.current.len());
        let found = self.current.get(start..).unwrap_or_default();
        let count = found.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), found.get(..count)) {
            to.copy_from_slice(from);
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        if end > self.current.len() {
            self.current.resize(end, 0);
            self.changes.push(Change::Length(end));
        }
        if let Some(place) = self.current.get_mut(start..end) {
            place.copy_from_slice(bytes);
        }
        self.keep(start, end);
    }

    /// Records a change of the sectors in a range, which a crash may lose.
    fn keep(&mut self, start: usize, end: usize) {
        let sector = start / SECTOR_BYTES;
        let end = end.next_multiple_of(SECTOR_BYTES).min(self.current.len());
        let bytes = self.current.get(sector * SECTOR_BYTES..end).unwrap_or_default().to_vec();
        self.changes.push(Change::Bytes { sector, bytes });
    }

    pub(super) fn set_length(&mut self, length: u64) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length == self.current.len() {
            return;
        }
        let is_shorter = length < self.current.len();
        self.current.resize(length, 0);
        self.changes.push(Change::Length(length));
        if is_shorter && !length.is_multiple_of(SECTOR_BYTES) {
            // A separate write clears the rest of the sector behind the end.
            self.keep(length, length + 1);
        }
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Length(length) => self.synced.resize(length, 0),
                Change::Bytes { sector, bytes } => put(&mut self.synced, sector, &bytes),
            }
        }
        self.synced.resize(self.current.len(), 0);
    }

    /// Loses all or some unsynced changes without a later error.
    pub(super) fn fail_sync(&mut self, fault: Fault, random: &mut Random) {
        match fault {
            Fault::Whole => {}
            Fault::Partly => self.synced = self.survivor(random),
            Fault::Done => {
                self.sync();
            }
        }
        self.changes.clear();
    }

    /// Drops changes that are only in memory and that will never reach the medium.
    pub(super) fn reload(&mut self) {
        let mut found = self.synced.clone();
        for change in &self.changes {
            match change {
                Change::Length(length) => found.resize(*length, 0),
                Change::Bytes { sector, bytes } => put(&mut found, *sector, bytes),
            }
        }
        self.current = found;
    }

    pub(super) fn flip(&mut self, offset: usize, bit: u32) -> bool {
        let mask = 1 << (bit % u8::BITS);
        let Some(byte) = self.current.get_mut(offset) else { return false };
        *byte ^= mask;
        if let Some(byte) = self.synced.get_mut(offset) {
            *byte ^= mask;
        }
        true
    }

    /// The content after a crash.
    ///
    /// Changes of the length survive in their order, up to a random change. Each sector has the
    /// content after a random write, or its old content. A surviving truncation of a sector removes
    /// earlier writes to it; after a lost truncation, later writes to the sector are lost too.
    pub(super) fn survivor(&self, random: &mut Random) -> Vec<u8> {
        let luck = Luck::draw(random, self.changes.len());
        let lengths: Vec<(usize, usize)> = self
            .changes
            .iter()
            .enumerate()
            .filter_map(|(place, change)| match change {
                Change::Length(length) => Some((place, *length)),
                Change::Bytes { .. } => None,
            })
            .collect();
        let places: Vec<usize> = lengths.iter().map(|(place, _)| *place).collect();
        let (happened, missed) = lengths.split_at(luck.kept(random, &places));
        let mut image = self.synced.clone();
        for (_, length) in happened {
            image.resize(*length, 0);
        }
        for (sector, writes) in self.writes_by_sector() {
            let cuts = |length: usize| length <= sector * SECTOR_BYTES;
            let first = happened.iter().rev().find(|(_, length)| cuts(*length));
            let last = missed.iter().find(|(_, length)| cuts(*length));
            let (places, contents): (Vec<usize>, Vec<&[u8]>) = writes
                .into_iter()
                .filter(|(place, _)| first.is_none_or(|(cut, _)| place > cut))
                .filter(|(place, _)| last.is_none_or(|(cut, _)| place < cut))
                .unzip();
            let kept = luck.kept(random, &places);
            if let Some(content) = kept.checked_sub(1).and_then(|index| contents.get(index)) {
                put(&mut image, sector, content);
            }
        }
        image
    }

    fn writes_by_sector(&self) -> BTreeMap<usize, Vec<(usize, &[u8])>> {
        let mut writes: BTreeMap<usize, Vec<(usize, &[u8])>> = BTreeMap::new();
        for (place, change) in self.changes.iter().enumerate() {
            if let Change::Bytes { sector, bytes } = change {
                for (index, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    writes.entry(sector + index).or_default().push((place, bytes));
                }
            }
        }
        writes
    }
}

/// Copies sectors into the image, up to the end of the file.
fn put(image: &mut [u8], sector: usize, bytes: &[u8]) {
    let start = (sector * SECTOR_BYTES).min(image.len());
    let count = bytes.len().min(image.len() - start);
    if let (Some(to), Some(from)) = (image.get_mut(start..start + count), bytes.get(..count)) {
        to.copy_from_slice(from);
    }
}
