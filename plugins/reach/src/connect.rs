//! Connections to a permitted place: name lookup, TCP and TLS. Forwarders, the OTLP exporter and
//! the JWT key source call [`Reach::connect`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use url::Host;

use crate::host::is_public;
use crate::{Place, Reach};

/// Maximum number of addresses of a name to try.
const ADDRESSES_MAX: usize = 8;

/// A connection, with TLS or without.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Reason why a connection failed; completes "the host ".
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("has no address: {0}")]
    Resolve(#[source] io::Error),
    /// All addresses are internal, and the operator has not permitted the host.
    #[error("has no public address, and is not in the list of allowed hosts")]
    NotPublic,
    /// No address accepted a connection, or TLS failed.
    #[error("cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    /// The attempt exceeded this time limit.
    #[error("could not be connected to within {0:?}")]
    Time(Duration),
    /// TLS cannot be set up.
    #[error("cannot be connected to, because TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

impl Reach {
    /// Connects to a place, within `time`. Checks each address of a name before connecting to it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        &self,
        place: &Place,
        time: Duration,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let connecting = async {
            let stream = self.connect_plain(place, time).await?;
            stream.set_nodelay(true).map_err(ConnectError::Connect)?;
            if !place.is_secure() {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            let name = server_name(place.host())?;
            let connector = TlsConnector::from(self.tls()?);
            let stream = connector.connect(name, stream).await.map_err(ConnectError::Connect)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        timeout(time, connecting).await.unwrap_or(Err(ConnectError::Time(time)))
    }

    /// Connects to one of the permitted addresses; each attempt gets an equal part of the remaining
    /// time.
    async fn connect_plain(
        &self,
        place: &Place,
        time: Duration,
    ) -> Result<TcpStream, ConnectError> {
        let deadline = Instant::now() + time;
        let addresses = self.addresses(place).await?;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        for (left, address) in (1..=count).rev().zip(addresses) {
            let part = deadline.saturating_duration_since(Instant::now()) / left;
            match timeout(part, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(ConnectError::Connect(last))
    }

    async fn addresses(&self, place: &Place) -> Result<Vec<SocketAddr>, ConnectError> {
        let is_named = self.is_listed(place);
        let may_be_meant = |address: IpAddr| is_named || is_public(address);
        let mut found = Vec::new();
        match place.host() {
            Host::Domain(name) => {
                let all = lookup_host((name.as_str(), place.port()))
                    .await
                    .map_err(ConnectError::Resolve)?;
                found.extend(all.filter(|address| may_be_meant(address.ip())).take(ADDRESSES_MAX));
            }
            Host::Ipv4(_) | Host::Ipv6(_) => {
                let address = place.address().filter(|address| may_be_meant(*address));
                found.extend(address.map(|address| SocketAddr::new(address, place.port())));
            }
        }
        if found.is_empty() { Err(ConnectError::NotPublic) } else { Ok(found) }
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, ConnectError> {
    match host {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| {
            ConnectError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error))
        }),
        Host::Ipv4(address) => Ok(ServerName::from(IpAddr::V4(*address))),
        Host::Ipv6(address) => Ok(ServerName::from(IpAddr::V6(*address))),
    }
}
