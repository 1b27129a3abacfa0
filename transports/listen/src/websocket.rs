//! Bounds on what the library of WebSocket buffers for one connection, on either side of it.
//!
//! The library answers every ping that it reads, and keeps each answer until the peer takes it. A peer that pings and
//! takes nothing would fill the memory. So a reader counts the answers that the socket has not taken ([`Pongs`]) and reads
//! nothing more beyond a bound; the buffer of the library has a maximum too, as a net.

mod pieces;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

pub use pieces::{PIECE_BYTES, Pieces};

/// Pongs that may wait for the socket; with more, nothing is read.
const PONG_BYTES_MAX: usize = 4 << 10;
/// The largest control frame, with the mask of a client.
const CONTROL_BYTES_MAX: usize = 131;
/// What a control frame has besides its content.
const CONTROL_HEAD_BYTES: usize = 6;
/// The largest head of a frame.
const HEAD_BYTES_MAX: usize = 14;
/// Pongs and the answer to a close, with the one that passes the bound.
const CONTROL_ROOM_BYTES: usize = PONG_BYTES_MAX + 2 * CONTROL_BYTES_MAX;

/// Pongs that the library has buffered and the socket may not have taken.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pongs {
    bytes: usize,
}

impl Pongs {
    /// A ping with this content was read: the library has buffered its pong.
    pub const fn owe(&mut self, content_bytes: usize) {
        self.bytes = self.bytes.saturating_add(content_bytes).saturating_add(CONTROL_HEAD_BYTES);
    }

    /// The socket has taken all of them.
    pub const fn taken(&mut self) {
        self.bytes = 0;
    }

    /// Whether the socket may have some to take.
    #[must_use]
    pub const fn are_owed(&self) -> bool {
        self.bytes > 0
    }

    /// Whether more may be read before they are taken.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.bytes < PONG_BYTES_MAX
    }
}

/// Sizes that the library has to keep to.
#[derive(Clone, Copy, Debug)]
pub struct BufferSizes {
    /// What is read at once, and kept for the connection.
    pub read_bytes: usize,
    /// Written frames are handed to the socket when there is more than this.
    pub write_bytes: usize,
    /// The content of the largest frame that is written.
    pub written_frame_bytes_max: usize,
    /// The content of the largest message that is read, and of the largest frame.
    pub message_bytes_max: usize,
}

impl BufferSizes {
    /// The most that the library buffers to be written.
    #[must_use]
    pub const fn write_bytes_max(&self) -> usize {
        self.write_bytes
            .saturating_add(self.written_frame_bytes_max)
            .saturating_add(HEAD_BYTES_MAX + CONTROL_ROOM_BYTES)
    }

    /// The same for the library. Every connection is configured by this.
    #[must_use]
    pub fn config(&self) -> WebSocketConfig {
        WebSocketConfig::default()
            .read_buffer_size(self.read_bytes)
            .write_buffer_size(self.write_bytes)
            .max_write_buffer_size(self.write_bytes_max())
            .max_message_size(Some(self.message_bytes_max))
            .max_frame_size(Some(self.message_bytes_max))
    }
}
