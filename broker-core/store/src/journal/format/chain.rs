//! The checksum of bytes of which a part has a checksum of its own: every byte is looked at once.
//!
//! A content has a checksum, and lies in a frame that has one. CRC-32C is linear: what a difference
//! between two checksums becomes when the same bytes follow both depends on how many follow, and not
//! on which. So the checksum of the frame goes on behind a content from that of the content.

use std::sync::LazyLock;

use crc32c::crc32c_append;

/// A shorter part is read again: that is as fast.
pub(in super::super) const SUMMED_BYTES_MIN: usize = 512;
/// Powers of two of bytes that are skipped at once; longer parts are read again.
const POWERS: usize = 20;

/// A part of a buffer that has a checksum, of the same seed: its four bytes lie in front of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Summed {
    pub(in super::super) at: usize,
    pub(in super::super) length: usize,
}

/// What a difference of checksums becomes behind a number of bytes, by each of its four bytes.
type Table = [[u32; 256]; 4];

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(tables);

/// Goes on with a checksum over `bytes`, of which the parts have one of their own under `seed`.
/// Parts lie in order and do not overlap.
pub(super) fn append(mut checksum: u32, bytes: &[u8], parts: &[Summed], seed: u32) -> u32 {
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

/// What a difference of checksums becomes behind so many bytes.
fn skip(mut difference: u32, bytes: usize) -> u32 {
    for (power, table) in TABLES.iter().enumerate() {
        if bytes >> power & 1 == 1 {
            difference = behind(table, difference);
        }
    }
    difference
}

fn behind(table: &Table, difference: u32) -> u32 {
    let [first, second, third, fourth] = table;
    let [a, b, c, d] = difference.to_le_bytes().map(usize::from);
    first[a] ^ second[b] ^ third[c] ^ fourth[d]
}

fn tables() -> Vec<Table> {
    // Linear: what one byte makes of each bit tells what it makes of all.
    let one_byte = |difference: u32| crc32c_append(difference, &[0]) ^ crc32c_append(0, &[0]);
    let mut tables = vec![table(&one_byte)];
    while let Some(last) = tables.last().filter(|_| tables.len() < POWERS) {
        let next = table(&|difference| behind(last, behind(last, difference)));
        tables.push(next);
    }
    tables
}

fn table(makes: &dyn Fn(u32) -> u32) -> Table {
    let mut table = [[0; 256]; 4];
    for (place, row) in (0u32..).zip(&mut table) {
        for (value, made) in (0u32..).zip(row.iter_mut()) {
            *made = makes(value << (8 * place));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn a_checksum_of_parts_is_the_one_of_the_whole() {
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
                parts.push(Summed { at: bytes.len(), length });
                bytes.extend(part);
            }
            let start = u32::try_from(random.below(1 << 32)).unwrap();
            assert_eq!(append(start, &bytes, &parts, seed), crc32c_append(start, &bytes));
        }
    }

    #[test]
    fn parts_that_cannot_be_are_read() {
        let bytes = vec![3; 2_000];
        let whole = crc32c_append(7, &bytes);
        for (at, length) in [(0, 1_000), (3, 600), (1_500, 600), (4, 1 << 21)] {
            assert_eq!(append(7, &bytes, &[Summed { at, length }], 9), whole, "{at} {length}");
        }
    }
}
