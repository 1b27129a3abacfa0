//! Finds a text in a stream of bytes, one byte after the other, without going back.

use super::TextPattern;

/// Text to find, with the lengths at which a search continues after a mismatch.
#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Box<[u8]>,
    /// For each prefix of the text, the length of its longest proper prefix that is also a suffix.
    fallback: Box<[usize]>,
    ignores_case: bool,
}

impl Pattern {
    pub(super) fn of(pattern: &TextPattern) -> Self {
        let text = match pattern.ignores_case {
            true => pattern.text.to_ascii_lowercase(),
            false => String::from(&*pattern.text),
        };
        let bytes: Box<[u8]> = text.into_bytes().into();
        let mut fallback = Vec::with_capacity(bytes.len());
        let mut length = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if at > 0 {
                while length > 0 && bytes.get(length) != Some(byte) {
                    length = fallback.get(length - 1).copied().unwrap_or_default();
                }
                length += usize::from(bytes.get(length) == Some(byte));
            }
            fallback.push(length);
        }
        Self { bytes, fallback: fallback.into(), ignores_case: pattern.ignores_case }
    }

    /// Number of bytes of the text.
    pub(super) const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Continues with a byte, after `matched` bytes of the text; returns whether the text is
    /// complete. Over a stream it takes at most two steps a byte.
    pub(super) fn advance(&self, matched: &mut usize, byte: u8, steps: &mut u64) -> bool {
        let byte = if self.ignores_case { byte.to_ascii_lowercase() } else { byte };
        *steps += 1;
        while *matched > 0 && self.bytes.get(*matched) != Some(&byte) {
            *matched = self.fallback.get(*matched - 1).copied().unwrap_or_default();
            *steps += 1;
        }
        *matched += usize::from(self.bytes.get(*matched) == Some(&byte));
        *matched == self.bytes.len()
    }

    /// Returns the place of the text in another one.
    pub(super) fn find(&self, text: &str, steps: &mut u64) -> Option<usize> {
        let mut matched = 0;
        let end = text.bytes().position(|byte| self.advance(&mut matched, byte, steps))? + 1;
        Some(end - self.length())
    }
}
