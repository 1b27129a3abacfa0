//! Proxies that name their clients with the PROXY protocol version 2, before any other bytes and
//! outside TLS.
//!
//! A peer that may send such a header can claim any address, so no peer may do so unless it is
//! configured as a proxy. A configured proxy must send a header, since its own address would
//! otherwise pass for the client's (SEC-17, SEC-26).

mod header;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::admission::Openings;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use header::{FIXED_BYTES, Fixed, REST_BYTES_MAX};

/// Maximum time for a header: a proxy sends it with its first packet.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum sockets of a listener whose headers have not arrived. A further one ends the oldest.
pub(crate) const WAITING_COUNT_MAX: usize = 256;

/// Peers that must begin with a header; none by default.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<ProxyList>>);

struct ProxyList {
    sources: Vec<Source>,
    header_timeout: Duration,
    waiting: Arc<Openings>,
}

/// Addresses of proxies: `*`, an address, or a network such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// All addresses: every peer is a proxy.
    Everywhere,
    /// Addresses whose first `.1` bits equal the bits of `.0`. An IPv4 address in IPv6 form counts
    /// as IPv4.
    Network(IpAddr, u8),
}

/// Error for a text that is not a source of proxies.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not valid; write an address such as 10.0.0.7, a network such as 10.0.0.0/8 or \
     fd00::/8, or `*` for every address"
)]
pub struct InvalidSource(String);

/// Connection that came through a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProxiedClient {
    /// Client address that the proxy sent; none if the proxy speaks for itself or sends none.
    pub(crate) client: Option<SocketAddr>,
}

/// Error for a proxy socket without a valid header.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("a proxy sent no header of the PROXY protocol: {0}")]
    Fault(#[from] header::HeaderFault),
    #[error("the header of a proxy took longer than {0:?}")]
    Late(Duration),
    #[error("the header of a proxy was the oldest of {WAITING_COUNT_MAX} pending headers")]
    MadeRoom,
    #[error("a proxy disconnected before its header: {0}")]
    Ended(#[from] io::Error),
}

impl Proxies {
    /// Proxies at these sources.
    #[must_use]
    pub fn at(sources: Vec<Source>) -> Self {
        Self::with_header_timeout(sources, HEADER_TIMEOUT)
    }

    /// Proxies at these sources, with a maximum time for headers other than 5 s.
    #[must_use]
    pub fn with_header_timeout(sources: Vec<Source>, header_timeout: Duration) -> Self {
        if sources.is_empty() {
            return Self::default();
        }
        let waiting = Openings::new(WAITING_COUNT_MAX);
        Self(Some(Arc::new(ProxyList { sources, header_timeout, waiting })))
    }

    /// Whether every peer is a proxy, so that any client can claim any address.
    #[must_use]
    pub fn include_all_addresses(&self) -> bool {
        self.sources().contains(&Source::Everywhere)
    }

    /// Their places.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        self.0.as_ref().map(|known| &*known.sources).unwrap_or_default()
    }

    /// Reads the header of this socket if its peer is a proxy, and no bytes after the header. Waits
    /// at most for the header timeout.
    ///
    /// # Errors
    /// If the peer is a proxy and sends no valid header in time (LIS-04).
    pub(crate) async fn read_header(
        &self,
        socket: &mut TcpStream,
    ) -> io::Result<Option<ProxiedClient>> {
        let Some(known) = &self.0 else { return Ok(None) };
        let peer = socket.peer_addr()?;
        if !known.sources.iter().any(|source| source.has(peer.ip())) {
            return Ok(None);
        }
        let opening = known.waiting.begin();
        let time = known.header_timeout;
        let heard = tokio::select! {
            biased;
            () = opening.evicted() => Err(HeaderError::MadeRoom),
            heard = tokio::time::timeout(time, Box::pin(read(socket))) => {
                heard.unwrap_or(Err(HeaderError::Late(time)))
            }
        };
        heard.map(|client| Some(ProxiedClient { client })).map_err(|why| {
            tracing::debug!(proxy = %peer, %why, "no connection");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

async fn read(socket: &mut TcpStream) -> Result<Option<SocketAddr>, HeaderError> {
    let mut fixed = [0; FIXED_BYTES];
    socket.read_exact(&mut fixed).await?;
    let fixed = Fixed::read(fixed)?;
    let mut rest = [0; REST_BYTES_MAX];
    // `Fixed::read` has checked the length.
    let rest = rest.get_mut(..fixed.rest_bytes()).unwrap_or_default();
    socket.read_exact(rest).await?;
    Ok(fixed.client(rest)?)
}

impl Source {
    fn has(self, address: IpAddr) -> bool {
        let Self::Network(network, bits) = self else { return true };
        let same = |left: u128, right: u128, width: u32| {
            // A shift of 128 bits yields `None` on both sides, so a prefix length of 0 matches
            // every address of the family.
            let shift = width.saturating_sub(u32::from(bits));
            left.checked_shr(shift) == right.checked_shr(shift)
        };
        match (network, address.to_canonical()) {
            (IpAddr::V4(left), IpAddr::V4(right)) => {
                same(u32::from(left).into(), u32::from(right).into(), u32::BITS)
            }
            (IpAddr::V6(left), IpAddr::V6(right)) => same(left.into(), right.into(), u128::BITS),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Bits of an address.
const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The form in which it is read.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere => f.write_str("*"),
            Self::Network(address, bits) if *bits == width(*address) => address.fmt(f),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl FromStr for Source {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Self, InvalidSource> {
        if text == "*" {
            return Ok(Self::Everywhere);
        }
        let refused = || InvalidSource(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let width = width(address);
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= width).ok_or_else(refused)?,
            None => width,
        };
        // Peers are compared by their IPv4 address if they have one. A network wider than the IPv4
        // addresses in IPv6 form is not valid.
        let canonical = address.to_canonical();
        let bits = match canonical.is_ipv4() {
            true => bits.checked_sub(width - 32).ok_or_else(refused)?,
            false => bits,
        };
        Ok(Self::Network(canonical, bits))
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxies").field(&self.sources()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(source: &str, address: &str) -> bool {
        source.parse::<Source>().unwrap().has(address.parse().unwrap())
    }

    /// LIS-04: the default timeout of a header is 5 s.
    #[test]
    fn the_default_header_timeout_is_5_s() {
        let proxies = Proxies::at(vec![Source::Everywhere]);
        let known = proxies.0.unwrap();
        assert_eq!(known.header_timeout, Duration::from_secs(5));
    }

    /// LIS-04: proxies are given by address, by network or as all addresses.
    #[test]
    fn sources_match_their_addresses() {
        for (source, address) in [
            ("*", "192.0.2.1"),
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.7", "::ffff:10.0.0.7"),
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3/0", "192.0.2.1"),
            // IPv4 in the form of an IPv6 socket.
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("::ffff:10.0.0.7", "::ffff:10.0.0.7"),
            ("::ffff:10.0.0.0/104", "10.255.0.1"),
            ("::ffff:0:0/96", "192.0.2.1"),
            ("fd00::/8", "fd12::1"),
            ("::1", "::1"),
            ("::/0", "2001:db8::1"),
        ] {
            assert!(has(source, address), "{source} {address}");
        }
        for (source, address) in [
            ("10.0.0.7", "10.0.0.6"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("::ffff:10.0.0.0/104", "11.0.0.1"),
            ("::ffff:0:0/96", "::1"),
            ("fd00::/8", "fe00::1"),
            ("::/0", "10.0.0.1"),
            ("0.0.0.0/0", "::1"),
        ] {
            assert!(!has(source, address), "{source} {address}");
        }
        for text in [
            "",
            "proxy",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "fd00::/129",
            "10.0.0.7:80",
            "::ffff:10.0.0.0/8",
            "::ffff:10.0.0.0/95",
        ] {
            assert_eq!(text.parse::<Source>(), Err(InvalidSource(text.to_owned())));
        }
    }
}
