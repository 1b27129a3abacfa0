//! Digests of the records of a space: their number, their bytes, and a hash of all keys, values and
//! contents in order.

use std::fmt;
use std::hash::Hasher as _;

use bytes::Bytes;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Summary of records. Two are equal only if all records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest {
    /// Number of records.
    pub records: u64,
    /// Bytes of keys, values and contents.
    pub bytes: u64,
    hash: u128,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records with {} bytes and hash {:032x}", self.records, self.bytes, self.hash)
    }
}

/// A digest in the making.
pub(super) struct Hasher {
    records: u64,
    bytes: u64,
    hasher: SipHasher24,
}

impl Hasher {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self { records: 0, bytes: 0, hasher: SipHasher24::new_with_key(key) }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8], content: Option<&Bytes>) {
        self.records += 1;
        self.hasher.write_u8(u8::from(content.is_some()));
        for part in [Some(key), Some(value), content.map(|content| &content[..])] {
            let part = part.unwrap_or_default();
            self.bytes += part.len() as u64;
            self.hasher.write_u64(part.len() as u64);
            self.hasher.write(part);
        }
    }

    pub(super) fn finish(&self) -> Digest {
        let hash = self.hasher.finish128().into();
        Digest { records: self.records, bytes: self.bytes, hash }
    }
}

/// Keyed hash of a content.
pub(super) fn hash_of(key: &[u8; 16], content: &[u8]) -> u128 {
    SipHasher24::new_with_key(key).hash(content).into()
}
