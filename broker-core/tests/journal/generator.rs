//! Batches of all kinds, drawn from a seed.

use bytes::Bytes;
use peeklock_core::store::Key;
use peeklock_store_testing::Random;

use crate::oracle::{Op, SPACES};

/// Contents of this size are written before their batch.
const PART_BYTES: u64 = 256 << 10;

/// Parameters of a seed's load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Number of keys in a space.
    pub keys: u64,
    /// One content of this many is larger than a part.
    pub large_one_in: u64,
    /// One batch of this many is not synced.
    pub lazy_one_in: u64,
    /// Number of deletes among ten records.
    pub deletes: u64,
}

impl Load {
    pub fn draw(random: &mut Random) -> Self {
        Self {
            keys: [3, 12, 40, 200][random.index(4)],
            large_one_in: [40, 150, 100_000][random.index(3)],
            lazy_one_in: [2, 4, 100][random.index(3)],
            deletes: random.between(1, 5),
        }
    }

    /// The records of a batch over the spaces of these shards, and whether it is synced.
    pub fn batch(&self, random: &mut Random, spaces: &[u64]) -> (Vec<Op>, bool) {
        let count = match random.below(12) {
            0 => 0,
            1 => random.between(10, 60),
            _ => random.between(1, 5),
        };
        let mut ops = Vec::new();
        for _ in 0..count {
            self.op(random, spaces, &mut ops);
        }
        (ops, !random.one_in(self.lazy_one_in))
    }

    fn key(&self, random: &mut Random, spaces: &[u64]) -> Key {
        let space = random.pick(spaces).copied().unwrap_or(SPACES[0]);
        let number = random.below(self.keys).to_be_bytes();
        // Some keys are prefixes of others.
        let tail = match number[7] % 5 {
            0 => &number[7..],
            1 => &number[6..],
            2 => &[number[7], 0xff],
            3 => &[&number[..], &[7; 24]].concat(),
            _ => &[number[7] & 3, number[7], number[6]],
        };
        Key::of_space(space).then(tail)
    }

    fn op(&self, random: &mut Random, spaces: &[u64], ops: &mut Vec<Op>) {
        let key = self.key(random, spaces);
        if random.below(10) < self.deletes {
            if random.one_in(25) {
                let tail = u8::try_from(random.below(5)).unwrap();
                ops.push(Op::DeletePrefix { prefix: Key::of_space(space_of(&key)).then(&[tail]) });
            } else if random.one_in(60) {
                ops.push(Op::DeletePrefix { prefix: Key::of_space(space_of(&key)) });
            } else {
                ops.push(Op::Delete { key });
            }
            return;
        }
        let value = value(random);
        match random.below(10) {
            0 | 1 => ops.push(Op::Put { key, value }),
            2 | 3 => ops.push(Op::PutKeep { key, value }),
            4 | 5 => {
                let source = self.key(random, spaces);
                ops.push(Op::PutOf { key, source, value });
                // A transfer: the record moves to the other key.
                if random.one_in(2) && source != key {
                    ops.push(Op::Delete { key: source });
                }
            }
            _ => {
                let content = self.content(random);
                ops.push(Op::PutNew { key, value, content });
            }
        }
    }

    fn content(&self, random: &mut Random) -> Bytes {
        let length = if random.one_in(self.large_one_in) {
            match random.below(3) {
                0 => PART_BYTES - 2 + random.below(5),
                1 => 2 * PART_BYTES - 2 + random.below(5),
                _ => random.between(PART_BYTES, 600 << 10),
            }
        } else {
            match random.below(12) {
                0 => 0,
                1 => random.between(500, 5_000),
                2 => random.between(1_000, 20_000),
                _ => random.between(1, 120),
            }
        };
        bytes(random, length).into()
    }
}

fn space_of(key: &Key) -> u64 {
    u64::from_be_bytes(key.as_bytes()[..8].try_into().unwrap())
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(40) {
        0..4 => 0,
        4 => random.between(1_000, 9_000),
        _ => random.between(1, 60),
    };
    bytes(random, length)
}

/// `length` unique bytes; a few are all zeros.
fn bytes(random: &mut Random, length: u64) -> Vec<u8> {
    let length = usize::try_from(length).unwrap();
    let mut own = Random::new(random.bits());
    if own.one_in(30) {
        return vec![0; length];
    }
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&own.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
