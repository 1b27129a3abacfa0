//! The checksum of bytes of which a part has a known checksum, so that every byte is read only
//! once. The writer of frames uses it.
//!
//! A content has a checksum, and is in a frame that has one. CRC-32C is linear: if the same bytes
//! follow two checksums, the new difference depends only on the old difference and on the number of
//! bytes, not on the bytes. So the checksum of the frame can be computed past a content from the
//! checksum of the content.

use std::sync::LazyLock;

use crc32c::crc32c_append;

/// Minimum length of a part. Reading a shorter part again is as fast.
pub(in super::super) const SUMMED_BYTES_MIN: usize = 512;
/// Number of tables, one for each power of two bytes. Longer parts are read again.
const POWERS: usize = 20;

/// A part of a buffer with a known checksum of the same seed. The four bytes before it are the
/// checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct SummedPart {
    pub(in super::super) at: usize,
    pub(in super::super) length: usize,
}

/// The difference of checksums after a number of bytes, for each value of its four bytes.
type Table = [[u32; 256]; 4];

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(tables);

/// Continues a checksum over `bytes`, whose parts have checksums under `seed`. The parts must be in
/// order and must not overlap.
pub(super) fn append(mut checksum: u32, bytes: &[u8], parts: &[SummedPart], seed: u32) -> u32 {
    let mut done = 0;
    for part in parts.iter().filter(|part| part.length >= SUMMED_BYTES_MIN) {
        let end = part.at + part.length;
        let own = part.at.checked_sub(4).and_then(|from| bytes.get(from..part.at));
        let (Some(own), Some(between)) =
            (own.and_then(|own| own.try_into().ok()), bytes.get(done..part.at))
        else {
            continue;
        };
        if end > bytes.len() || part.length >> POWERS > 0 {
            continue;
        }
        checksum = crc32c_append(checksum, between);
        checksum = u32::from_le_bytes(own) ^ skip(checksum ^ seed, part.length);
        done = end;
    }
    crc32c_append(checksum, bytes.get(done..).unwrap_or_default())
}

/// The difference of checksums after `bytes` more bytes.
fn skip(mut difference: u32, bytes: usize) -> u32 {
    for (power, table) in TABLES.iter().enumerate() {
        if bytes >> power & 1 == 1 {
            difference = advance(table, difference);
        }
    }
    difference
}

fn advance(table: &Table, difference: u32) -> u32 {
    let [first, second, third, fourth] = table;
    let [a, b, c, d] = difference.to_le_bytes().map(usize::from);
    first[a] ^ second[b] ^ third[c] ^ fourth[d]
}

fn tables() -> Vec<Table> {
    // By linearity, the effect of a byte on each bit gives the effect on all.
    let one_byte = |difference: u32| crc32c_append(difference, &[0]) ^ crc32c_append(0, &[0]);
    let mut tables = vec![table(&one_byte)];
    while let Some(last) = tables.last().filter(|_| tables.len() < POWERS) {
        let next = table(&|difference| advance(last, advance(last, difference)));
        tables.push(next);
    }
    tables
}

fn table(effect: &dyn Fn(u32) -> u32) -> Table {
    let mut table = [[0; 256]; 4];
    for (place, row) in (0u32..).zip(&mut table) {
        for (value, entry) in (0u32..).zip(row.iter_mut()) {
            *entry = effect(value << (8 * place));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_store_testing::Random;

    #[test]
    fn checksum_of_parts_equals_checksum_of_the_whole() {
        let mut random = Random::new(5);
        for _ in 0..200 {
            let seed = u32::try_from(random.below(1 << 32)).unwrap();
            let (mut bytes, mut parts) = (Vec::new(), Vec::new());
            for _ in 0..random.index(6) {
                let between = random.index(80);
                bytes.extend((0..between).map(|_| random.bits().to_le_bytes()[0]));
                let length = random.index(3_000);
                let part: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
                bytes.extend(crc32c_append(seed, &part).to_le_bytes());
                parts.push(SummedPart { at: bytes.len(), length });
                bytes.extend(part);
            }
            let start = u32::try_from(random.below(1 << 32)).unwrap();
            assert_eq!(append(start, &bytes, &parts, seed), crc32c_append(start, &bytes));
        }
    }

    #[test]
    fn impossible_parts_are_read_again() {
        let bytes = vec![3; 2_000];
        let whole = crc32c_append(7, &bytes);
        for (at, length) in [(0, 1_000), (3, 600), (1_500, 600), (4, 1 << 21)] {
            assert_eq!(append(7, &bytes, &[SummedPart { at, length }], 9), whole, "{at} {length}");
        }
    }
}
