//! A ring of stations in chunks, each for an entity. The chunk that was written longest ago makes
//! room first, or the oldest of its own entity if that has its share.
//!
//! ```text
//!  order of the last write:   [ A ] ─ [ B ] ─ [ A ] ─ [ C ] ─ [ B ]
//!  chunks of entity A:          A ─────────────► A
//! ```

use super::entry::Entry;
use super::query::StationKind;
use crate::ids::EntityId;

/// Number of stations in a chunk.
pub(super) const CHUNK_ENTRIES: usize = 30;
/// Memory for a chunk: its stations in an allocation of 1 KiB, and its places in all tables, of
/// which an entity of its own takes the most.
pub(super) const CHUNK_BYTES: u64 = 1_536;
/// An entity has at most one in this many chunks (CON-30).
pub(super) const SHARES: usize = 8;

/// Index of a chunk in its ring.
pub(super) type ChunkIndex = u32;

/// Stations of an entity, in their order.
#[derive(Debug)]
pub(super) struct Chunk {
    entity: EntityId,
    earlier: Option<ChunkIndex>,
    later: Option<ChunkIndex>,
    entries: Vec<Entry>,
}

const _: () = assert!(size_of::<Entry>() * CHUNK_ENTRIES <= 1_024);

/// Chunks within a bound, in the order of their last writes.
#[derive(Debug)]
pub(super) struct Ring {
    chunks: Vec<Chunk>,
    chunk_max: usize,
    first: Option<ChunkIndex>,
    last: Option<ChunkIndex>,
}

impl Chunk {
    const fn new(entity: EntityId) -> Self {
        Self { entity, earlier: None, later: None, entries: Vec::new() }
    }

    const fn is_full(&self) -> bool {
        self.entries.len() >= CHUNK_ENTRIES
    }

    /// Returns the stations if they are of this entity.
    pub(super) fn entries_of(&self, entity: EntityId) -> &[Entry] {
        if self.entity == entity { &self.entries } else { &[] }
    }

    /// Its entity, and all its stations.
    pub(super) fn all(&self) -> (EntityId, &[Entry]) {
        (self.entity, &self.entries)
    }

    /// Adds a station. A renewal right after another one of its message only counts.
    fn add(&mut self, entry: Entry) {
        if entry.kind == StationKind::Renewed {
            let before = self.entries.iter_mut().rev().find(|it| it.sequence == entry.sequence);
            if let Some(before) = before.filter(|it| it.continues_with(&entry)) {
                before.count = before.count.saturating_add(entry.count);
                before.at = entry.at;
                return;
            }
        }
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(CHUNK_ENTRIES);
        }
        self.entries.push(entry);
    }
}

impl Ring {
    /// Creates a ring of at most this many bytes; at least one chunk for each share.
    pub(super) fn new(bytes_max: u64) -> Self {
        let chunk_max = usize::try_from(bytes_max / CHUNK_BYTES).unwrap_or(usize::MAX);
        // An index has 32 bits.
        let chunk_max = chunk_max.clamp(SHARES, 1 << 30);
        Self { chunks: Vec::new(), chunk_max, first: None, last: None }
    }

    /// Number of chunks.
    pub(super) const fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Returns a chunk.
    pub(super) fn chunk(&self, index: ChunkIndex) -> Option<&Chunk> {
        self.chunks.get(place(index))
    }

    /// Whether an entity with this last chunk needs a further one.
    pub(super) fn is_full(&self, last: Option<ChunkIndex>) -> bool {
        last.and_then(|last| self.chunk(last)).is_none_or(Chunk::is_full)
    }

    /// Returns the chunk that makes room for a further one of an entity with `count` chunks, the
    /// first of which is `oldest`; none if there is room.
    pub(super) fn victim(&self, oldest: Option<ChunkIndex>, count: usize) -> Option<ChunkIndex> {
        if count >= self.chunk_max / SHARES {
            return oldest;
        }
        self.first.filter(|_| self.chunks.len() >= self.chunk_max)
    }

    /// Empties a chunk; returns its entity and its stations.
    pub(super) fn take(&mut self, index: ChunkIndex) -> (EntityId, Vec<Entry>) {
        self.unlink(index);
        let Some(chunk) = self.chunks.get_mut(place(index)) else {
            return (EntityId(0), Vec::new());
        };
        let Chunk { entity, entries, .. } = std::mem::replace(chunk, Chunk::new(EntityId(0)));
        (entity, entries)
    }

    /// Begins a chunk of an entity, in a place that was emptied or in a new one. `room` is the
    /// memory of the stations that were there.
    pub(super) fn begin(
        &mut self,
        emptied: Option<ChunkIndex>,
        entity: EntityId,
        mut room: Vec<Entry>,
    ) -> ChunkIndex {
        let index = emptied.unwrap_or_else(|| {
            self.chunks.push(Chunk::new(entity));
            u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(chunk) = self.chunks.get_mut(place(index)) {
            room.clear();
            *chunk = Chunk { entries: room, ..Chunk::new(entity) };
        }
        self.link(index);
        index
    }

    /// Adds stations to a chunk, as many as there is room for; returns their number.
    pub(super) fn add(
        &mut self,
        index: ChunkIndex,
        entries: impl IntoIterator<Item = Entry>,
    ) -> usize {
        let Some(chunk) = self.chunks.get_mut(place(index)) else { return 0 };
        let mut entries = entries.into_iter();
        let mut count = 0;
        while !chunk.is_full()
            && let Some(entry) = entries.next()
        {
            chunk.add(entry);
            count += 1;
        }
        if self.last != Some(index) {
            self.unlink(index);
            self.link(index);
        }
        count
    }

    /// Links a chunk at the end of the order.
    fn link(&mut self, index: ChunkIndex) {
        let before = self.last.replace(index);
        if let Some(chunk) = self.chunks.get_mut(place(index)) {
            (chunk.earlier, chunk.later) = (before, None);
        }
        match before.and_then(|before| self.chunks.get_mut(place(before))) {
            Some(before) => before.later = Some(index),
            None => self.first = Some(index),
        }
    }

    fn unlink(&mut self, index: ChunkIndex) {
        let Some(Chunk { earlier, later, .. }) = self.chunk(index) else { return };
        let (earlier, later) = (*earlier, *later);
        match earlier.and_then(|earlier| self.chunks.get_mut(place(earlier))) {
            Some(chunk) => chunk.later = later,
            None => self.first = later,
        }
        match later.and_then(|later| self.chunks.get_mut(place(later))) {
            Some(chunk) => chunk.earlier = earlier,
            None => self.last = earlier,
        }
    }
}

fn place(index: ChunkIndex) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
