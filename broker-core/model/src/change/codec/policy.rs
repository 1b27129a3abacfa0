//! Codec of policies of the namespace, a queue or a topic, and of the instant from which a token is
//! required.

use super::VERSION;
use super::reader::{Read, Reader, write_text};
use crate::policy::{KeyText, PolicyDescription, PolicyKeys, Rights};
use crate::time::Timestamp;

/// Writes all policies of an entity.
pub fn write_policies<'a>(
    policies: impl ExactSizeIterator<Item = &'a PolicyKeys>,
    value: &mut Vec<u8>,
) {
    value.push(VERSION);
    value.extend_from_slice(&u32::try_from(policies.len()).unwrap_or(u32::MAX).to_be_bytes());
    for PolicyKeys { policy, primary_key, secondary_key } in policies {
        let PolicyDescription { name, rights, created_at, updated_at } = policy;
        write_text(name, value);
        value.push(rights.bits());
        for key in [primary_key, secondary_key] {
            write_text(key.reveal(), value);
        }
        write_instant(*created_at, value);
        write_instant(*updated_at, value);
    }
}

/// Reads all policies of an entity.
///
/// # Errors
/// A description of the error in the value.
pub fn read_policies(value: &[u8]) -> Read<Vec<PolicyKeys>> {
    let mut reader = Reader::new(value);
    reader.version()?;
    let count = reader.u32()?;
    let mut policies = Vec::new();
    for _ in 0..count {
        let name = reader.str()?.into();
        let rights = Rights::from_bits(reader.u8()?).ok_or("unknown right")?;
        let [primary_key, secondary_key] =
            [KeyText::stored(reader.str()?), KeyText::stored(reader.str()?)];
        let (created_at, updated_at) = (reader.instant()?, reader.instant()?);
        let policy = PolicyDescription { name, rights, created_at, updated_at };
        policies.push(PolicyKeys { policy, primary_key, secondary_key });
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
