//! AMQP over WebSocket (AMQP-17, AMQP-18): who may connect, and a socket whose bytes are those of messages.
//!
//! A message holds any run of bytes: frames of AMQP may be cut anywhere. What has arrived of one that is not
//! whole counts as other bytes do that wait for more.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::{Sink as _, Stream as _};
use peeklock_core::contract::browser::{Known, split_host};
use peeklock_listen::upgrade;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::{Message, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes as Payload, Error};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use super::site::Site;
use super::socket::Socket;

/// Where it is served, with or without slashes around it.
const PATH: &str = "$servicebus/websocket";
/// What clients call it; the one that is offered is echoed.
const SUBPROTOCOLS: [&str; 2] = ["amqp", "AMQPWSB10"];
/// A message of a client. Clients put one frame of AMQP into each, of which none is larger than 64 KiB here.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// What is put into one message.
const PIECE_BYTES: usize = 64 << 10;
/// What is read at once.
const READ_BYTES: usize = 8 << 10;

/// A socket over WebSocket.
pub(super) struct WebSocket<S> {
    stream: WebSocketStream<Below<S>>,
    /// What was not handed out of the last message.
    rest: Payload,
}

/// The socket below, with the byte that was read of it already.
pub(super) struct Below<S> {
    stream: S,
    first: Bytes,
    /// What was read of a message that is not whole.
    unfinished_bytes: u64,
}

/// Answers an upgrade; whether it came by a proxy comes with it. None if it was refused.
pub(super) async fn accept<S: Socket>(
    site: &Site,
    stream: S,
    first: &[u8],
) -> Option<(WebSocket<S>, bool)> {
    let below = Below { stream, first: Bytes::copy_from_slice(first), unfinished_bytes: 0 };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut by_proxy = false;
    #[expect(clippy::result_large_err, reason = "the library's type")]
    let judge = |request: &Request, response: Response| {
        by_proxy = upgrade::is_by_proxy(request);
        judge(site, request, response)
    };
    let mut stream = accept_hdr_async_with_config(below, judge, Some(config)).await.ok()?;
    stream.get_mut().unfinished_bytes = 0;
    Some((WebSocket { stream, rest: Payload::new() }, by_proxy))
}

/// Who may connect (SEC-23), where, and by which name.
#[expect(clippy::result_large_err, reason = "the library's type")]
fn judge(
    site: &Site,
    request: &Request,
    mut response: Response,
) -> Result<Response, ErrorResponse> {
    let config = &site.config;
    let known =
        Known { transport: "amqp", hosts: &config.allowed_hosts, origins: &config.allowed_origins };
    let host = upgrade::host(request, is_same_name);
    upgrade::check(known, &site.broker, host, request)?;
    if !is_served_at(request.uri().path()) {
        return Err(upgrade::refuse(
            StatusCode::NOT_FOUND,
            "this port is for AMQP, and at the path /$servicebus/websocket for AMQP over WebSocket; \
             Peeklock's own WebSocket and HTTP have ports of their own, 5301 and 5300 unless configured \
             otherwise",
        ));
    }
    let name = upgrade::subprotocols(request)
        .find(|name| SUBPROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(name)));
    let Some(name) = name.and_then(|name| HeaderValue::from_str(name).ok()) else {
        return Err(upgrade::refuse(
            StatusCode::BAD_REQUEST,
            "none of the subprotocols offered is known; offer amqp or AMQPWSB10",
        ));
    };
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok(response)
}

/// Whether AMQP over WebSocket is served at this path.
pub(super) fn is_served_at(path: &str) -> bool {
    // Python puts a slash of its own before it.
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.trim_matches('/').eq_ignore_ascii_case(PATH)
}

/// Whether two hosts have one name. Java writes it into the target with a port and into `Host` without (AMQP-18), so that
/// ports are not compared.
fn is_same_name(left: &str, right: &str) -> bool {
    let (Some((left, _)), Some((right, _))) = (split_host(left), split_host(right)) else {
        return false;
    };
    left.eq_ignore_ascii_case(right)
}

impl<S: Socket> Socket for WebSocket<S> {
    fn withheld_bytes(&self) -> u64 {
        let below = self.stream.get_ref();
        below.unfinished_bytes.saturating_add(below.stream.withheld_bytes())
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
        while self.rest.is_empty() {
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Ok(()));
            };
            match message.map_err(failed)? {
                Message::Binary(bytes) => {
                    self.stream.get_mut().unfinished_bytes = 0;
                    self.rest = bytes;
                }
                Message::Text(_) => {
                    let text = "a message of text is no AMQP: messages are binary";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Message::Close(_) => return Poll::Ready(Ok(())),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
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

    /// Puts as much as fits into one message.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.stream).poll_flush(context).map_err(failed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context).map_err(failed)
    }
}

impl<S: Socket> AsyncRead for Below<S> {
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
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.unfinished_bytes += (buffer.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Below<S> {
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
