//! The server side of the handshake. Listeners pass each accepted socket to
//! [`Acceptor::accept_on`]. Handshakes are limited in time and number, and a client without TLS
//! gets a readable answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, AlertDescription};

use crate::certificate;
use crate::source::Tls;
use crate::stream::Stream;

/// The first byte of a handshake (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;
/// Maximum bytes to read from a client without TLS before answering; unread bytes would make the
/// system drop the answer.
const UNREAD_BYTES_MAX: usize = 16 << 10;
/// Answer to an HTTP client without TLS.
const USE_TLS: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                       Content-Length: 66\r\nConnection: close\r\n\r\n\
                       this listener speaks TLS: use https:// or wss:// and not http, ws\n";

/// Protocol that a listener serves inside TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP or WebSocket: ALPN offers `http/1.1`.
    Http,
    /// HTTP, WebSocket or AMQP, distinguished by the first bytes inside TLS. ALPN as for HTTP.
    HttpOrAmqp,
    /// Any other protocol, without ALPN.
    Other,
}

impl Protocol {
    /// Returns whether a client without TLS whose first byte is `first` can read an HTTP answer.
    fn is_http(self, first: [u8; 1]) -> bool {
        match self {
            Self::Http => true,
            // AMQP begins with the letters of its name.
            Self::HttpOrAmqp => first != *b"A",
            Self::Other => false,
        }
    }
}

/// Wraps a listener's sockets into streams. Clones share the certificate in use.
#[derive(Clone, Debug)]
pub struct Acceptor {
    tls: Arc<Tls>,
    protocol: Protocol,
}

/// Reason why a socket was closed before any data was exchanged.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The client does not use TLS.
    #[error("the client does not use TLS")]
    NotTls,
    /// The handshake exceeded the time limit (TLS-03).
    #[error("the handshake took longer than `tls.handshake_timeout`")]
    TimedOut,
    /// The handshake was ended to make room for another client (TLS-03).
    #[error(
        "the handshake was the oldest of `tls.handshake_count_max` and was closed for another \
         client"
    )]
    Evicted,
    /// The sides have no common settings, or the client's certificate is not valid (TLS-01,
    /// TLS-04).
    #[error("the handshake failed: {0}")]
    Failed(#[source] io::Error),
}

impl HandshakeError {
    /// Returns the label that refused handshakes are counted under.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::TimedOut => "late",
            Self::Evicted => "made_room",
            Self::Failed(_) => "failed",
        }
    }
}

impl HandshakeError {
    /// Returns advice for the operator, if action is needed. A port scan or a slow client needs
    /// none.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NotTls => Some(
                "the client connects without TLS to an address with TLS; give it https://, wss:// \
                 or amqps://, or a connection string without UseDevelopmentEmulator=true",
            ),
            Self::Failed(error) => match tls_error(error)? {
                rustls::Error::AlertReceived(alert) if is_trust_alert(*alert) => Some(
                    "the client does not trust the certificate of this broker, or its name is not \
                     in it; `peeklock tls show` prints names and issuer, `peeklock tls trust` the \
                     steps to trust the development authority",
                ),
                rustls::Error::AlertReceived(_) => Some("the client has ended the handshake"),
                _ => Some("client and broker found no common TLS settings"),
            },
            Self::TimedOut | Self::Evicted => None,
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns whether this alert means that the client rejects the certificate.
const fn is_trust_alert(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnrecognisedName
    )
}

impl Acceptor {
    pub(crate) const fn new(tls: Arc<Tls>, protocol: Protocol) -> Self {
        Self { tls, protocol }
    }

    /// Returns the maximum number of concurrent handshakes over all listeners (TLS-03).
    #[must_use]
    pub fn handshake_count_max(&self) -> usize {
        self.tls.config.handshake_count_max
    }

    /// Returns a stream over a socket: the plain socket if no acceptor is configured, otherwise
    /// TLS. A failed handshake is counted, logged and closed here.
    ///
    /// # Errors
    /// Returns the reason for a failed handshake. Waits for at most `tls.handshake_timeout`.
    pub async fn accept_on(
        configured: Option<&Self>,
        socket: TcpStream,
    ) -> Result<Stream, HandshakeError> {
        let Some(acceptor) = configured else { return Ok(Stream::plain(socket)) };
        let peer = socket.peer_addr().ok();
        let accepted = acceptor.accept(socket).await;
        if let Err(refused) = &accepted {
            peeklock_core::telemetry::count_refused_handshake(refused.cause());
            acceptor.log(peer, refused);
        }
        accepted
    }

    /// Logs a failed handshake: as a warning if the operator must act, with a limit on the number
    /// of warnings.
    fn log(&self, peer: Option<SocketAddr>, refused: &HandshakeError) {
        let admitted = |advice| Some((advice, self.tls.lines.admit(Instant::now())?));
        let line = refused.advice().and_then(admitted);
        let peer = peer.map(tracing::field::display);
        match line {
            Some((advice, left_out)) => {
                let left_out = (left_out > 0).then_some(left_out);
                tracing::warn!(peer, %refused, left_out, "no TLS connection: {advice}");
            }
            None => tracing::debug!(peer, %refused, "no connection"),
        }
    }

    async fn accept(&self, socket: TcpStream) -> Result<Stream, HandshakeError> {
        let opening = self.tls.handshakes.begin();
        let time = self.tls.config.handshake_timeout;
        tokio::select! {
            biased;
            () = opening.evicted() => Err(HandshakeError::Evicted),
            agreed = tokio::time::timeout(time, self.agree(socket)) => {
                agreed.unwrap_or(Err(HandshakeError::TimedOut))
            }
        }
    }

    async fn agree(&self, mut socket: TcpStream) -> Result<Stream, HandshakeError> {
        let mut first = [0];
        let count = socket.peek(&mut first).await.map_err(HandshakeError::Failed)?;
        if count == 0 {
            return Err(HandshakeError::Failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if first != [HANDSHAKE] {
            if self.protocol.is_http(first) {
                // A write error means that the client has already disconnected.
                send_http_answer(&mut socket).await.ok();
            }
            return Err(HandshakeError::NotTls);
        }
        let acceptor = TlsAcceptor::from(self.tls.server_config(self.protocol));
        let stream = acceptor.accept(socket).await.map_err(HandshakeError::Failed)?;
        let (_, connection) = stream.get_ref();
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        let identity = shown.map(certificate::identity).transpose().map_err(|error| {
            HandshakeError::Failed(io::Error::new(io::ErrorKind::InvalidData, error))
        })?;
        Ok(Stream::secure(stream, identity))
    }
}

/// Sends the HTTP answer. Reads the pending bytes first, because unread bytes could make the system
/// drop the answer.
async fn send_http_answer(socket: &mut TcpStream) -> io::Result<()> {
    let mut unread = vec![0; UNREAD_BYTES_MAX];
    socket.readable().await?;
    socket.try_read(&mut unread)?;
    socket.write_all(USE_TLS.as_bytes()).await?;
    socket.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::USE_TLS;

    #[test]
    fn the_answer_has_its_length() {
        let (head, body) = USE_TLS.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
