//! What a connection is served over: a socket, what TLS makes of one, or AMQP over WebSocket.

use peeklock_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Bytes that were read below and are handed out only when more of them has come: they count
    /// among what has not arrived whole.
    fn withheld_bytes(&self) -> u64 {
        0
    }

    /// Whether the client has ended it in order, and not only gone.
    fn was_closed(&self) -> bool {
        false
    }

    /// Whether something that it has written by itself may not be taken yet, such as answers to pings.
    fn is_unflushed(&self) -> bool {
        false
    }

    /// Whether the end of what its client sends has arrived, whatever of it is unread.
    fn has_ended(&self) -> bool {
        false
    }
}

impl Socket for Stream {
    fn has_ended(&self) -> bool {
        // As the stream tells itself.
        Self::has_ended(self)
    }
}
