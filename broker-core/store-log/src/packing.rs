//! Packing of short keys, values and places: most bytes of a number are zeros, and are omitted.
//! Records use it.
//!
//! For every eight bytes, a tag byte has a bit for each non-zero byte, the lowest bit for the first
//! one; the non-zero bytes follow. This is the packing of Cap'n Proto without its runs, which need
//! longer input.

use crate::{Fields, Flaw};

/// Maximum number of bytes to pack. Longer input is mostly text.
pub(super) const PACKED_MAX: usize = 128;
/// Number of bytes per tag.
const WORD: usize = 8;
/// Room for packed bytes, and for a word after them.
const ROOM: usize = PACKED_MAX + PACKED_MAX / WORD + 2 * WORD;

/// Packs the bytes of a buffer from `start` on, unless that makes them longer or they exceed
/// [`PACKED_MAX`]. Returns whether they are packed.
pub(super) fn pack(buffer: &mut Vec<u8>, start: usize) -> bool {
    let raw = buffer.get(start..).unwrap_or_default();
    if raw.len() > PACKED_MAX {
        return false;
    }
    let mut packed = [0; ROOM];
    let mut end = 0;
    for word in raw.chunks(WORD) {
        let Some(place) = packed.get_mut(end..end + 2 * WORD) else { return false };
        end += pack_word(word, place);
    }
    match packed.get(..end) {
        Some(packed) if end < raw.len() => {
            buffer.truncate(start);
            buffer.extend_from_slice(packed);
            true
        }
        _ => false,
    }
}

/// Packs up to eight bytes into twice the space, and returns the packed length.
fn pack_word(word: &[u8], packed: &mut [u8]) -> usize {
    let (mut tag, mut end) = (0, 1);
    // Every byte is written, and kept only if it is not zero, so that there is no branch to
    // predict.
    for (bit, byte) in word.iter().enumerate() {
        if let Some(place) = packed.get_mut(end) {
            *place = *byte;
        }
        let is_there = u8::from(*byte != 0);
        end += usize::from(is_there);
        tag |= is_there << bit;
    }
    if let Some(place) = packed.first_mut() {
        *place = tag;
    }
    end
}

/// Unpacks into `raw`, whose length is the original one.
pub(super) fn unpack(fields: &mut Fields<'_>, raw: &mut [u8]) -> Result<(), Flaw> {
    for word in raw.chunks_mut(WORD) {
        let tag = fields.u8()?;
        if word.len() < WORD && tag >> word.len() != 0 {
            return Err(Flaw::Form);
        }
        let mut there = fields.take(tag.count_ones() as usize)?.iter();
        for (bit, byte) in word.iter_mut().enumerate() {
            let is_there = tag >> bit & 1 == 1;
            *byte = if is_there { there.next().copied().unwrap_or(0) } else { 0 };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_store_testing::Random;

    fn round_trip(bytes: &[u8]) -> usize {
        let mut packed = b"before".to_vec();
        packed.extend_from_slice(bytes);
        let is_packed = pack(&mut packed, 6);
        let (before, packed) = packed.split_at(6);
        assert_eq!(before, b"before");
        if !is_packed {
            assert_eq!(packed, bytes);
            return bytes.len();
        }
        let mut fields = Fields(packed);
        let mut read = vec![7; bytes.len()];
        unpack(&mut fields, &mut read).unwrap();
        assert_eq!(read, bytes);
        assert!(fields.0.is_empty(), "all of it belongs to them");
        packed.len()
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let (length, zeros) = (random.index(PACKED_MAX + 9), random.between(1, 9));
            let byte = |random: &mut Random| {
                if random.below(zeros) == 0 { random.bits().to_le_bytes()[0] } else { 0 }
            };
            let bytes: Vec<u8> = (0..length).map(|_| byte(&mut random)).collect();
            assert!(round_trip(&bytes) <= length);
        }
    }

    #[test]
    fn bytes_are_not_packed_without_gain() {
        assert_eq!(round_trip(&[1; PACKED_MAX]), PACKED_MAX);
        assert_eq!(round_trip(&[]), 0);
        assert_eq!(round_trip(&[0; PACKED_MAX]), PACKED_MAX / 8);
        assert_eq!(round_trip(&[0; PACKED_MAX + 1]), PACKED_MAX + 1);
        // An entity's number, a table, a number.
        let key = [0, 0, 0, 0, 0, 0, 0, 9, 0x10, 0, 0, 0, 0, 0, 1, 2, 3];
        assert_eq!(round_trip(&key), 8);
    }

    #[test]
    fn malformed_packed_bytes_are_refused() {
        let read = |packed: &[u8], length| unpack(&mut Fields(packed), &mut [7; 8][..length]);
        assert_eq!(read(&[0b11, 1], 8), Err(Flaw::Short));
        assert_eq!(read(&[], 1), Err(Flaw::Short));
        assert_eq!(read(&[0b100, 1], 2), Err(Flaw::Form));
        assert_eq!(read(&[0b10, 1], 2), Ok(()));
    }
}
