//! Memory cost of parsing a JSON text, estimated before parsing from its brackets and commas only.
//! Transports reserve memory with it. Invalid JSON gives some estimate, and the parser rejects it
//! later.

use std::slice::Iter;

/// Maximum memory for one more value inside a text, in bytes.
pub const PART_BYTES: u64 = 96;

/// Iterator over the brackets, braces and commas of a JSON text, in order, outside of strings.
#[derive(Clone, Debug)]
pub struct Marks<'a> {
    bytes: Iter<'a, u8>,
}

impl<'a> Marks<'a> {
    /// Creates an iterator over a text.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self { bytes: text.iter() }
    }
}

impl Iterator for Marks<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.next() {
            match byte {
                b'"' => {
                    while let Some(byte) = self.bytes.next() {
                        match byte {
                            b'\\' => drop(self.bytes.next()),
                            b'"' => break,
                            _ => {}
                        }
                    }
                }
                b'{' | b'}' | b'[' | b']' | b',' => return Some(*byte),
                _ => {}
            }
        }
        None
    }
}
