//! Splits large frames of a client into pieces (RFC 6455, section 5.4). The library keeps a buffer
//! as large as the largest frame that it has read on a connection, but keeps no buffer for messages
//! that it assembles from fragments.
//!
//! ```text
//!  socket:   head(FIN, text, 200 KiB) content────────────────────────►  head(FIN, text, 9) content
//!  library:  head(text, 64 KiB) 64 KiB  head(cont., 64 KiB) 64 KiB  …   the same
//! ```
//!
//! All pieces use the mask of their frame, which is possible because the length of each but the
//! last is a multiple of four.

use std::io;
use std::task::{Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::ReadBuf;

/// Maximum content bytes of a piece.
pub const PIECE_BYTES: usize = 64 << 10;
const PIECE: u64 = PIECE_BYTES as u64;
/// Maximum bytes of a frame's head: two bytes, an extended length, the mask.
const HEAD_BYTES_MAX: usize = 14;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0x00;
/// First opcode of control frames: pings, pongs and closes, which are not split.
const CONTROL: u8 = 0x08;

/// Position of a connection within its frames.
pub struct FrameSplitter {
    /// Maximum content bytes of a frame; the library refuses larger ones when it reads their head.
    frame_bytes_max: u64,
    /// Generated head that is handed on before anything else.
    head: Head,
    /// Bytes that were read and not handed on.
    kept: BytesMut,
    /// Missing bytes of a frame that is handed on unchanged.
    whole_bytes: u64,
    /// Missing bytes of the current piece.
    piece_bytes: u64,
    /// Missing bytes of the frame after the current piece.
    rest_bytes: u64,
    /// Whether the last piece ends its message; then the mask of all pieces.
    is_final: bool,
    mask: [u8; 4],
    mask_bytes: usize,
}

/// Head of a frame, or the rest of a head.
#[derive(Default)]
struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    from: usize,
    to: usize,
}

/// Head of a frame as the client has sent it.
struct FrameHead {
    head_bytes: usize,
    content_bytes: u64,
}

impl FrameSplitter {
    /// Creates the position of a new connection, whose frames have at most `frame_bytes_max` of
    /// content.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max: frame_bytes_max as u64,
            head: Head::default(),
            kept: BytesMut::new(),
            whole_bytes: 0,
            piece_bytes: 0,
            rest_bytes: 0,
            is_final: false,
            mask: [0; 4],
            mask_bytes: 0,
        }
    }

    /// Bytes that may be read at once: at most the rest of the current piece, so that bytes after
    /// it need no buffer.
    fn readable_bytes(&self) -> usize {
        match self.piece_bytes {
            0 => usize::MAX,
            missing => usize::try_from(missing).unwrap_or(usize::MAX),
        }
    }

    /// Hands on at most `room` bytes that are available; none if more must be read first.
    fn copy_available(&mut self, room: usize, mut take: impl FnMut(&[u8])) {
        if self.head.is_empty() && self.piece_bytes == 0 && !self.kept.is_empty() {
            self.parse_head();
        }
        if !self.head.is_empty() {
            let part = self.head.next(room);
            take(part);
            let handed_on = part.len();
            self.head.from += handed_on;
            return;
        }
        let here = match self.piece_bytes {
            0 => self.whole_here(),
            piece => self.kept.len().min(usize::try_from(piece).unwrap_or(usize::MAX)),
        };
        let count = here.min(room);
        if let Some(part) = self.kept.get(..count) {
            take(part);
        }
        self.kept.advance(count);
        if self.kept.is_empty() {
            self.kept = BytesMut::new();
        }
        match self.piece_bytes {
            0 => self.pass_whole(count),
            _ => self.pass_piece(count),
        }
    }

    /// Reads into `buffer`, calling `read` when bytes of the peer are needed. No bytes mean that
    /// the peer has closed.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn poll_read(
        &mut self,
        buffer: &mut ReadBuf<'_>,
        mut read: impl FnMut(&mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = buffer.filled().len();
            self.copy_available(buffer.remaining(), |part| buffer.put_slice(part));
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let most = self.readable_bytes().min(buffer.remaining());
            let mut more = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(read(&mut more))?;
            let is_over = more.filled().is_empty();
            let passed = self.read(more.filled());
            buffer.advance(passed);
            if passed > 0 || is_over {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes bytes that were read. Returns the number of bytes at their beginning that are handed
    /// on unchanged; the rest is kept.
    fn read(&mut self, bytes: &[u8]) -> usize {
        if self.piece_bytes > 0 {
            self.pass_piece(bytes.len());
            return bytes.len();
        }
        let mut passed = 0;
        if !self.kept.is_empty() {
            // The kept bytes are part of a head, so these bytes follow them.
            self.kept.extend_from_slice(bytes);
            return passed;
        }
        // Passes whole frames, and the available part of a frame that is not split.
        while let Some(rest) = bytes.get(passed..)
            && !rest.is_empty()
        {
            if self.whole_bytes == 0 {
                match head_of(rest) {
                    Some(read) if !self.is_cut(rest, &read) => {
                        self.whole_bytes = read.bytes();
                    }
                    Some(_) | None => break,
                }
            }
            let here = usize::try_from(self.whole_bytes).unwrap_or(usize::MAX).min(rest.len());
            self.whole_bytes -= here as u64;
            passed += here;
        }
        self.kept.extend_from_slice(bytes.get(passed..).unwrap_or_default());
        passed
    }

    /// Parses the head at the beginning of the kept bytes, if it is complete.
    fn parse_head(&mut self) {
        if self.whole_bytes > 0 {
            return;
        }
        let Some(read) = head_of(&self.kept) else { return };
        if !self.is_cut(&self.kept, &read) {
            self.whole_bytes = read.bytes();
            return;
        }
        let first = self.kept.first().copied().unwrap_or_default();
        let is_masked = self.kept.get(1).is_some_and(|second| second & MASKED != 0);
        self.mask_bytes = if is_masked { 4 } else { 0 };
        let mask = self.kept.get(read.head_bytes - self.mask_bytes..read.head_bytes);
        if let Some((to, from)) = self.mask.get_mut(..self.mask_bytes).zip(mask) {
            to.copy_from_slice(from);
        }
        self.is_final = first & FINAL != 0;
        self.kept.advance(read.head_bytes);
        self.rest_bytes = read.content_bytes;
        self.begin_piece(first & !FINAL);
    }

    /// Whether a frame is split into pieces.
    fn is_cut(&self, bytes: &[u8], read: &FrameHead) -> bool {
        let is_control = bytes.first().is_some_and(|first| first & CONTROL != 0);
        !is_control && read.content_bytes > PIECE && read.content_bytes <= self.frame_bytes_max
    }

    fn begin_piece(&mut self, first: u8) {
        self.piece_bytes = self.rest_bytes.min(PIECE);
        self.rest_bytes -= self.piece_bytes;
        let is_last = self.rest_bytes == 0 && self.is_final;
        let first = if is_last { first | FINAL } else { first };
        let mask = self.mask.get(..self.mask_bytes).unwrap_or_default();
        self.head = Head::new(first, self.piece_bytes, mask);
    }

    fn pass_piece(&mut self, count: usize) {
        self.piece_bytes = self.piece_bytes.saturating_sub(count as u64);
        if self.piece_bytes == 0 && self.rest_bytes > 0 {
            self.begin_piece(CONTINUATION);
        }
    }

    fn pass_whole(&mut self, count: usize) {
        self.whole_bytes = self.whole_bytes.saturating_sub(count as u64);
    }

    fn whole_here(&self) -> usize {
        usize::try_from(self.whole_bytes).unwrap_or(usize::MAX).min(self.kept.len())
    }
}

impl FrameHead {
    /// Bytes of the frame, including its content.
    const fn bytes(&self) -> u64 {
        self.content_bytes.saturating_add(self.head_bytes as u64)
    }
}

impl Head {
    fn new(first: u8, length: u64, mask: &[u8]) -> Self {
        let masked = if mask.is_empty() { 0 } else { MASKED };
        let mut head = Self::default();
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 126 => head.push(&[first, masked | short]),
            (_, Ok(long)) => {
                head.push(&[first, masked | 126]);
                head.push(&long.to_be_bytes());
            }
            _ => {
                head.push(&[first, masked | 127]);
                head.push(&length.to_be_bytes());
            }
        }
        head.push(mask);
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        let to = self.to + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.to..to) {
            place.copy_from_slice(bytes);
            self.to = to;
        }
    }

    const fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    fn next(&self, room: usize) -> &[u8] {
        let to = self.to.min(self.from.saturating_add(room));
        self.bytes.get(self.from..to).unwrap_or_default()
    }
}

/// Parses the head at the beginning of `bytes`; none if it is incomplete.
fn head_of(bytes: &[u8]) -> Option<FrameHead> {
    let second = *bytes.get(1)?;
    let (length_bytes, short) = match second & !MASKED {
        126 => (2, 0),
        127 => (8, 0),
        short => (0, u64::from(short)),
    };
    let mask_bytes = if second & MASKED == 0 { 0 } else { 4 };
    let head_bytes = 2 + length_bytes + mask_bytes;
    let head = bytes.get(..head_bytes)?;
    let longer = head.get(2..2 + length_bytes)?;
    let content_bytes = longer.iter().fold(short, |length, byte| (length << 8) | u64::from(*byte));
    Some(FrameHead { head_bytes, content_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 0x01;
    const PING: u8 = FINAL | 0x09;

    /// Frame as a client sends it, with `content` masked.
    fn frame(first: u8, mask: Option<[u8; 4]>, content: &[u8]) -> Vec<u8> {
        let mask: &[u8] = mask.as_ref().map_or(&[], |mask| mask);
        let head = Head::new(first, content.len() as u64, mask);
        let mut frame = head.next(usize::MAX).to_vec();
        frame.extend(
            content
                .iter()
                .zip((0..).map(|at| mask.get(at % 4).unwrap_or(&0)))
                .map(|(byte, mask)| byte ^ mask),
        );
        frame
    }

    /// Result of reading at most `read_bytes` and taking at most `room` at once.
    fn handed_on(bytes: &[u8], read_bytes: usize, room: usize) -> Vec<u8> {
        let mut pieces = FrameSplitter::new(1 << 20);
        let (mut out, mut left) = (Vec::new(), bytes);
        loop {
            let before = out.len();
            pieces.copy_available(room, |part| out.extend_from_slice(part));
            if out.len() > before {
                continue;
            }
            let count = left.len().min(read_bytes).min(pieces.readable_bytes());
            let (read, rest) = left.split_at(count);
            let passed = pieces.read(read);
            out.extend_from_slice(&read[..passed]);
            left = rest;
            if count == 0 {
                return out;
            }
        }
    }

    /// Frames in `bytes`: first byte, and content without its mask.
    fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut frames = Vec::new();
        while let Some(read) = head_of(bytes) {
            let (head, rest) = bytes.split_at(read.head_bytes);
            let (content, rest) = rest.split_at(usize::try_from(read.content_bytes).unwrap());
            let mask = if head[1] & MASKED == 0 { &[0; 4] } else { &head[head.len() - 4..] };
            let content = content.iter().zip((0..).map(|at| mask[at % 4]));
            frames.push((head[0], content.map(|(byte, mask)| byte ^ mask).collect()));
            bytes = rest;
        }
        assert!(bytes.is_empty(), "{} bytes of no frame", bytes.len());
        frames
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    /// RFC 6455, section 5.4: with any sizes of reads, small frames are handed on unchanged. Large
    /// frames become pieces with the same content, the opcode on the first and the end mark on the
    /// last. Frames that are fragments themselves are split too.
    #[test]
    fn large_frames_are_split() {
        let piece = PIECE_BYTES;
        let mask = Some([7, 1, 200, 33]);
        let sent = [
            frame(FINAL | TEXT, mask, &content(9)),
            frame(FINAL | TEXT, mask, &content(3 * piece + 5)),
            frame(PING, mask, b"still here?"),
            frame(TEXT, mask, &content(2 * piece)),
            frame(PING, mask, b""),
            frame(FINAL | CONTINUATION, mask, &content(piece + 1)),
            frame(FINAL | TEXT, mask, &content(piece)),
            frame(FINAL | TEXT, None, &content(piece + 2)),
            frame(FINAL | TEXT, mask, &content(300)),
        ];
        let expected = [
            (FINAL | TEXT, content(9)),
            (FINAL | TEXT, content(3 * piece + 5)),
            (PING, b"still here?".to_vec()),
            (TEXT, content(2 * piece)),
            (PING, Vec::new()),
            (FINAL, content(piece + 1)),
            (FINAL | TEXT, content(piece)),
            (FINAL | TEXT, content(piece + 2)),
            (FINAL | TEXT, content(300)),
        ];
        let bytes = sent.concat();
        for (read_bytes, room) in [(1, 1), (2, 8_192), (7, 3), (8_192, 8_192), (bytes.len(), 100)] {
            let frames = frames(&handed_on(&bytes, read_bytes, room));
            let mut frames = frames.into_iter();
            for (first, whole) in &expected {
                let (opcode, mut joined) = frames.next().unwrap();
                assert_eq!(opcode & !FINAL, first & !FINAL);
                let mut last = opcode;
                assert!(joined.len() <= piece);
                while joined.len() < whole.len() {
                    let (opcode, more) = frames.next().unwrap();
                    assert_eq!((opcode & !FINAL, last & FINAL), (CONTINUATION, 0));
                    assert!(more.len() <= piece);
                    joined.extend(more);
                    last = opcode;
                }
                assert_eq!(last & FINAL, first & FINAL);
                assert!(joined == *whole, "read {read_bytes}, handed on {room}");
            }
            assert_eq!(frames.next(), None);
        }
    }

    /// A frame above the maximum is passed unchanged; its reader refuses it by its head.
    #[test]
    fn a_frame_over_the_maximum_is_passed_unchanged() {
        let head = Head::new(FINAL | TEXT, u64::MAX, &[1, 2, 3, 4]);
        let head = head.next(usize::MAX);
        assert_eq!(handed_on(head, 5, 100), head);
    }
}
