//! The body in chunked encoding (RFC 9112, section 7.1): finds its end and extracts its content.
//! Trailers are refused, as the framework also refuses them.
//!
//! The framework stores each chunk separately until a handler reads it, at a cost far above the
//! size of a small chunk. This module therefore merges all content that has arrived into one chunk.

/// The parser state.
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
    /// Remaining bytes of the chunk.
    Data(u64),
    DataReturn,
    DataEnd,
    LastReturn,
    LastEnd,
    Ended,
}

/// Maximum length of a chunk extension.
const EXTENSION_BYTES_MAX: u16 = 1_024;

/// More bytes than the frame of a chunk and the end of a body take.
const FRAME_BYTES: usize = 32;

/// The bytes are not valid chunked encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A part of the body in a new frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Framed {
    /// Number of input bytes that belong to the body.
    pub(super) taken: usize,
    /// Number of content bytes among them.
    pub(super) content_bytes: usize,
    /// The content as one chunk, followed by the end of the body if it has arrived; may be empty.
    pub(super) bytes: Vec<u8>,
}

impl Chunks {
    /// Reads up to the end of the body or of the bytes, and frames the content again.
    pub(super) fn reframe(&mut self, bytes: &[u8]) -> Result<Framed, Malformed> {
        let mut content = Vec::with_capacity(bytes.len());
        let taken = self.advance(bytes, &mut content)?;
        let content_bytes = content.len();
        let mut framed = Vec::with_capacity(content_bytes + FRAME_BYTES);
        if content_bytes > 0 {
            framed.extend_from_slice(format!("{content_bytes:X}\r\n").as_bytes());
            framed.append(&mut content);
            framed.extend_from_slice(b"\r\n");
        }
        if *self == Self::Ended {
            framed.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(Framed { taken, content_bytes, bytes: framed })
    }

    /// Returns the number of bytes that belong to the body, and appends their content.
    fn advance(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<usize, Malformed> {
        let mut rest = bytes;
        while *self != Self::Ended {
            if let Self::Data(left) = self {
                let passed = (*left).min(rest.len() as u64);
                if passed == 0 {
                    break;
                }
                let (here, after) = rest.split_at(usize::try_from(passed).unwrap_or(rest.len()));
                content.extend_from_slice(here);
                rest = after;
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
        Ok(bytes.len() - rest.len())
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

    /// HTP-01: the end of a body is found and its content extracted, regardless of how the bytes
    /// arrive.
    #[test]
    fn the_end_of_a_body_is_found() {
        let text = b"4\r\nbody\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET /";
        let end = text.len() - 5;
        let (mut whole, mut content) = (Chunks::default(), Vec::new());
        assert_eq!(whole.advance(text, &mut content), Ok(end));
        assert_eq!((whole, content.as_slice()), (Chunks::Ended, b"body0123456789".as_slice()));
        let (mut dripped, mut content) = (Chunks::default(), Vec::new());
        for byte in &text[..end] {
            assert_ne!(dripped, Chunks::Ended);
            assert_eq!(dripped.advance(&[*byte], &mut content), Ok(1));
        }
        assert_eq!((dripped, content.as_slice()), (Chunks::Ended, b"body0123456789".as_slice()));
    }

    /// HTP-01: all content that has arrived becomes one chunk, regardless of the number of chunks
    /// from the client.
    #[test]
    fn many_chunks_become_one() {
        let mut chunks = Chunks::default();
        let text = [b"1\r\nx\r\n".repeat(4_096).as_slice(), b"2;a=b"].concat();
        let framed = chunks.reframe(&text).unwrap();
        assert_eq!((framed.taken, framed.content_bytes), (text.len(), 4_096));
        let expected = [b"1000\r\n".as_slice(), &b"x".repeat(4_096), b"\r\n"].concat();
        assert!(framed.bytes == expected, "{:?}", String::from_utf8_lossy(&framed.bytes));
        // An empty chunk would end the body.
        let nothing = Framed { taken: 2, content_bytes: 0, bytes: Vec::new() };
        assert_eq!(chunks.reframe(b"\r\n"), Ok(nothing));
        let rest = chunks.reframe(b"yz\r\n0\r\n\r\nGET /").unwrap();
        assert_eq!((rest.taken, rest.content_bytes), (9, 2));
        assert_eq!(rest.bytes, b"2\r\nyz\r\n0\r\n\r\n");
    }

    /// HTP-01: invalid chunked encoding is refused.
    #[test]
    fn invalid_chunks_are_refused() {
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
            let framed = chunks.reframe(text.as_bytes());
            assert!(text.is_empty() || framed == Err(Malformed), "{text:?}: {framed:?}");
        }
        let long = format!("4;{}\r\n", "x".repeat(2_000));
        assert_eq!(Chunks::default().reframe(long.as_bytes()), Err(Malformed));
    }
}
