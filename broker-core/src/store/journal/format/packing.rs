//! Short keys and values without their zeros: most bytes of a number are zeros.
//!
//! Of every eight bytes, a byte tells by its bits which are not zero, the lowest bit the first of them;
//! those follow. As Cap'n Proto packs its messages, without the runs, which need longer texts than these.

use super::{Fields, Flaw};

/// Longer ones are not packed: they are mostly text.
pub(super) const PACKED_MAX: usize = 128;
/// A byte for every eight comes before them.
const ROOM: usize = PACKED_MAX + PACKED_MAX / 8;

/// Bytes that are put together, and packed.
pub(super) struct Packer {
    raw: [u8; PACKED_MAX],
    raw_length: usize,
    packed: [u8; ROOM],
}

impl Packer {
    pub(super) const fn new() -> Self {
        Self { raw: [0; PACKED_MAX], raw_length: 0, packed: [0; ROOM] }
    }

    /// Adds bytes; all together must not be more than [`PACKED_MAX`].
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let end = self.raw_length + bytes.len();
        if let Some(place) = self.raw.get_mut(self.raw_length..end) {
            place.copy_from_slice(bytes);
            self.raw_length = end;
        }
    }

    /// The bytes as they are.
    pub(super) fn raw(&self) -> &[u8] {
        self.raw.get(..self.raw_length).unwrap_or_default()
    }

    /// The bytes packed; `None` if that is not shorter.
    pub(super) fn packed(&mut self) -> Option<&[u8]> {
        let mut end = 0;
        for word in self.raw.get(..self.raw_length)?.chunks(8) {
            let tag_at = end;
            let mut tag = 0;
            end += 1;
            // Every byte is written, and counts only if it is not zero: nothing to be guessed.
            for (bit, byte) in word.iter().enumerate() {
                let is_there = u8::from(*byte != 0);
                *self.packed.get_mut(end)? = *byte;
                end += usize::from(is_there);
                tag |= is_there << bit;
            }
            *self.packed.get_mut(tag_at)? = tag;
        }
        self.packed.get(..end).filter(|packed| packed.len() < self.raw_length)
    }
}

/// Reads bytes that were packed, and appends them as they were.
pub(super) fn unpack(
    fields: &mut Fields<'_>,
    raw_length: usize,
    raw: &mut Vec<u8>,
) -> Result<(), Flaw> {
    let mut left = raw_length;
    while left > 0 {
        let count = left.min(8);
        let tag = fields.u8()?;
        if count < 8 && tag >> count != 0 {
            return Err(Flaw::Form);
        }
        let mut there = fields.take(tag.count_ones() as usize)?.iter();
        for bit in 0..count {
            let is_there = tag >> bit & 1 == 1;
            raw.push(if is_there { there.next().copied().unwrap_or(0) } else { 0 });
        }
        left -= count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn round_trip(bytes: &[u8]) -> usize {
        let mut packer = Packer::new();
        packer.add(bytes);
        assert_eq!(packer.raw(), bytes);
        let Some(packed) = packer.packed().map(<[u8]>::to_vec) else { return bytes.len() };
        let mut fields = Fields(&packed);
        let mut read = Vec::new();
        unpack(&mut fields, bytes.len(), &mut read).unwrap();
        assert_eq!(read, bytes);
        assert!(fields.0.is_empty(), "all of it belongs to them");
        packed.len()
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let (length, zeros) = (random.index(PACKED_MAX + 1), random.between(1, 9));
            let byte = |random: &mut Random| {
                if random.below(zeros) == 0 { random.bits().to_le_bytes()[0] } else { 0 }
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte(&mut random)).collect();
            assert!(round_trip(&bytes) <= length);
        }
    }

    #[test]
    fn what_would_not_be_shorter_is_not_packed() {
        assert_eq!(round_trip(&[1; PACKED_MAX]), PACKED_MAX);
        assert_eq!(round_trip(&[]), 0);
        assert_eq!(round_trip(&[0; PACKED_MAX]), PACKED_MAX / 8);
        // The number of an entity, a table, a number.
        let key = [0, 0, 0, 0, 0, 0, 0, 9, 0x10, 0, 0, 0, 0, 0, 1, 2, 3];
        assert_eq!(round_trip(&key), 8);
    }

    #[test]
    fn what_nobody_packed_is_refused() {
        let read = |packed: &[u8], length| unpack(&mut Fields(packed), length, &mut Vec::new());
        assert_eq!(read(&[0b11, 1], 8), Err(Flaw::Short));
        assert_eq!(read(&[], 1), Err(Flaw::Short));
        assert_eq!(read(&[0b100, 1], 2), Err(Flaw::Form));
        assert_eq!(read(&[0b10, 1], 2), Ok(()));
    }
}
