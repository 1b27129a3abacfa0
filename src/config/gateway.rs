//! The section `[gateway]`.

use std::net::SocketAddr;

use peeklock::listen::{Proxies, Source};
use peeklock::time::TimeSpan;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::text::{FromText, List, Scalar};

/// The listener that serves everything on one port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct GatewaySection {
    /// Where it listens, if it does.
    pub address: Scalar<MaybeAddress>,
    /// Threads that serve connections; zero for one per core.
    pub workers: Scalar<usize>,
    /// Time until a connection has said what it speaks.
    pub opening_timeout: Scalar<TimeSpan>,
    /// Proxies that say for whom they speak.
    pub proxy_protocol: ProxyList,
}

/// An address, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaybeAddress(pub Option<SocketAddr>);

impl FromText for MaybeAddress {
    const EXPECTED: &'static str =
        "an IP address with a port, such as 0.0.0.0:5671, or empty for none";

    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(None));
        }
        text.parse().ok().map(|address| Self(Some(address)))
    }
}

/// Proxies, by their addresses and networks (LIS-04).
#[derive(Clone, Debug, Default)]
pub struct ProxyList(pub Proxies);

impl<'de> Deserialize<'de> for ProxyList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let List(texts) = List::deserialize(deserializer)?;
        let sources: Result<Vec<Source>, _> = texts.iter().map(|text| text.parse()).collect();
        sources.map(|sources| Self(Proxies::at(sources))).map_err(D::Error::custom)
    }
}
