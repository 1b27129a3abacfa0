//! Proxies that say for whom they speak, by the PROXY protocol version 2, before anything else and outside TLS.
//!
//! Whoever may say so may take any address, so that it is off until somebody says who it is; and who is named has to say
//! it, since the address of a proxy would otherwise pass for that of its client (SEC-17, SEC-26).

mod header;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use peeklock_tls::Handshakes;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use header::{FIXED_BYTES, Fixed, REST_BYTES_MAX};

/// How long a header may take: a proxy sends it with its first packet.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Sockets of one listener whose headers have not arrived. For a further one the oldest ends.
pub(crate) const WAITING_COUNT_MAX: usize = 256;

/// Who begins with a header; nobody by default.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<Known>>);

struct Known {
    sources: Vec<Source>,
    header_timeout: Duration,
    waiting: Arc<Handshakes>,
}

/// Where proxies are: `*`, an address, or a network such as `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Everywhere: whoever connects is one.
    Everywhere,
    /// At addresses whose first bits are those of this one; those of IPv4 are named as such.
    Network(IpAddr, u8),
}

/// A text that does not say where proxies are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not valid; write an address such as 10.0.0.7, a network such as 10.0.0.0/8 or \
     fd00::/8, or `*` for every address"
)]
pub struct NoSource(String);

/// Somebody who came by a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Relayed {
    /// Where the proxy says that it comes from; none where the proxy speaks for itself or does not say.
    pub(crate) client: Option<SocketAddr>,
}

/// Why nobody is served on a socket of a proxy.
#[derive(Debug, thiserror::Error)]
enum NoHeader {
    #[error("a proxy sent no header of the PROXY protocol: {0}")]
    Fault(#[from] header::Fault),
    #[error("the header of a proxy took longer than {0:?}")]
    Late(Duration),
    #[error("the header of a proxy was the oldest of {WAITING_COUNT_MAX} pending headers")]
    MadeRoom,
    #[error("a proxy disconnected before its header: {0}")]
    Ended(#[from] io::Error),
}

impl Proxies {
    /// Those at these places.
    #[must_use]
    pub fn at(sources: Vec<Source>) -> Self {
        Self::with_header_timeout(sources, HEADER_TIMEOUT)
    }

    /// Those at these places, whose headers may take so long, in place of 5 s.
    #[must_use]
    pub fn with_header_timeout(sources: Vec<Source>, header_timeout: Duration) -> Self {
        if sources.is_empty() {
            return Self::default();
        }
        let waiting = Handshakes::new(WAITING_COUNT_MAX);
        Self(Some(Arc::new(Known { sources, header_timeout, waiting })))
    }

    /// Whether everybody who connects is one, and so can say any address to be its own.
    #[must_use]
    pub fn are_everywhere(&self) -> bool {
        self.sources().contains(&Source::Everywhere)
    }

    /// Their places.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        self.0.as_ref().map(|known| &*known.sources).unwrap_or_default()
    }

    /// Reads the header that this socket begins with, if it is a proxy's; nothing behind it is touched. Waits no longer
    /// than a header may take.
    ///
    /// # Errors
    /// When it is a proxy's and has none that is valid (LIS-04).
    pub(crate) async fn hear(&self, socket: &mut TcpStream) -> io::Result<Option<Relayed>> {
        let Some(known) = &self.0 else { return Ok(None) };
        let peer = socket.peer_addr()?;
        if !known.sources.iter().any(|source| source.has(peer.ip())) {
            return Ok(None);
        }
        let place = known.waiting.enter();
        let time = known.header_timeout;
        let heard = tokio::select! {
            biased;
            () = place.needed() => Err(NoHeader::MadeRoom),
            heard = tokio::time::timeout(time, Box::pin(read(socket))) => {
                heard.unwrap_or(Err(NoHeader::Late(time)))
            }
        };
        heard.map(|client| Some(Relayed { client })).map_err(|why| {
            tracing::debug!(proxy = %peer, %why, "no connection");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }
}

async fn read(socket: &mut TcpStream) -> Result<Option<SocketAddr>, NoHeader> {
    let mut fixed = [0; FIXED_BYTES];
    socket.read_exact(&mut fixed).await?;
    let fixed = Fixed::read(fixed)?;
    let mut rest = [0; REST_BYTES_MAX];
    // The header has judged its length.
    let rest = rest.get_mut(..fixed.rest_bytes()).unwrap_or_default();
    socket.read_exact(rest).await?;
    Ok(fixed.client(rest)?)
}

impl Source {
    fn has(self, address: IpAddr) -> bool {
        let Self::Network(network, bits) = self else { return true };
        let same = |left: u128, right: u128, width: u32| {
            // All bits of it where there is nothing to shift away.
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
    type Err = NoSource;

    fn from_str(text: &str) -> Result<Self, NoSource> {
        if text == "*" {
            return Ok(Self::Everywhere);
        }
        let refused = || NoSource(text.to_owned());
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
        // Who comes is looked up by his address of IPv4 if he has one. What is wider than those is no network of them.
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

    /// LIS-04: a header has 5 s unless somebody says otherwise.
    #[test]
    fn a_header_has_five_seconds() {
        let proxies = Proxies::at(vec![Source::Everywhere]);
        let known = proxies.0.unwrap();
        assert_eq!(known.header_timeout, Duration::from_secs(5));
    }

    /// LIS-04: proxies are named by address, by network, or are all.
    #[test]
    fn proxies_are_where_they_are_said_to_be() {
        for (source, address) in [
            ("*", "192.0.2.1"),
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.7", "::ffff:10.0.0.7"),
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3/0", "192.0.2.1"),
            // IPv4 as an IPv6 socket names it.
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
            assert_eq!(text.parse::<Source>(), Err(NoSource(text.to_owned())));
        }
    }
}
