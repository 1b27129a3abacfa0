//! Hash of the numbers of entities and receivers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Map with numbers of entities or receivers as keys.
pub(super) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes a number without a seed: the broker counts its entities and receivers, so no client can
/// choose colliding ones.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A map uses the low bits for the place, and the high ones to compare.
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
