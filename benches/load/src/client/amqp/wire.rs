//! The socket, and the frames on it. `connection.rs` drives it. Output that waits is bounded.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Buf as _;
use peeklock::tls::ClientTls;
use peeklock_amqp_testing::client::Frames;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::AmqpFault;
use peeklock::tls::place::{Place, PlaceStream};

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Maximum output: nothing is added while more bytes wait to be written.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A socket with frames.
pub(super) struct Wire {
    stream: Box<dyn PlaceStream>,
    pub(super) frames: Frames,
}

impl Wire {
    pub(super) async fn connect(place: &Place, tls: &ClientTls) -> Result<Self, AmqpFault> {
        let stream = place.connect(tls).await?;
        Ok(Self { stream, frames: Frames::default() })
    }

    /// Whether the output is full, so that no message may be added.
    pub(super) fn is_full(&self) -> bool {
        self.frames.output.len() >= OUTPUT_BYTES_MAX
    }

    /// Ready after bytes were read or written. Cancel-safe.
    pub(super) async fn turn(&mut self) -> Result<(), AmqpFault> {
        poll_fn(|context| {
            let wrote = self.write(context)?;
            // Reads even while output waits: a broker that cannot write does not read.
            if self.read(context)? || wrote { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    fn write(&mut self, context: &mut Context<'_>) -> Result<bool, AmqpFault> {
        let mut stream = Pin::new(&mut self.stream);
        if self.frames.output.is_empty() {
            // TLS may have retained bytes.
            return match stream.poll_flush(context) {
                Poll::Ready(flushed) => Ok(flushed.map(|()| false)?),
                Poll::Pending => Ok(false),
            };
        }
        match stream.as_mut().poll_write(context, &self.frames.output) {
            Poll::Ready(count) => {
                self.frames.output.advance(count?);
                Ok(true)
            }
            Poll::Pending => Ok(false),
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, AmqpFault> {
        self.frames.input.reserve(READ_BYTES);
        match pin!(self.stream.read_buf(&mut self.frames.input)).poll(context) {
            Poll::Ready(Ok(0)) => Err(AmqpFault::Closed),
            Poll::Ready(Ok(_)) => Ok(true),
            Poll::Ready(Err(error)) => Err(error.into()),
            Poll::Pending => Ok(false),
        }
    }
}
