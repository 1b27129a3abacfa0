//! Writes output and closes connections whose client reads too slowly. The framework calls it
//! through `AsyncWrite`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use peeklock_core::admission::{Pace, Timer};
use tokio::io::AsyncWrite;

use super::Socket;

/// Minimum pace in bytes per second at which a client must read an answer.
const WRITE_PACE_BYTES: u64 = 4 << 10;
/// Interval between checks of a blocked write.
const WRITE_LOOK: Duration = Duration::from_millis(250);

/// Output that the peer has not taken.
pub(super) struct Writing {
    pace: Pace,
    written_bytes: u64,
    timer: Timer,
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        match Pin::new(stream).poll_write(context, bytes)? {
            Poll::Ready(written) => {
                if let Some(writing) = &mut this.writing {
                    writing.written_bytes += written as u64;
                }
                Poll::Ready(Ok(written))
            }
            Poll::Pending => Poll::Ready(Err(ready!(this.poll_unread(context)))),
        }
    }

    /// Called after the framework has written all its output.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // TLS may still hold encrypted bytes.
        let Some(stream) = &mut this.stream else { return Poll::Ready(Ok(())) };
        if Pin::new(stream).poll_flush(context)?.is_pending() {
            return Poll::Ready(Err(ready!(this.poll_unread(context))));
        }
        this.writing = None;
        if this.connection.flushed() {
            this.answered();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Socket {
    /// Waits while the peer does not read; ready with an error if it takes too long.
    fn poll_unread(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let now = Instant::now();
        let (connection, patience) = (&self.connection, self.site.config.write_timeout);
        let writing = self.writing.get_or_insert_with(|| {
            connection.write_begins(now);
            let pace = Pace::begin(now, 0, patience).at_least(WRITE_PACE_BYTES);
            Writing { pace, written_bytes: 0, timer: Timer::default() }
        });
        writing.pace.pass(writing.written_bytes, 0, now);
        if writing.pace.is_slow(now) || connection.must_release(writing.written_bytes, context) {
            return Poll::Ready(slow_reader());
        }
        let look = writing.pace.slow_from().min(now + WRITE_LOOK);
        writing.timer.poll(look, context).map(|()| slow_reader())
    }
}

/// The error for an answer that is read too slowly, or while others wait for its memory.
fn slow_reader() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client reads the response too slowly")
}
