//! The stream of a listener: a plain socket, or TLS over it. The acceptor creates it, and the
//! transports read and write it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use peeklock_core::contract::{Principal, TlsIdentity};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection of a listener.
pub struct Stream(Inner, Prelude);

enum Inner {
    Plain(TcpStream),
    Secure(Box<Secure>),
}

struct Secure {
    stream: TlsStream<TcpStream>,
    identity: Option<TlsIdentity>,
}

/// Information about a connection from before it is served.
#[derive(Default)]
struct Prelude {
    /// Bytes that were read to detect the protocol, and are read again.
    unread: Bytes,
    /// Whether a proxy announced itself, and the client's address if the proxy sent it.
    is_relayed: bool,
    client: Option<SocketAddr>,
}

impl Stream {
    /// Creates a stream without TLS.
    #[must_use]
    pub fn plain(socket: TcpStream) -> Self {
        Self(Inner::Plain(socket), Prelude::default())
    }

    pub(crate) fn secure(stream: TlsStream<TcpStream>, identity: Option<TlsIdentity>) -> Self {
        Self(Inner::Secure(Box::new(Secure { stream, identity })), Prelude::default())
    }

    /// Marks the stream as relayed by a proxy, which may have sent the client's address.
    #[must_use]
    pub fn via_proxy(mut self, client: Option<SocketAddr>) -> Self {
        self.1.is_relayed = true;
        self.1.client = client;
        self
    }

    /// Puts bytes back so that they are read again first. The bytes of an earlier call must all
    /// have been read.
    pub fn give_back(&mut self, bytes: impl Into<Bytes>) {
        debug_assert!(self.1.unread.is_empty(), "bytes would be read in another order");
        self.1.unread = bytes.into();
    }

    /// Returns the client's address.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.1.client.or_else(|| self.socket().peer_addr().ok())
    }

    /// Returns the identity in the client's verified certificate (TLS-04).
    #[must_use]
    pub fn identity(&self) -> Option<&TlsIdentity> {
        match &self.0 {
            Inner::Plain(_) => None,
            Inner::Secure(secure) => secure.identity.as_ref(),
        }
    }

    /// Returns the client as a principal with only its address and its certificate.
    #[must_use]
    pub fn principal(&self) -> Principal {
        let principal = Principal::anonymous().from_peer(self.peer());
        let principal = if self.1.is_relayed { principal.through_proxy() } else { principal };
        match self.identity() {
            Some(identity) => principal.with_tls(identity.clone()),
            None => principal,
        }
    }

    /// Returns the underlying socket, for example for its options. Reading or writing it directly
    /// breaks TLS.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match &self.0 {
            Inner::Plain(socket) => socket,
            Inner::Secure(secure) => secure.stream.get_ref().0,
        }
    }

    /// Returns whether the client has ended its sending side, even while earlier bytes are unread.
    /// Works only if the system reports it, as Linux does.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // Polls once and does not wait.
        let ready = pin!(self.socket().ready(Interest::READABLE));
        let mut context = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut context), Poll::Ready(Ok(ready)) if ready.is_read_closed())
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
        let unread = &mut self.1.unread;
        if !unread.is_empty() {
            let bytes = unread.len().min(buffer.remaining());
            buffer.put_slice(unread.get(..bytes).unwrap_or_default());
            unread.advance(bytes);
            return Poll::Ready(Ok(()));
        }
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Inner::Plain(socket) => Pin::new(socket).poll_write_vectored(context, pieces),
            Inner::Secure(secure) => {
                Pin::new(&mut secure.stream).poll_write_vectored(context, pieces)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Inner::Plain(socket) => socket.is_write_vectored(),
            Inner::Secure(secure) => secure.stream.is_write_vectored(),
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

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// HTP-11: the end of a client is detected while its data is unread, also after a reset.
    #[tokio::test]
    async fn an_end_is_detected_while_data_is_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for is_reset in [false, true] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut stream = Stream::plain(listener.accept().await.unwrap().0);
            client.write_all(&[7; 20_000]).await.unwrap();
            stream.socket().readable().await.unwrap();
            assert!(!stream.has_ended());
            assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 10);
            if is_reset {
                client.set_zero_linger().unwrap();
            }
            drop(client);
            while !stream.has_ended() {
                tokio::task::yield_now().await;
            }
            // The earlier data stays readable.
            let read = stream.read(&mut [0; 10]).await;
            assert!(is_reset || read.unwrap() == 10);
        }
    }
}
