//! AMQP over WebSocket (AMQP-17, AMQP-18): checks of an upgrade, and a socket whose bytes are the
//! contents of binary messages.
//!
//! A message may hold any bytes: frames of AMQP may be cut anywhere. The bytes of an incomplete
//! message count as bytes of incomplete AMQP messages. Pings and pongs, which may come within a
//! message, do not count: they neither delay nor complete anything.
//!
//! While the client accepts no pongs, only a few further pings are read ([`Pongs`]).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::{Sink as _, Stream as _};
use peeklock_core::condition::Condition;
use peeklock_core::contract::browser::{HeaderRules, split_host};
use peeklock_core::error::Rejection;
use peeklock_listen::upgrade;
use peeklock_listen::websocket::{BufferSizes, FrameSplitter, PIECE_BYTES, Pongs};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tokio_tungstenite::tungstenite::{Bytes as Payload, Error};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use super::listener_state::ListenerState;
use super::turn::Socket;

/// Path of the upgrade, with or without slashes around it.
const PATH: &str = "$servicebus/websocket";
/// Hint for clients that send another request to this port.
const INSTEAD: &str = "this port serves AMQP, and AMQP over WebSocket at the path \
    /$servicebus/websocket; use the ports of Peeklock's own WebSocket and HTTP, by default 5301 \
    and 5300";
/// Subprotocols that clients offer; the response repeats the offered one.
const SUBPROTOCOLS: [&str; 2] = ["amqp", "AMQPWSB10"];
/// Maximum size of a message from a client, in bytes. Clients put one AMQP frame into each message,
/// and frames have at most 64 KiB here.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes read for one message. Its pieces may be small, but their heads count
/// too.
const UNFINISHED_BYTES_MAX: u64 = 2 * MESSAGE_BYTES_MAX as u64;
/// Length of a client's ping or pong without its content: head and mask.
const CONTROL_HEAD_BYTES: u64 = 6;
/// Maximum number of pings and pongs that are handled in one poll.
const CONTROLS_PER_TURN: usize = 256;
/// Buffer sizes of the library.
const SIZES: BufferSizes = BufferSizes {
    read_bytes: 8 << 10,
    // Each message is written to the socket immediately.
    write_bytes: 0,
    written_frame_bytes_max: PIECE_BYTES,
    message_bytes_max: MESSAGE_BYTES_MAX,
};

/// A socket over WebSocket.
pub(super) struct WebSocket<S> {
    stream: WebSocketStream<LowerSocket<S>>,
    /// Bytes of the last message that were not read from this socket yet.
    rest: Payload,
    /// Size of that message, which stays in memory until all its bytes are read.
    rest_message_bytes: u64,
    /// Pongs that wait for the client.
    pongs: Pongs,
    /// Whether the client has closed the connection with the code of a normal closure.
    was_closed: bool,
}

/// The socket below WebSocket, with the byte that was already read from it.
pub(super) struct LowerSocket<S> {
    stream: S,
    first: Bytes,
    /// Number of bytes read of an incomplete message.
    unfinished_bytes: u64,
    /// Cuts the bytes for the library, after the upgrade.
    pieces: Option<FrameSplitter>,
}

/// Answers an upgrade. Returns the socket and whether the request came through a proxy; `None` if
/// it was refused.
pub(super) async fn accept<S: Socket>(
    listener: &ListenerState,
    peer: Option<SocketAddr>,
    stream: S,
    first: &[u8],
) -> Option<(WebSocket<S>, bool)> {
    let mut below = LowerSocket::new(stream, Bytes::copy_from_slice(first));
    let config = SIZES.config();
    let mut by_proxy = false;
    #[expect(clippy::result_large_err, reason = "the library's type")]
    let judge = |request: &Request, response: Response| {
        by_proxy = upgrade::is_by_proxy(request);
        judge(listener, peer, request, response)
    };
    // Nothing is read after the request: a client that sends more before the response is refused.
    let accepting = accept_hdr_async_with_config(&mut below, judge, Some(config));
    let accepted = tokio::time::timeout(listener.config.opening_timeout, accepting).await;
    match accepted.map(|accepted| accepted.map(drop)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            upgrade::answer_invalid_upgrade(&listener.broker, &mut below, &error, INSTEAD).await;
            return None;
        }
        Err(_) => {
            upgrade::answer_late_request(&listener.broker, &mut below, INSTEAD).await;
            return None;
        }
    }
    Some((WebSocket::upgraded(below).await, by_proxy))
}

/// Checks the origin and host of a request (SEC-23), its path, and its subprotocol.
#[expect(clippy::result_large_err, reason = "the library's type")]
fn judge(
    listener: &ListenerState,
    peer: Option<SocketAddr>,
    request: &Request,
    mut response: Response,
) -> Result<Response, ErrorResponse> {
    let broker = &listener.broker;
    let config = &listener.config;
    let known = HeaderRules {
        transport: "amqp",
        hosts: &config.allowed_hosts,
        origins: &config.allowed_origins,
    };
    let host = upgrade::host(request, is_same_name);
    upgrade::check_origin_and_host(known, (broker, &listener.strangers), peer, host, request)?;
    if !is_served_at(request.uri().path()) {
        let rejection = Rejection::new(Condition::EntityNotFound, INSTEAD);
        return Err(upgrade::refuse(broker, StatusCode::NOT_FOUND, rejection));
    }
    let instead = "credentials must not be in the URL: put a token to $cbs, or send a name and a \
        key over SASL";
    upgrade::check_no_query_or_body(broker, request, instead)?;
    let name = upgrade::subprotocols(request)
        .find(|name| SUBPROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(name)));
    let Some(name) = name.and_then(|name| HeaderValue::from_str(name).ok()) else {
        let rejection = Rejection::argument(
            "none of the offered subprotocols is supported; offer amqp or AMQPWSB10",
        );
        return Err(upgrade::refuse(broker, StatusCode::BAD_REQUEST, rejection));
    };
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok(response)
}

/// Returns whether AMQP over WebSocket is served at this path.
pub(super) fn is_served_at(path: &str) -> bool {
    // The Python SDK adds a slash before the path.
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.trim_matches('/').eq_ignore_ascii_case(PATH)
}

/// Returns whether two hosts have the same name. Ports are not compared: the Java SDK writes one
/// into the request target and none into `Host` (AMQP-18).
fn is_same_name(left: &str, right: &str) -> bool {
    let (Some((left, _)), Some((right, _))) = (split_host(left), split_host(right)) else {
        return false;
    };
    left.eq_ignore_ascii_case(right)
}

impl<S: Socket> WebSocket<S> {
    /// Makes a socket after its upgrade.
    async fn upgraded(mut below: LowerSocket<S>) -> Self {
        below.unfinished_bytes = 0;
        below.pieces = Some(FrameSplitter::new(MESSAGE_BYTES_MAX));
        let config = Some(SIZES.config());
        let stream = WebSocketStream::from_raw_socket(below, Role::Server, config).await;
        Self {
            stream,
            rest: Payload::new(),
            rest_message_bytes: 0,
            pongs: Pongs::default(),
            was_closed: false,
        }
    }

    /// Writes all bytes that the library has buffered.
    fn poll_taken(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context)).map_err(failed)?;
        self.pongs.clear();
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> Socket for WebSocket<S> {
    fn withheld_bytes(&self) -> u64 {
        let below = self.stream.get_ref();
        let of_rest = if self.rest.is_empty() { 0 } else { self.rest_message_bytes };
        of_rest.saturating_add(below.unfinished_bytes).saturating_add(below.stream.withheld_bytes())
    }

    fn was_closed(&self) -> bool {
        self.was_closed
    }

    fn has_ended(&self) -> bool {
        self.stream.get_ref().stream.has_ended()
    }

    fn is_unflushed(&self) -> bool {
        self.pongs.are_pending()
    }
}

fn failed(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl<S: Socket> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut passed_over = 0;
        while self.rest.is_empty() {
            if passed_over == CONTROLS_PER_TURN {
                // Lets other tasks of this thread run.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.pongs.may_read() {
                ready!(self.poll_taken(context))?;
            }
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Ok(()));
            };
            match message.map_err(failed)? {
                Message::Binary(bytes) => {
                    self.stream.get_mut().unfinished_bytes = 0;
                    self.rest_message_bytes = bytes.len() as u64;
                    self.rest = bytes;
                }
                Message::Text(_) => {
                    let text = "a text message is not AMQP; send binary messages";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Message::Close(close) => {
                    let code = close.map(|close| close.code);
                    self.was_closed = code == Some(CloseCode::Normal);
                    return Poll::Ready(Ok(()));
                }
                Message::Ping(content) => {
                    passed_over += 1;
                    self.stream.get_mut().subtract_control_frame(content.len() as u64);
                    self.pongs.add_pong(content.len());
                }
                Message::Pong(content) => {
                    passed_over += 1;
                    self.stream.get_mut().subtract_control_frame(content.len() as u64);
                }
                Message::Frame(_) => {}
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for WebSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    /// Puts as many bytes as fit into one message.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.pongs.are_pending() {
            // New bytes are accepted only after the pongs.
            ready!(self.poll_taken(context))?;
        }
        ready!(Pin::new(&mut self.stream).poll_ready(context)).map_err(failed)?;
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>().min(PIECE_BYTES);
        let mut message = Vec::with_capacity(length);
        for piece in pieces {
            let room = length - message.len();
            message.extend_from_slice(piece.get(..room).unwrap_or(piece));
        }
        let message = Message::Binary(message.into());
        Pin::new(&mut self.stream).start_send(message).map_err(failed)?;
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_taken(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context).map_err(failed)
    }
}

impl<S> LowerSocket<S> {
    /// Makes a socket before its upgrade; the bytes of `first` were already read.
    const fn new(stream: S, first: Bytes) -> Self {
        Self { stream, first, unfinished_bytes: 0, pieces: None }
    }

    /// Subtracts a ping or pong with this content from the bytes of the incomplete message.
    const fn subtract_control_frame(&mut self, content_bytes: u64) {
        let bytes = CONTROL_HEAD_BYTES.saturating_add(content_bytes);
        self.unfinished_bytes = self.unfinished_bytes.saturating_sub(bytes);
    }
}

impl<S: Socket> AsyncRead for LowerSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.first.has_remaining() {
            let count = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let Some(pieces) = &mut this.pieces else {
            return poll_counted(&mut this.stream, &mut this.unfinished_bytes, context, buffer);
        };
        pieces.poll_read(buffer, |more| {
            poll_counted(&mut this.stream, &mut this.unfinished_bytes, context, more)
        })
    }
}

/// Reads, and counts the bytes as part of an incomplete message.
fn poll_counted<S: Socket>(
    stream: &mut S,
    unfinished_bytes: &mut u64,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if *unfinished_bytes > UNFINISHED_BYTES_MAX {
        let text = "a message of AMQP over WebSocket has too many pieces";
        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
    }
    let before = buffer.filled().len();
    ready!(Pin::new(stream).poll_read(context, buffer))?;
    *unfinished_bytes += (buffer.filled().len() - before) as u64;
    Poll::Ready(Ok(()))
}

impl<S: Socket> AsyncWrite for LowerSocket<S> {
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const PING: u8 = 0x89;
    const PONG: u8 = 0x8a;
    const BINARY_BEGUN: u8 = 0x02;
    const CONTINUED: u8 = 0x00;
    const CONTINUED_LAST: u8 = 0x80;

    impl Socket for DuplexStream {}

    async fn socket() -> (DuplexStream, WebSocket<DuplexStream>) {
        let (client, stream) = duplex(1 << 20);
        (client, WebSocket::upgraded(LowerSocket::new(stream, Bytes::new())).await)
    }

    /// Makes a frame of a client with a mask of zeros.
    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, 0x80 | u8::try_from(content.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(content);
        frame
    }

    /// Polls the socket once; `None` if it is pending.
    async fn read(socket: &mut WebSocket<DuplexStream>) -> Option<io::Result<usize>> {
        let mut room = [0; 64];
        // Tokio makes a task wait that reads and writes without end.
        tokio::task::yield_now().await;
        poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(&mut *socket).poll_read(context, &mut buffer);
            Poll::Ready(match read {
                Poll::Ready(read) => Some(read.map(|()| buffer.filled().len())),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// AMQP-17: any number of pings leaves no bytes of an incomplete message, and does not count as
    /// progress of a message that has begun.
    #[tokio::test]
    async fn pings_leave_nothing_unfinished() {
        let (mut client, mut socket) = socket().await;
        for _ in 0..1_000 {
            client.write_all(&frame(PING, b"there?")).await.unwrap();
            client.write_all(&frame(PONG, b"")).await.unwrap();
            assert!(read(&mut socket).await.is_none());
            // Its pong.
            client.read_exact(&mut [0; 8]).await.unwrap();
        }
        assert_eq!(socket.withheld_bytes(), 0);
        client.write_all(&frame(BINARY_BEGUN, b"part")).await.unwrap();
        assert!(read(&mut socket).await.is_none());
        let withheld_bytes = socket.withheld_bytes();
        assert_eq!(withheld_bytes, 10);
        client.write_all(&frame(PING, &[0; 125])).await.unwrap();
        assert!(read(&mut socket).await.is_none());
        assert_eq!(socket.withheld_bytes(), withheld_bytes);
        client.write_all(&frame(CONTINUED_LAST, b"s")).await.unwrap();
        assert_eq!(read(&mut socket).await.unwrap().unwrap(), 5);
        assert_eq!(socket.withheld_bytes(), 0);
    }

    /// AMQP-17: if a client accepts no pongs, a limited number of its pings is read; reading goes
    /// on when it accepts them.
    #[tokio::test]
    async fn pings_are_not_read_while_pongs_are_not_taken() {
        let (client, stream) = duplex(1 << 10);
        let mut socket = WebSocket::upgraded(LowerSocket::new(stream, Bytes::new())).await;
        let (mut pongs, mut pings) = tokio::io::split(client);
        let pinging = tokio::spawn(async move {
            for _ in 0..1_000 {
                pings.write_all(&frame(PING, &[0; 125])).await.unwrap();
            }
            pings.write_all(&frame(0x82, b"whole")).await.unwrap();
            pings
        });
        for _ in 0..2_000 {
            assert!(read(&mut socket).await.is_none());
        }
        assert!(socket.is_unflushed() && !pinging.is_finished());
        let taking = tokio::spawn(async move {
            tokio::io::copy(&mut pongs, &mut tokio::io::sink()).await.unwrap();
        });
        let read = loop {
            if let Some(read) = read(&mut socket).await {
                break read.unwrap();
            }
        };
        assert_eq!(read, 5);
        drop((pinging.await.unwrap(), socket));
        taking.await.unwrap();
    }

    /// AMQP-17: a message may come in small pieces, but not in unlimited numbers, even if they are
    /// empty.
    #[tokio::test]
    async fn a_message_of_empty_pieces_has_an_end() {
        let (mut client, mut socket) = socket().await;
        client.write_all(&frame(BINARY_BEGUN, b"")).await.unwrap();
        let pieces = frame(CONTINUED, b"").repeat(1_000);
        for _ in 0..UNFINISHED_BYTES_MAX / 6_000 {
            client.write_all(&pieces).await.unwrap();
            assert!(read(&mut socket).await.is_none());
        }
        client.write_all(&pieces).await.unwrap();
        client.write_all(&pieces).await.unwrap();
        assert!(matches!(read(&mut socket).await, Some(Err(_))));
    }
}
