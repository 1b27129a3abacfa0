//! What a listener reads and writes: a socket, or TLS on it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use peeklock_core::contract::{Principal, TlsIdentity};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection of a listener.
pub struct Stream(Inner);

enum Inner {
    Plain(TcpStream),
    Secure(Box<Secure>),
}

struct Secure {
    stream: TlsStream<TcpStream>,
    identity: Option<TlsIdentity>,
}

impl Stream {
    /// Without TLS.
    #[must_use]
    pub const fn plain(socket: TcpStream) -> Self {
        Self(Inner::Plain(socket))
    }

    pub(crate) fn secure(stream: TlsStream<TcpStream>, identity: Option<TlsIdentity>) -> Self {
        Self(Inner::Secure(Box::new(Secure { stream, identity })))
    }

    /// Where its client is.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket().peer_addr().ok()
    }

    /// Who its client is by the certificate that it has shown, which was verified (TLS-04).
    #[must_use]
    pub fn identity(&self) -> Option<&TlsIdentity> {
        match &self.0 {
            Inner::Plain(_) => None,
            Inner::Secure(secure) => secure.identity.as_ref(),
        }
    }

    /// Its client, that has shown nothing yet but where it comes from, and its certificate.
    #[must_use]
    pub fn principal(&self) -> Principal {
        let principal = Principal::anonymous().from_peer(self.peer());
        match self.identity() {
            Some(identity) => principal.with_tls(identity.clone()),
            None => principal,
        }
    }

    /// The socket below, such as for its options. What is read of it or written to it directly breaks TLS.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match &self.0 {
            Inner::Plain(socket) => socket,
            Inner::Secure(secure) => secure.stream.get_ref().0,
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::plain(socket)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Inner::Secure(secure) => Pin::new(&mut secure.stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Inner::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Inner::Secure(secure) => Pin::new(&mut secure.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(socket) => Pin::new(socket).poll_flush(context),
            Inner::Secure(secure) => Pin::new(&mut secure.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Inner::Secure(secure) => Pin::new(&mut secure.stream).poll_shutdown(context),
        }
    }
}
