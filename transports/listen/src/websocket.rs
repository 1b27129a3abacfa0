//! Bounds on the buffers of the WebSocket library for one connection, on the server and on the
//! client.
//!
//! The library answers each ping that it reads, and keeps the answer until the peer takes it. A
//! peer that sends pings and reads nothing would fill the memory. So a reader counts the pongs that
//! the socket has not taken ([`Pongs`]) and reads nothing more above a bound. As a safety net, the
//! buffer of the library has a maximum too.

mod pieces;

use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

pub use pieces::{FrameSplitter, PIECE_BYTES};

/// Bytes of pongs that may wait for the socket; above them, nothing is read.
const PONG_BYTES_MAX: usize = 4 << 10;
/// Bytes of the largest control frame, with the mask of a client.
const CONTROL_BYTES_MAX: usize = 131;
/// Bytes of a control frame in addition to its content.
const CONTROL_HEAD_BYTES: usize = 6;
/// Bytes of the largest head of a frame.
const HEAD_BYTES_MAX: usize = 14;
/// Bytes for pongs, including the pong that passes the bound, and for the answer to a close.
const CONTROL_ROOM_BYTES: usize = PONG_BYTES_MAX + 2 * CONTROL_BYTES_MAX;

/// Pongs that the library has buffered and that the socket may not have taken.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pongs {
    bytes: usize,
}

impl Pongs {
    /// Records a ping with `content_bytes` of content, whose pong the library has buffered.
    pub const fn add_pong(&mut self, content_bytes: usize) {
        self.bytes = self.bytes.saturating_add(content_bytes).saturating_add(CONTROL_HEAD_BYTES);
    }

    /// Records that the socket has taken all pongs.
    pub const fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Whether pongs may wait for the socket.
    #[must_use]
    pub const fn are_pending(&self) -> bool {
        self.bytes > 0
    }

    /// Whether more may be read before the pongs are taken.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.bytes < PONG_BYTES_MAX
    }
}

/// Buffer sizes for the library.
#[derive(Clone, Copy, Debug)]
pub struct BufferSizes {
    /// Bytes read at once; the library keeps this buffer for the connection.
    pub read_bytes: usize,
    /// Buffered bytes above which written frames are passed to the socket.
    pub write_bytes: usize,
    /// Maximum content bytes of a written frame.
    pub written_frame_bytes_max: usize,
    /// Maximum content bytes of a message that is read, and of a frame.
    pub message_bytes_max: usize,
}

impl BufferSizes {
    /// Maximum bytes that the library buffers for writing.
    #[must_use]
    pub const fn write_bytes_max(&self) -> usize {
        self.write_bytes
            .saturating_add(self.written_frame_bytes_max)
            .saturating_add(HEAD_BYTES_MAX + CONTROL_ROOM_BYTES)
    }

    /// Configuration for the library with these sizes. Every connection must use it.
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
