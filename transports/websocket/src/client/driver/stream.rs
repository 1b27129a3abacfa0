//! The stream below a connection. It limits the bytes that are read before the welcome. A server
//! that sends endless bytes instead of a welcome therefore cannot fill the memory of a client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connected;

/// Maximum of bytes of an upgrade and a welcome, including pings.
const BYTES_BEFORE_WELCOME_MAX: usize = 64 << 10;

/// A stream to a broker.
pub(super) struct BrokerStream {
    stream: Box<dyn Connected>,
    /// Bytes that may still be read before the welcome; none after it.
    left_bytes: Option<usize>,
}

impl BrokerStream {
    /// Makes the stream of a new connection.
    pub(super) const fn new(stream: Box<dyn Connected>) -> Self {
        Self { stream, left_bytes: Some(BYTES_BEFORE_WELCOME_MAX) }
    }

    /// Notes that the broker has sent its welcome.
    pub(super) const fn welcomed(&mut self) {
        self.left_bytes = None;
    }
}

impl AsyncRead for BrokerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(left) = &mut this.left_bytes else {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        };
        if *left == 0 {
            let text = format!(
                "the other side sent {BYTES_BEFORE_WELCOME_MAX} bytes and no welcome; is it a broker?"
            );
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let most = buffer.remaining().min(*left);
        let mut more = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut more))?;
        let read = more.filled().len();
        *left -= read;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BrokerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
