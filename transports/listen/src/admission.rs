//! How a socket becomes a stream: who is at its other end, and TLS.

use std::io;

use peeklock_tls::{Acceptor, Stream};
use tokio::net::TcpStream;

use crate::proxy::Proxies;

/// What a listener asks of a socket before anything is served on it.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Proxies that say for whom they speak.
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
        let relayed = self.proxies.hear(&mut socket).await?;
        let stream = Acceptor::accept_on(self.tls.as_ref(), socket).await;
        let stream = stream.map_err(io::Error::other)?;
        Ok(match relayed {
            Some(relayed) => stream.relayed(relayed.client),
            None => stream,
        })
    }
}
