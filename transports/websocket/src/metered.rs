//! A socket that counts its bytes. The part of an incomplete frame beyond a small free part needs
//! memory that all connections of the listener share; without it, the socket is not read. A slow
//! client loses its memory to waiting clients (`Pool`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use peeklock_core::admission::{Evicted, Pace, PacedShare, arriving_step};
use peeklock_core::contract::Principal;
use peeklock_listen::websocket::FrameSplitter;
use peeklock_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::progress::Progress;

/// Bytes of an incomplete frame that need no shared memory.
const FREE_BYTES: u64 = 16 << 10;
/// Minimum pace in bytes per second at which an incomplete frame must arrive.
const PACE_BYTES: u64 = 16 << 10;

/// The socket of one connection.
pub(crate) struct Metered {
    stream: Stream,
    share: PacedShare,
    /// Maximum time for a frame without progress.
    patience: Duration,
    /// Received bytes of an incomplete message; of the upgrade, all received bytes.
    unfinished_bytes: u64,
    /// The position within the client's frames, after the upgrade.
    progress: Option<Progress>,
    /// Splits frames for the reader, after the upgrade.
    pieces: Option<FrameSplitter>,
    /// The pace of the incomplete frame.
    pace: Option<Pace>,
    written_bytes: u64,
    /// Whether a proxy forwards another client (SEC-17).
    by_proxy: bool,
}

impl Metered {
    pub(crate) fn new(
        stream: Stream,
        share: PacedShare,
        patience: Duration,
        frame_bytes_max: usize,
    ) -> Self {
        Self {
            stream,
            share,
            patience,
            unfinished_bytes: 0,
            progress: None,
            pieces: Some(FrameSplitter::new(frame_bytes_max)),
            pace: None,
            written_bytes: 0,
            by_proxy: false,
        }
    }

    /// Records that a proxy forwards another client.
    pub(crate) const fn mark_by_proxy(&mut self) {
        self.by_proxy = true;
    }

    /// Records that a frame, or the upgrade before the first, is complete: its memory is released,
    /// because the reader has its own limits. After a ping within a message, the bytes of the
    /// message stay counted, at its pace.
    pub(crate) fn frame_taken(&mut self) {
        let progress = self.progress.get_or_insert_default();
        self.unfinished_bytes = progress.message_bytes();
        let (is_under_way, has_ended) = (progress.is_under_way(), progress.take_ended());
        if is_under_way && !has_ended {
            return;
        }
        self.pace = is_under_way.then(|| self.begin());
        self.share.release();
    }

    /// Whether bytes of an incomplete message have arrived.
    pub(crate) const fn has_read(&self) -> bool {
        self.unfinished_bytes > 0
    }

    /// Whether an incomplete frame arrives too slowly.
    pub(crate) fn is_late(&self) -> bool {
        self.pace.is_some_and(|pace| pace.is_slow(Instant::now()))
    }

    /// Whether it must release the memory of received bytes.
    pub(crate) fn was_evicted(&self) -> bool {
        self.share.was_evicted()
    }

    /// Restarts the pace of an incomplete frame after a time without reading.
    pub(crate) fn restart(&mut self) {
        self.pace = self.pace.map(|_| self.begin());
    }

    fn begin(&self) -> Pace {
        Pace::begin(Instant::now(), self.unfinished_bytes, self.patience).at_least(PACE_BYTES)
    }

    /// Whether the end of the client's stream has arrived, even behind unread bytes.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// Bytes that the system has accepted, in total.
    pub(crate) const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The principal of a client without a token: its address and its certificate.
    pub(crate) fn principal(&self) -> Principal {
        let principal = self.stream.principal();
        if self.by_proxy { principal.through_proxy() } else { principal }
    }

    const fn allowed_bytes(&self) -> u64 {
        FREE_BYTES + self.share.held_bytes()
    }

    /// Reserves more shared memory.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let whole_bytes = self.progress.as_ref().and_then(Progress::announced_bytes);
        let step = arriving_step(whole_bytes, self.allowed_bytes()).min(self.share.bytes_max());
        let granted = self.share.poll_wait(step, self.unfinished_bytes, context);
        granted.map_err(|Evicted| slow())
    }
}

/// The error for a frame that arrives too slowly.
fn slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a frame arrives slowly while other clients wait")
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.progress.is_none() {
            return this.poll_more(context, buffer);
        }
        // `pieces` is taken while it reads; `poll_more` counts the bytes that it reads.
        let Some(mut pieces) = this.pieces.take() else { return this.poll_more(context, buffer) };
        let read = pieces.poll_read(buffer, |more| this.poll_more(context, more));
        this.pieces = Some(pieces);
        read
    }
}

impl Metered {
    /// Reads from the client if memory is available.
    fn poll_more(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self;
        while this.unfinished_bytes >= this.allowed_bytes() {
            ready!(this.poll_room(context))?;
        }
        let before = buffer.filled().len();
        if Pin::new(&mut this.stream).poll_read(context, buffer)?.is_pending() {
            if this.share.is_evicted(this.unfinished_bytes, Instant::now(), context) {
                return Poll::Ready(Err(slow()));
            }
            return Poll::Pending;
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        match &mut this.progress {
            Some(progress) => {
                progress.pass(read);
                this.unfinished_bytes = progress.message_bytes();
            }
            None => this.unfinished_bytes += read.len() as u64,
        }
        if let Some(pace) = &mut this.pace {
            pace.pass(this.unfinished_bytes, 0, Instant::now());
        } else if !read.is_empty() {
            this.pace = Some(this.begin());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.written_bytes += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
