//! Codec of policies of the namespace, a queue or a topic, and of the instant from which a token is
//! required.

use std::fmt;

use super::VERSION;
use super::reader::{Read, Reader, write_text};
use crate::time::Timestamp;

/// A policy as it is stored (SEC-02).
#[derive(Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    /// Its name.
    pub name: Box<str>,
    /// Its rights, one bit each: Send 1, Listen 2, Manage 4.
    pub rights: u8,
    /// The primary and the secondary key, as text.
    pub keys: [Box<str>; 2],
    /// Instant of creation.
    pub created_at: Timestamp,
    /// Instant of the last change of its rights or keys.
    pub updated_at: Timestamp,
}

impl fmt::Debug for PolicyRecord {
    /// Omits the keys (SEC-22).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyRecord")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

/// Writes all policies of an entity.
pub fn write_policies<'a>(
    policies: impl ExactSizeIterator<Item = &'a PolicyRecord>,
    value: &mut Vec<u8>,
) {
    value.push(VERSION);
    value.extend_from_slice(&u32::try_from(policies.len()).unwrap_or(u32::MAX).to_be_bytes());
    for PolicyRecord { name, rights, keys, created_at, updated_at } in policies {
        write_text(name, value);
        value.push(*rights);
        for key in keys {
            write_text(key, value);
        }
        write_instant(*created_at, value);
        write_instant(*updated_at, value);
    }
}

/// Reads all policies of an entity.
///
/// # Errors
/// A description of the error in the value.
pub fn read_policies(value: &[u8]) -> Read<Vec<PolicyRecord>> {
    let mut reader = Reader::new(value);
    reader.version()?;
    let count = reader.u32()?;
    let mut policies = Vec::new();
    for _ in 0..count {
        policies.push(PolicyRecord {
            name: reader.text()?,
            rights: reader.u8()?,
            keys: [reader.text()?, reader.text()?],
            created_at: reader.instant()?,
            updated_at: reader.instant()?,
        });
    }
    reader.end()?;
    Ok(policies)
}

/// Writes an instant.
pub fn write_instant(at: Timestamp, value: &mut Vec<u8>) {
    value.extend_from_slice(&at.ticks().to_be_bytes());
}

/// Reads a value that is exactly one instant.
///
/// # Errors
/// A description of the error in the value.
pub fn read_instant(value: &[u8]) -> Read<Timestamp> {
    let mut reader = Reader::new(value);
    let at = reader.instant()?;
    reader.end()?;
    Ok(at)
}
