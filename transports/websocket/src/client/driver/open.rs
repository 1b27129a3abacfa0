//! Opens a connection: the upgrade, the hello, and the meaning of a refusal. `driver.rs` calls it
//! for each connection attempt.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_listen::websocket::{BufferSizes, PIECE_BYTES};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::{BrokerStream, Connected, Driver, OpenConnection, lost};
use crate::client::ClientTls;
use crate::error::code;
use crate::frame::text::Guid;
use crate::frame::{Encoding, Request, client_side};
use crate::operation::{Hello, Notice, Operation, Resume};

/// Size of the read buffer of a connection, in bytes; it is kept for the life of the connection.
const READ_BUFFER_BYTES: usize = 128 << 10;
/// Number of written bytes after which the buffer is flushed to the system.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Maximum length of the quoted text of an answer without an upgrade, in characters.
const REFUSAL_CHARS_MAX: usize = 300;

impl Driver {
    /// Opens a connection and sends the hello. On failure it also returns whether another attempt
    /// makes sense.
    pub(super) async fn open(&mut self) -> Result<OpenConnection, (Rejection, bool)> {
        match tokio::time::timeout(self.options.connect_timeout, self.try_open()).await {
            Ok(opened) => opened,
            Err(_) => Err((lost("the broker did not answer in time"), true)),
        }
    }

    async fn try_open(&mut self) -> Result<OpenConnection, (Rejection, bool)> {
        let again = |error: &dyn std::fmt::Display| (lost(&error.to_string()), true);
        let stream = match &self.options.connector {
            Some(connector) => connector.connect().await.map_err(|error| again(&error))?,
            None => self.stream().await?,
        };
        let mut request = format!("ws://{}/", self.address.host)
            .into_client_request()
            .map_err(|error| (Rejection::argument(error.to_string()), false))?;
        let encoding = self.options.encoding;
        let name = HeaderValue::from_static(encoding.subprotocol());
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
        let frame_bytes_max = self.options.frame_bytes_max;
        let sizes = BufferSizes {
            read_bytes: READ_BUFFER_BYTES.min(frame_bytes_max),
            write_bytes: WRITE_BUFFER_BYTES,
            written_frame_bytes_max: PIECE_BYTES,
            message_bytes_max: frame_bytes_max,
        };
        let stream = BrokerStream::new(stream);
        let upgraded = client_async_with_config(request, stream, Some(sizes.config())).await;
        let (mut socket, _) = upgraded.map_err(|error| match &error {
            SocketError::Http(response) => {
                let body = response.body().as_deref().unwrap_or_default();
                no_upgrade(response.status(), body)
            }
            SocketError::Io(_) if self.address.is_secure => again(&self.explain(error)),
            other => again(other),
        })?;
        let resume = self
            .resume_token
            .map(|token| Resume { resume_token: Guid(token), received: self.seen });
        let grace = u32::try_from(self.options.grace.as_secs()).unwrap_or(u32::MAX);
        let hello = Hello {
            token: self.credential.token(self.core.now()),
            client: self.options.name.as_deref().map(str::to_owned),
            heartbeat_seconds: None,
            grace_seconds: Some(grace),
            resume,
        };
        let hello = [Request { id: 1, operation: Operation::Hello(hello) }];
        let bytes =
            client_side::encode(encoding, self.seen, &hello).map_err(|error| again(&error))?;
        socket.send(message(encoding, bytes.into())).await.map_err(|error| again(&error))?;
        loop {
            let answer = match socket.next().await {
                Some(Ok(SocketMessage::Binary(bytes))) => bytes,
                Some(Ok(SocketMessage::Text(text))) => text.into(),
                Some(Ok(SocketMessage::Close(frame))) => {
                    let (code, reason) = frame.map_or((0, String::new()), |frame| {
                        (u16::from(frame.code), frame.reason.to_string())
                    });
                    return Err((refused(code, &reason), may_come_back(code)));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(again(&error)),
                None => return Err((lost("the connection ended"), true)),
            };
            let frame = client_side::decode(encoding, &answer).map_err(|error| again(&error))?;
            return match frame.items.into_iter().next().map(|item| item.notice) {
                Some(Notice::Welcome(welcome)) => {
                    socket.get_mut().welcomed();
                    Ok(OpenConnection { socket, welcome })
                }
                Some(Notice::Error(error)) => {
                    let error = error.into_error();
                    Err((error.rejection().clone(), error.retryable()))
                }
                _ => Err((lost("the broker did not answer with welcome"), false)),
            };
        }
    }
}

impl Driver {
    /// Formats an error on an open stream. With TLS 1.3, a missing client certificate is reported
    /// only here.
    fn explain(&self, error: SocketError) -> String {
        match error {
            SocketError::Io(error) => ClientTls::explain(self.address.name(), error).to_string(),
            other => other.to_string(),
        }
    }

    /// Opens a socket to the broker, with TLS if the URL asks for it.
    async fn stream(&self) -> Result<Box<dyn Connected>, (Rejection, bool)> {
        let socket = TcpStream::connect(&self.address.host)
            .await
            .map_err(|error| (lost(&error.to_string()), true))?;
        socket.set_nodelay(true).ok();
        if !self.address.is_secure {
            return Ok(Box::new(socket));
        }
        // A certificate may be replaced while the client keeps trying, so this is not final.
        let secure = self.options.tls.connect(self.address.name(), socket).await;
        let secure = secure.map_err(|error| (lost(&error.to_string()), true))?;
        Ok(Box::new(secure))
    }
}

/// Error for an upgrade with another answer, and whether another attempt makes sense.
fn no_upgrade(status: StatusCode, body: &[u8]) -> (Rejection, bool) {
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(REFUSAL_CHARS_MAX).collect();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (Rejection::unauthorized(format!("{status}: {text}")), false)
        }
        // Answers of a WebSocket listener of the broker.
        StatusCode::BAD_REQUEST | StatusCode::MISDIRECTED_REQUEST => {
            (lost(&format!("{status}: {text}")), false)
        }
        _ if status.is_server_error() => (lost(&format!("{status}: {text}")), true),
        _ => {
            let detail = format!(
                "{status}: this answers HTTP, not the WebSocket protocol of Peeklock; is it the \
                 HTTP port?"
            );
            (lost(&detail), false)
        }
    }
}

/// Whether the client may come back after this close code.
pub(super) const fn may_come_back(code: u16) -> bool {
    matches!(code, 0 | 1_001 | 1_006 | 1_011..=1_014 | 4_100..=4_199)
}

/// Error of calls after this close.
pub(super) fn refused(code: u16, reason: &str) -> Rejection {
    let detail = format!("the broker closed the connection ({code}): {reason}");
    match code {
        code::UNAUTHORIZED => Rejection::unauthorized(detail),
        code::TRY_LATER => Rejection::new(Condition::QuotaExceeded, detail),
        _ => lost(&detail),
    }
}

pub(super) fn message(encoding: Encoding, bytes: Bytes) -> SocketMessage {
    match encoding {
        Encoding::Binary => SocketMessage::Binary(bytes),
        // Encoded JSON is always valid text.
        Encoding::Json => SocketMessage::Text(bytes.try_into().unwrap_or_default()),
    }
}
