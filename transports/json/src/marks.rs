//! What a JSON text costs when it is read, told from its bytes before any of it is: only its brackets and commas are looked
//! at. What is no JSON is counted somehow, and refused later.

use std::slice::Iter;

/// What one more value inside a text takes when it is made, at most.
pub const PART_BYTES: u64 = 96;

/// The brackets, braces and commas of a JSON text, in their order, but for those within strings.
#[derive(Clone, Debug)]
pub struct Marks<'a> {
    bytes: Iter<'a, u8>,
}

impl<'a> Marks<'a> {
    /// Those of a text.
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
