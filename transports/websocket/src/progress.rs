//! Tracks the frames of a client by their bytes (RFC 6455, section 5.2). The WebSocket library
//! reports only complete messages, while limits on memory and pace need the state of an incomplete
//! one. `Metered` passes all received bytes. A control frame such as a ping may arrive within a
//! message and does not complete it.

/// The head of a frame: two bytes, a longer length, the mask.
const HEAD_BYTES_MAX: usize = 14;
const FINAL: u8 = 0x80;
const OPCODE: u8 = 0x0f;
/// The first opcode of control frames: ping, pong, close.
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;

/// The position of a client within its frames.
#[derive(Default)]
pub(crate) struct Progress {
    head: [u8; HEAD_BYTES_MAX],
    /// Received bytes of the frame head.
    head_bytes: usize,
    /// Missing bytes of the frame content.
    missing_bytes: u64,
    /// Received bytes of an incomplete message, including its frame heads.
    message_bytes: u64,
    /// Whether the current message has further frames.
    is_within: bool,
    /// Whether a message or control frame was completed while no other message was incomplete.
    has_ended: bool,
}

impl Progress {
    /// Records received bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            let taken = if self.has_head() {
                let most = usize::try_from(self.missing_bytes).unwrap_or(usize::MAX);
                let taken = bytes.len().min(most);
                self.missing_bytes -= taken as u64;
                bytes = bytes.get(taken..).unwrap_or_default();
                taken
            } else {
                if let Some(place) = self.head.get_mut(self.head_bytes) {
                    *place = *first;
                }
                self.head_bytes += 1;
                bytes = rest;
                if self.has_head() {
                    self.missing_bytes = self.content_bytes();
                }
                1
            };
            if !self.is_control() {
                self.message_bytes = self.message_bytes.saturating_add(taken as u64);
            }
            if self.has_head() && self.missing_bytes == 0 {
                self.frame_came();
            }
        }
    }

    /// Received bytes of an incomplete message.
    pub(crate) const fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// The size of the message at the end of the current frame, if the head of the frame is known.
    pub(crate) fn announced_bytes(&self) -> Option<u64> {
        let of_message = self.has_head() && !self.is_control();
        of_message.then(|| self.message_bytes.saturating_add(self.missing_bytes))
    }

    /// Whether a frame or message is incomplete.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.is_within || self.head_bytes > 0
    }

    /// Whether a message was completed since the last call, so that the current one has begun after
    /// it.
    pub(crate) const fn take_ended(&mut self) -> bool {
        std::mem::replace(&mut self.has_ended, false)
    }

    fn frame_came(&mut self) {
        if !self.is_control() {
            self.is_within = self.head[0] & FINAL == 0;
            if !self.is_within {
                self.message_bytes = 0;
            }
        }
        self.has_ended |= !self.is_within;
        self.head_bytes = 0;
    }

    /// Whether the current frame is a control frame.
    const fn is_control(&self) -> bool {
        self.head[0] & OPCODE >= CONTROL
    }

    const fn has_head(&self) -> bool {
        let mask_bytes = if self.head[1] & MASKED == 0 { 0 } else { 4 };
        self.head_bytes >= 2 && self.head_bytes >= 2 + self.length_bytes() + mask_bytes
    }

    /// Additional length bytes of a length that does not fit into two bytes.
    const fn length_bytes(&self) -> usize {
        match self.head[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    fn content_bytes(&self) -> u64 {
        let [_, short, longer @ ..] = &self.head;
        let longer = longer.iter().take(self.length_bytes());
        match self.length_bytes() {
            0 => u64::from(short & !MASKED),
            _ => longer.fold(0, |length, byte| (length << 8) | u64::from(*byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 0x01;
    const PING: u8 = FINAL | 0x09;

    /// A frame whose length takes `length_bytes` additional bytes.
    fn frame(kind: u8, length_bytes: usize, content_bytes: usize) -> Vec<u8> {
        let short = match length_bytes {
            0 => u8::try_from(content_bytes).unwrap(),
            2 => 126,
            _ => 127,
        };
        let mut frame = vec![kind, MASKED | short];
        let length = (content_bytes as u64).to_be_bytes();
        frame.extend(&length[8 - length_bytes..]);
        frame.extend([0; 4]);
        frame.extend(vec![0; content_bytes]);
        frame
    }

    /// The state of an incomplete message is known after every byte, for frames and pieces of any
    /// size.
    #[test]
    fn incomplete_message_is_known_at_every_byte() {
        for length_bytes in [0, 2, 8] {
            for piece_bytes in [1, 2, 3, 7, 1_000] {
                let mut progress = Progress::default();
                let begun = frame(TEXT, length_bytes, 100);
                begun.chunks(piece_bytes).for_each(|piece| progress.pass(piece));
                let bytes = begun.len() as u64;
                assert_eq!(progress.message_bytes(), bytes);
                assert_eq!(progress.announced_bytes(), None, "the next frame says it");
                assert!(progress.is_under_way() && !progress.take_ended());
                // A ping within the message.
                frame(PING, 0, 125).chunks(piece_bytes).for_each(|piece| progress.pass(piece));
                assert_eq!(progress.message_bytes(), bytes);
                assert!(progress.is_under_way() && !progress.take_ended());
                let last = frame(FINAL, length_bytes, 50);
                let (almost, end) = last.split_at(last.len() - 1);
                almost.chunks(piece_bytes).for_each(|piece| progress.pass(piece));
                assert_eq!(progress.message_bytes(), bytes + almost.len() as u64);
                assert_eq!(progress.announced_bytes(), Some(bytes + last.len() as u64));
                assert!(!progress.take_ended());
                progress.pass(end);
                assert_eq!(progress.message_bytes(), 0);
                assert!(!progress.is_under_way() && progress.take_ended());
            }
        }
    }

    /// Half a ping is in progress, like half a message; a whole ping ends if no message is
    /// incomplete.
    #[test]
    fn half_a_ping_is_incomplete() {
        let mut progress = Progress::default();
        let ping = frame(PING, 0, 9);
        progress.pass(&ping[..7]);
        assert!(progress.is_under_way() && !progress.take_ended());
        progress.pass(&ping[7..]);
        assert_eq!(progress.message_bytes(), 0);
        assert!(!progress.is_under_way() && progress.take_ended());
        assert!(!progress.take_ended());
    }

    /// A length that no client can send is accepted without overflow.
    #[test]
    fn any_length_is_read() {
        let mut progress = Progress::default();
        progress.pass(&[FINAL | TEXT, MASKED | 127]);
        progress.pass(&[0xff; 12]);
        progress.pass(&[0; 1_000]);
        assert!(progress.is_under_way());
        assert_eq!(progress.message_bytes(), 1_014);
    }
}
