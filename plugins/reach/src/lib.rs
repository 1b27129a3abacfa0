//! The hosts that a plugin may connect to, and connections to them.
//!
//! A user with permission to set ForwardTo makes the broker connect from its own network: next to
//! databases, consoles and the metadata service of a cloud. Therefore, without a list of hosts,
//! only public hosts are permitted, and only over TLS. With a list, only the listed hosts are
//! permitted, with any address and also without TLS.
//!
//! ```
//! use peeklock_reach::{Place, Reach};
//!
//! let everywhere = Reach::new(Vec::new(), Vec::new());
//! assert!(everywhere.check(&Place::new("hooks.example.com", 443, true).unwrap()).is_ok());
//! assert!(everywhere.check(&Place::new("169.254.169.254", 443, true).unwrap()).is_err());
//!
//! let inside = Reach::new(vec!["10.0.0.7:8080".parse().unwrap()], Vec::new());
//! assert!(inside.check(&Place::new("10.0.0.7", 8080, false).unwrap()).is_ok());
//! assert!(inside.check(&Place::new("hooks.example.com", 443, true).unwrap()).is_err());
//! ```
//!
//! [`Reach::check`] validates a destination when it is configured. [`Reach::connect`] checks the
//! resolved addresses again for each connection. Modules in reading order: `host` (patterns and
//! public addresses), `destination` (parsing), `connect` (connections).

mod connect;
mod destination;
mod host;

pub use connect::{ConnectError, Stream};
pub use destination::{Destination, DestinationError, Schemes};
pub use host::{HostError, HostPattern};
#[doc(no_inline)]
pub use peeklock_tls::{CertificateDer, FileError as AuthoritiesError, certificates};

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use peeklock_tls::client_config;
use tokio_rustls::rustls::{self, ClientConfig};
use url::Host;

/// A host with a port, and whether it uses TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    host: Host,
    port: u16,
    is_secure: bool,
}

/// Reason why a place is forbidden; completes "`a.net` is not allowed: ".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForbiddenPlace {
    /// There is a list, and the host is not on it.
    #[error("the host is not")]
    NotNamed,
    /// There is no list, and the place does not use TLS.
    #[error("without TLS the host must be")]
    NotSecure,
    /// There is no list, and the address is not public.
    #[error("its address is not public, and the host is not")]
    NotPublic,
}

/// The permitted hosts and trusted authorities. Clones share the loaded TLS configuration.
#[derive(Clone)]
pub struct Reach {
    allowed: Arc<[HostPattern]>,
    authorities: Arc<[CertificateDer<'static>]>,
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, rustls::Error>>>,
}

impl Place {
    /// Creates a place from a host name or address; an IPv6 address needs brackets.
    ///
    /// # Errors
    /// Returns an error if `host` is neither a name nor an address.
    pub fn new(host: &str, port: u16, is_secure: bool) -> Result<Self, HostError> {
        let host = Host::parse(host).map_err(|_| HostError(host.to_owned()))?;
        Ok(Self { host, port, is_secure })
    }

    /// Returns the host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the place uses TLS.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the address if the host is not a name.
    const fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        }
    }
}

impl Reach {
    /// Permits the hosts in `allowed`, or all public hosts if it is empty. Trusts `authorities` in
    /// addition to the system's.
    #[must_use]
    pub fn new(allowed: Vec<HostPattern>, authorities: Vec<CertificateDer<'static>>) -> Self {
        Self {
            allowed: allowed.into(),
            authorities: authorities.into(),
            tls: Arc::new(OnceLock::new()),
        }
    }

    /// Checks whether a place is permitted, without resolving its name.
    ///
    /// # Errors
    /// Returns the reason if it is forbidden.
    pub fn check(&self, place: &Place) -> Result<(), ForbiddenPlace> {
        if self.is_listed(place) {
            return Ok(());
        }
        if !self.allowed.is_empty() {
            return Err(ForbiddenPlace::NotNamed);
        }
        if !place.is_secure {
            return Err(ForbiddenPlace::NotSecure);
        }
        let is_local = matches!(&place.host, Host::Domain(name) if name == "localhost");
        if is_local || place.address().is_some_and(|address| !host::is_public(address)) {
            return Err(ForbiddenPlace::NotPublic);
        }
        Ok(())
    }

    /// Returns the TLS configuration. Loads the system's authorities on first use.
    fn tls(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        self.tls.get_or_init(|| client_config(&self.authorities, None).map(Arc::new)).clone()
    }

    /// Returns whether the operator listed the place; its addresses are then not checked.
    fn is_listed(&self, place: &Place) -> bool {
        self.allowed.iter().any(|pattern| pattern.fits(&place.host, place.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        allowed: &[&str],
        host: &str,
        port: u16,
        is_secure: bool,
    ) -> Result<(), ForbiddenPlace> {
        let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
        Reach::new(allowed, Vec::new()).check(&Place::new(host, port, is_secure).unwrap())
    }

    #[test]
    fn without_a_list_only_public_hosts_over_tls_may_be_named() {
        assert_eq!(judged(&[], "1.1.1.1", 443, true), Ok(()));
        assert_eq!(judged(&[], "a.net", 8443, true), Ok(()));
        assert_eq!(judged(&[], "a.net", 80, false), Err(ForbiddenPlace::NotSecure));
        for host in [
            "LocalHost",
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "[::1]",
            "[::ffff:10.0.0.1]",
            "169.254.169.254",
        ] {
            assert_eq!(judged(&[], host, 443, true), Err(ForbiddenPlace::NotPublic), "{host}");
        }
    }

    #[test]
    fn with_a_list_its_hosts_alone_may_be_named() {
        let allowed = ["*.example.com", "127.0.0.1:8080"];
        assert_eq!(judged(&allowed, "a.example.com", 80, false), Ok(()));
        assert_eq!(judged(&allowed, "127.0.0.1", 8080, false), Ok(()));
        for (host, port) in [("a.net", 443), ("127.0.0.1", 443), ("1.1.1.1", 443)] {
            assert_eq!(judged(&allowed, host, port, true), Err(ForbiddenPlace::NotNamed), "{host}");
        }
    }
}
