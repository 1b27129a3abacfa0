//! Turns a socket into a stream: reads the PROXY header, performs the TLS handshake and sets socket
//! options. Listeners call it before anything is served.

use std::io;

use peeklock_tls::{Acceptor, Stream};
use tokio::net::TcpStream;

use crate::proxy::Proxies;

/// Maximum unsent output of a peer in the system's buffer. A larger buffer does not raise
/// throughput, because bytes in flight are not counted.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Requirements of a listener before anything is served on a socket.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Proxies that name their clients.
    pub proxies: Proxies,
    /// How connections are made secure; none if they are not.
    pub tls: Option<Acceptor>,
}

impl Admission {
    /// The stream; each part of the way there has its bounds in time and number.
    ///
    /// # Errors
    /// When it comes to none. Why was counted and logged.
    pub async fn admit(&self, mut socket: TcpStream) -> io::Result<Stream> {
        // Answers are written whole; waiting to fill a packet only delays them.
        socket.set_nodelay(true).ok();
        bound_unsent(&socket);
        let relayed = self.proxies.read_header(&mut socket).await?;
        let stream = Acceptor::accept_on(self.tls.as_ref(), socket).await;
        let stream = stream.map_err(io::Error::other)?;
        Ok(match relayed {
            Some(relayed) => stream.via_proxy(relayed.client),
            None => stream,
        })
    }
}

/// The system takes up to some MiB for a peer that does not read, and says that there is room again when a third of
/// that is gone: a peer that reads steadily, but not fast, would look as if it did not read at all.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn bound_unsent(socket: &TcpStream) {
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX).ok();
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn bound_unsent(_: &TcpStream) {}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// The system buffers little for a peer that does not read, and reports the socket as writable
    /// after the peer has read a small part.
    #[tokio::test]
    async fn system_buffers_little_unread_output() {
        const MANY_BYTES: usize = 1 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        bound_unsent(&socket);
        let mut taken_bytes = 0;
        while taken_bytes < MANY_BYTES {
            match socket.try_write(&vec![0; MANY_BYTES]) {
                Ok(bytes) => taken_bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(taken_bytes < MANY_BYTES, "a writer of {MANY_BYTES} bytes never had to wait");
        peer.read_exact(&mut vec![0; taken_bytes]).await.unwrap();
        socket.writable().await.unwrap();
    }
}
