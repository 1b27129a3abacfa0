//! Where a body ends that comes in chunks (RFC 9112, section 7.1), without trailers, which the framework does
//! not take either.

/// A place in such a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Chunks {
    /// Before or in the size of a chunk.
    #[default]
    Begin,
    Size(u64),
    /// After the size, up to the end of the line.
    Extension {
        bytes: u64,
        skipped: u16,
    },
    SizeEnd(u64),
    /// So much of the chunk is to come.
    Data(u64),
    DataReturn,
    DataEnd,
    LastReturn,
    LastEnd,
    Ended,
}

/// The longest text behind a size.
const EXTENSION_BYTES_MAX: u16 = 1_024;

/// The bytes are not those of such a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What belongs to the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Advanced {
    pub(super) bytes: usize,
    /// How many of them are content.
    pub(super) content_bytes: u64,
}

impl Chunks {
    /// Goes on, up to the end of the body or of the bytes.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Advanced, Malformed> {
        let mut rest = bytes;
        let mut content_bytes = 0;
        while *self != Self::Ended {
            if let Self::Data(left) = self {
                let passed = (*left).min(rest.len() as u64);
                if passed == 0 {
                    break;
                }
                rest = rest.split_at(usize::try_from(passed).unwrap_or(rest.len())).1;
                content_bytes += passed;
                *left -= passed;
                if *left == 0 {
                    *self = Self::DataReturn;
                }
                continue;
            }
            let [byte, after @ ..] = rest else { break };
            *self = self.after(*byte).ok_or(Malformed)?;
            rest = after;
        }
        Ok(Advanced { bytes: bytes.len() - rest.len(), content_bytes })
    }

    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Begin, _) => Self::Size(digit(byte)?),
            (Self::Size(size), b'\r') => Self::SizeEnd(size),
            (Self::Size(bytes), b';' | b' ' | b'\t') => Self::Extension { bytes, skipped: 0 },
            (Self::Size(size), _) => Self::Size(size.checked_mul(16)?.checked_add(digit(byte)?)?),
            (Self::Extension { bytes, .. }, b'\r') => Self::SizeEnd(bytes),
            (Self::Extension { bytes, skipped }, b' '..=b'~' | b'\t' | 0x80..)
                if skipped < EXTENSION_BYTES_MAX =>
            {
                Self::Extension { bytes, skipped: skipped + 1 }
            }
            (Self::SizeEnd(0), b'\n') => Self::LastReturn,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataReturn, b'\r') => Self::DataEnd,
            (Self::DataEnd, b'\n') => Self::Begin,
            (Self::LastReturn, b'\r') => Self::LastEnd,
            (Self::LastEnd, b'\n') => Self::Ended,
            _ => return None,
        })
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HTP-01: the end of a body is found however it arrives, and content is told from its frame.
    #[test]
    fn the_end_of_a_body_is_found() {
        let text = b"4\r\nbody\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET /";
        let end = text.len() - 5;
        let whole = Chunks::default().advance(text);
        assert_eq!(whole, Ok(Advanced { bytes: end, content_bytes: 14 }));
        let mut dripped = Chunks::default();
        let mut content = 0;
        for byte in &text[..end] {
            assert_ne!(dripped, Chunks::Ended);
            content += dripped.advance(&[*byte]).unwrap().content_bytes;
        }
        assert_eq!((dripped, content), (Chunks::Ended, 14));
    }

    /// HTP-01: what is no such body is not taken for one.
    #[test]
    fn what_are_no_chunks_is_told() {
        for text in [
            "",
            "g\r\n",
            "\r\n",
            "4\n",
            "4\r\nbody0",
            "-1\r\n",
            "fffffffffffffffff\r\n",
            "0\r\nA: b\r\n",
        ] {
            let mut chunks = Chunks::default();
            let advanced = chunks.advance(text.as_bytes());
            assert!(text.is_empty() || advanced == Err(Malformed), "{text:?}: {advanced:?}");
        }
        let long = format!("4;{}\r\n", "x".repeat(2_000));
        assert_eq!(Chunks::default().advance(long.as_bytes()), Err(Malformed));
    }
}
