//! Table of all slots of an entity, by sequence number. Queues and topics keep their messages in
//! it. Numbers only grow, and a slot of a removed message is never used again.

use std::collections::BTreeMap;

use crate::ids::SequenceNumber;

pub use peeklock_model::change::slot::{LockIndex, Mark, Marks, Slot, SlotState, overlay_bytes};

/// Capacity of the first chunk in slots; doubles from chunk to chunk up to [`CHUNK_SLOTS_MAX`].
const CHUNK_SLOTS_MIN: usize = 4;
const CHUNK_SLOTS_MAX: usize = 1_024;
/// Maximum capacity of the chunk that an empty table keeps.
const IDLE_SLOTS_MAX: usize = 64;

/// All slots of an entity by sequence number, in chunks of consecutive numbers.
///
/// ```text
///  [ 1 . 3 4 ]  [ 5 6 7 8 9 . . 12 ]  [ 13 14 ...        chunk full: a new one, twice as large
///                                                        chunk a quarter full: kept as a short list
///                                                        chunk empty: freed
/// ```
#[derive(Debug, Default)]
pub struct SlotTable {
    chunks: BTreeMap<u64, Chunk>,
    /// The chunk that takes new numbers, separate from the full ones.
    last: Option<Chunk>,
    count: usize,
}

#[derive(Debug)]
struct Chunk {
    first: u64,
    live: usize,
    capacity: usize,
    slots: Slots,
}

#[derive(Debug)]
enum Slots {
    Dense(Vec<Option<Slot>>),
    /// Ascending by offset.
    Sparse(Vec<(u16, Slot)>),
}

impl Chunk {
    fn new(first: u64, capacity: usize) -> Self {
        Self { first, live: 0, capacity, slots: Slots::Dense(Vec::with_capacity(capacity)) }
    }

    fn get(&self, sequence: u64) -> Option<&Slot> {
        let offset = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        match &self.slots {
            Slots::Dense(slots) => slots.get(offset)?.as_ref(),
            Slots::Sparse(slots) => {
                let place =
                    slots.binary_search_by_key(&offset, |(offset, _)| usize::from(*offset)).ok()?;
                slots.get(place).map(|(_, slot)| slot)
            }
        }
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut Slot> {
        let offset = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        match &mut self.slots {
            Slots::Dense(slots) => slots.get_mut(offset)?.as_mut(),
            Slots::Sparse(slots) => {
                let place =
                    slots.binary_search_by_key(&offset, |(offset, _)| usize::from(*offset)).ok()?;
                slots.get_mut(place).map(|(_, slot)| slot)
            }
        }
    }

    fn remove(&mut self, sequence: u64) -> Option<Slot> {
        let offset = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let removed = match &mut self.slots {
            Slots::Dense(slots) => slots.get_mut(offset)?.take()?,
            Slots::Sparse(slots) => {
                let place =
                    slots.binary_search_by_key(&offset, |(offset, _)| usize::from(*offset)).ok()?;
                slots.remove(place).1
            }
        };
        self.live -= 1;
        Some(removed)
    }

    /// The first number after all numbers that it may contain.
    const fn end(&self) -> u64 {
        match &self.slots {
            Slots::Dense(slots) => self.first + slots.len() as u64,
            Slots::Sparse(_) => self.first + self.capacity as u64,
        }
    }

    /// Iterates over its numbers, in ascending order.
    fn numbers(&self) -> Box<dyn DoubleEndedIterator<Item = SequenceNumber> + '_> {
        let number = |offset: u64| SequenceNumber(self.first + offset);
        match &self.slots {
            Slots::Dense(slots) => Box::new((0..slots.len()).filter_map(move |offset| {
                slots.get(offset)?.as_ref().map(|_| number(offset as u64))
            })),
            Slots::Sparse(slots) => {
                Box::new(slots.iter().map(move |(offset, _)| number(u64::from(*offset))))
            }
        }
    }

    /// Stores a slot at the place of its number, if the chunk has that place; returns whether it
    /// did.
    fn put(&mut self, sequence: u64, slot: Slot) -> bool {
        let Some(offset) = sequence.checked_sub(self.first).and_then(|it| usize::try_from(it).ok())
        else {
            return false;
        };
        if offset >= self.capacity {
            return false;
        }
        match &mut self.slots {
            Slots::Dense(slots) => {
                if offset >= slots.len() {
                    slots.resize(offset + 1, None);
                }
                if let Some(place) = slots.get_mut(offset) {
                    *place = Some(slot);
                }
            }
            Slots::Sparse(slots) => {
                let place = slots.partition_point(|(other, _)| usize::from(*other) < offset);
                let Ok(offset) = u16::try_from(offset) else { return false };
                slots.insert(place, (offset, slot));
            }
        }
        self.live += 1;
        true
    }

    /// Turns a chunk with few slots left into a short list.
    fn thin_out(&mut self) {
        match &mut self.slots {
            Slots::Dense(slots) if self.live * 4 <= slots.capacity() => {
                let mut left = Vec::with_capacity(self.live);
                for (offset, slot) in slots.iter().enumerate() {
                    if let (Some(slot), Ok(offset)) = (slot, u16::try_from(offset)) {
                        left.push((offset, *slot));
                    }
                }
                self.slots = Slots::Sparse(left);
            }
            Slots::Sparse(slots) if slots.len() * 2 < slots.capacity() => slots.shrink_to_fit(),
            Slots::Dense(_) | Slots::Sparse(_) => {}
        }
    }
}

impl SlotTable {
    /// Number of messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the table is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a slot under an unused number. It is higher than all others, unless it was reserved
    /// before (TXN-13).
    pub fn insert(&mut self, sequence: SequenceNumber, slot: Slot) {
        if self.last.as_ref().is_none_or(|chunk| sequence.0 >= chunk.end())
            && self.chunks.last_key_value().is_none_or(|(_, chunk)| sequence.0 >= chunk.end())
        {
            return self.push(sequence, slot);
        }
        let number = sequence.0;
        let last = self.last.as_mut().filter(|chunk| number >= chunk.first);
        let near = match last {
            Some(chunk) => Some(chunk),
            None => self.chunks.range_mut(..=number).next_back().map(|(_, chunk)| chunk),
        };
        let taken = near.is_some_and(|chunk| chunk.put(number, slot));
        if !taken {
            // No chunk covers the number.
            let alone = Slots::Sparse(vec![(0, slot)]);
            self.chunks.insert(number, Chunk { first: number, live: 1, capacity: 1, slots: alone });
        }
        self.count += 1;
    }

    /// Adds a slot under a number above all earlier numbers.
    fn push(&mut self, sequence: SequenceNumber, slot: Slot) {
        let sequence = sequence.0;
        let (capacity, takes) = match &self.last {
            Some(chunk) => {
                let offset = sequence.saturating_sub(chunk.first);
                ((chunk.capacity * 2).min(CHUNK_SLOTS_MAX), offset < chunk.capacity as u64)
            }
            None => (CHUNK_SLOTS_MIN, false),
        };
        if !takes {
            self.seal_last();
            self.last = Some(Chunk::new(sequence, capacity));
        }
        if let Some(chunk) = &mut self.last
            && let Slots::Dense(slots) = &mut chunk.slots
        {
            let offset = usize::try_from(sequence - chunk.first).unwrap_or(0);
            slots.resize(offset, None);
            slots.push(Some(slot));
            chunk.live += 1;
            self.count += 1;
        }
    }

    fn seal_last(&mut self) {
        if let Some(mut chunk) = self.last.take()
            && chunk.live > 0
        {
            chunk.thin_out();
            self.chunks.insert(chunk.first, chunk);
        }
    }

    /// The slot of a message.
    #[must_use]
    pub fn get(&self, sequence: SequenceNumber) -> Option<&Slot> {
        #[cfg(test)]
        looks::count();
        let number = sequence.0;
        if let Some(chunk) = &self.last
            && number >= chunk.first
        {
            return chunk.get(number);
        }
        self.chunks.range(..=number).next_back()?.1.get(number)
    }

    /// The mutable slot of a message.
    pub fn get_mut(&mut self, sequence: SequenceNumber) -> Option<&mut Slot> {
        #[cfg(test)]
        looks::count();
        let number = sequence.0;
        if let Some(chunk) = &mut self.last
            && number >= chunk.first
        {
            return chunk.get_mut(number);
        }
        self.chunks.range_mut(..=number).next_back()?.1.get_mut(number)
    }

    /// Removes and returns the slot of a message.
    pub fn remove(&mut self, sequence: SequenceNumber) -> Option<Slot> {
        let number = sequence.0;
        if let Some(chunk) = &mut self.last
            && number >= chunk.first
        {
            let removed = chunk.remove(number)?;
            self.count -= 1;
            if chunk.live == 0 {
                self.restart_last();
            }
            return Some(removed);
        }
        let (_, chunk) = self.chunks.range_mut(..=number).next_back()?;
        let removed = chunk.remove(number)?;
        self.count -= 1;
        if chunk.live == 0 {
            let first = chunk.first;
            self.chunks.remove(&first);
        } else {
            chunk.thin_out();
        }
        Some(removed)
    }

    /// Prepares an emptied last chunk for the next numbers, or frees it if it is large, so that an
    /// idle entity needs little memory.
    fn restart_last(&mut self) {
        match &mut self.last {
            Some(Chunk { first, capacity, slots: Slots::Dense(slots), .. })
                if *capacity <= IDLE_SLOTS_MAX =>
            {
                *first += slots.len() as u64;
                slots.clear();
            }
            _ => self.last = None,
        }
    }

    /// Iterates over the numbers from `from` on, in ascending order.
    pub fn numbers_from(&self, from: SequenceNumber) -> impl Iterator<Item = SequenceNumber> {
        let before = self.chunks.range(..=from.0).next_back();
        let first = before.map_or(from.0, |(first, _)| *first);
        let chunks = self.chunks.range(first..).map(|(_, chunk)| chunk).chain(&self.last);
        chunks.flat_map(Chunk::numbers).skip_while(move |number| *number < from)
    }

    /// Iterates over the numbers from `from` down, in descending order.
    pub fn numbers_back_from(&self, from: SequenceNumber) -> impl Iterator<Item = SequenceNumber> {
        let chunks = self.chunks.range(..=from.0).rev().map(|(_, chunk)| chunk);
        let numbers = self.last.iter().chain(chunks).flat_map(|chunk| chunk.numbers().rev());
        numbers.skip_while(move |number| *number > from)
    }

    /// Iterates over all messages, in ascending order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SequenceNumber, &Slot)> {
        self.chunks.values().chain(&self.last).flat_map(|chunk| {
            let (dense, sparse) = match &chunk.slots {
                Slots::Dense(slots) => (Some(slots), None),
                Slots::Sparse(slots) => (None, Some(slots)),
            };
            let dense = dense.into_iter().flatten().enumerate().filter_map(|(offset, slot)| {
                slot.as_ref().map(|slot| (SequenceNumber(chunk.first + offset as u64), slot))
            });
            let sparse = sparse
                .into_iter()
                .flatten()
                .map(|(offset, slot)| (SequenceNumber(chunk.first + u64::from(*offset)), slot));
            #[cfg(test)]
            let sparse = sparse.inspect(|_| looks::count());
            #[cfg(test)]
            let dense = dense.inspect(|_| looks::count());
            dense.chain(sparse)
        })
    }
}

/// Number of slots, and of exits to named destinations, that this thread has examined: a measure of
/// the cost of a step without a clock.
#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;

    thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

    pub(crate) fn count() {
        COUNT.with(|count| count.set(count.get() + 1));
    }

    /// Returns the number since the start of the thread.
    pub(crate) fn all() -> u64 {
        COUNT.with(Cell::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn slot(count: u32) -> Slot {
        Slot { delivery_count: count, ..Slot::arriving(Timestamp::NONE, 1, 0) }
    }

    /// Compares the table with a plain map while numbers are added with gaps, sometimes late, and
    /// removed at random.
    #[test]
    fn slot_table_agrees_with_a_plain_map() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut table = SlotTable::default();
        let mut plain = BTreeMap::new();
        let mut next = 1u64;
        for round in 0..40_000u32 {
            next += if random(50) == 0 { 1 + random(3_000) } else { 1 };
            table.insert(SequenceNumber(next), slot(round));
            plain.insert(next, round);
            // A number that was reserved before.
            let late = 1 + random(next);
            if random(4) == 0 && !plain.contains_key(&late) {
                table.insert(SequenceNumber(late), slot(round));
                plain.insert(late, round);
            }
            for _ in 0..random(3) {
                let number = random(next + 1);
                assert_eq!(
                    table.remove(SequenceNumber(number)).map(|slot| slot.delivery_count),
                    plain.remove(&number)
                );
            }
            let number = random(next + 2);
            assert_eq!(
                table.get(SequenceNumber(number)).map(|slot| slot.delivery_count),
                plain.get(&number).copied()
            );
            if let Some(found) = table.get_mut(SequenceNumber(number)) {
                found.delivery_count += 1;
                *plain.entry(number).or_default() += 1;
            }
            if round % 97 == 0 {
                let ascending = table.numbers_from(SequenceNumber(number)).map(|one| one.0);
                assert!(ascending.eq(plain.range(number..).map(|(number, _)| *number)));
                let descending = table.numbers_back_from(SequenceNumber(number)).map(|one| one.0);
                assert!(descending.eq(plain.range(..=number).rev().map(|(number, _)| *number)));
            }
            assert_eq!(table.len(), plain.len());
        }
        assert!(
            table
                .iter()
                .map(|(sequence, slot)| (sequence.0, slot.delivery_count))
                .eq(plain.iter().map(|(number, count)| (*number, *count)))
        );
        let numbers: Vec<u64> = plain.keys().copied().collect();
        for number in numbers {
            assert!(table.remove(SequenceNumber(number)).is_some());
        }
        assert!(table.is_empty() && table.chunks.is_empty());
    }
}
