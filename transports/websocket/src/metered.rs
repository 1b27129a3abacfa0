//! A socket that counts what it has read of a frame that has not arrived whole. Beyond a small free
//! part it needs room of the listener's budget, and is not read while there is none (DESIGN D6).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use peeklock_core::permits::{Budget, Permit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What every connection may have read without room of the budget.
const FREE_BYTES: u64 = 16 << 10;
/// How much room is taken at once.
const STEP_BYTES: u64 = 64 << 10;

type Waiting = Pin<Box<dyn Future<Output = Permit> + Send>>;

/// The socket.
pub(crate) struct Metered {
    stream: TcpStream,
    budget: Budget,
    unfinished_bytes: u64,
    permits: Vec<Permit>,
    waiting: Option<Waiting>,
}

impl Metered {
    pub(crate) const fn new(stream: TcpStream, budget: Budget) -> Self {
        Self { stream, budget, unfinished_bytes: 0, permits: Vec::new(), waiting: None }
    }

    /// A frame has arrived whole: its room is given back, the reader has its own bounds.
    pub(crate) fn frame_taken(&mut self) {
        self.unfinished_bytes = 0;
        self.permits.clear();
        self.waiting = None;
    }

    /// Whether a frame has begun and not ended.
    pub(crate) const fn has_unfinished_frame(&self) -> bool {
        self.unfinished_bytes > 0
    }

    /// Where its client is.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    const fn allowed_bytes(&self) -> u64 {
        FREE_BYTES + STEP_BYTES * self.permits.len() as u64
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unfinished_bytes >= this.allowed_bytes() {
            let waiting = this.waiting.get_or_insert_with(|| {
                let budget = this.budget.clone();
                Box::pin(async move { budget.acquire(STEP_BYTES).await })
            });
            let permit = ready!(waiting.as_mut().poll(context));
            this.waiting = None;
            this.permits.push(permit);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.unfinished_bytes += (buffer.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
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
