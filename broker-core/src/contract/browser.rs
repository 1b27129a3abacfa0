//! Checks `Host` and `Origin` of requests to a listener that any web page can reach (SEC-23), for
//! transports whose clients may be browsers. Also decides which names denote this broker, in `Host`
//! and in the audience of a token.

use std::net::{IpAddr, Ipv6Addr};

use crate::broker::Broker;

/// Suffixes of names that the public DNS does not have, so that no outsider can point such a name
/// to this machine (RFC 6761, RFC 6762, RFC 8375; `internal` is reserved by ICANN).
const PRIVATE_ENDS: [&str; 6] =
    [".localhost", ".internal", ".local", ".test", ".home.arpa", ".localdomain"];
/// Suffixes of host names of the cloud.
const CLOUD_ENDS: [&str; 4] = [
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.cloudapi.de",
];

/// Hosts and origins that a listener accepts.
#[derive(Clone, Copy, Debug)]
pub struct HeaderRules<'a> {
    /// The transport whose configuration section has the names below.
    pub transport: &'static str,
    /// `allowed_hosts`: names in addition to IP literals and `localhost`.
    pub hosts: &'a [String],
    /// `allowed_origins`: origins in addition to the listener's own.
    pub origins: &'a [String],
}

/// The header of a refused request. Its text is for the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RefusedHeader {
    /// An unknown `Host`, or none, or several.
    #[error(
        "the Host of the request is not an IP address, `localhost` or listed in the setting \
         `{0}.allowed_hosts`; add it there if clients use that name"
    )]
    Host(&'static str),
    /// An unknown `Host` while a publicly known key is in use.
    #[error(
        "the Host of the request is not an IP address, `localhost`, a name without a dot, a name \
         that ends with .localhost, .internal, .local, .localdomain, .home.arpa or .test, or \
         listed in the setting `{0}.allowed_hosts`; with --emulator the key is public, so a web \
         page could reach this broker by its own name: add the name that your clients use to \
         `{0}.allowed_hosts`"
    )]
    DevelopmentHost(&'static str),
    /// An unknown `Origin`.
    #[error(
        "the Origin of the request is neither this address nor listed in the setting \
         `{0}.allowed_origins`; add it there if the web page may connect"
    )]
    Origin(&'static str),
}

impl HeaderRules<'_> {
    /// Refuses an unknown `Origin` always, and an unknown `Host` while anonymous access is on or a
    /// publicly known key is in use (SEC-24). `host` is the single Host of the request; an origin
    /// is none if it is not text.
    ///
    /// # Errors
    /// The refused header.
    pub fn check<'a>(
        &self,
        broker: &Broker,
        host: Option<&str>,
        mut origins: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<(), RefusedHeader> {
        if broker.allows_anonymous() && !host.is_some_and(|host| is_known_host(host, self.hosts)) {
            return Err(RefusedHeader::Host(self.transport));
        }
        if broker.shared.policies.has_development_key()
            && !host.is_some_and(|host| is_known_host(host, self.hosts) || is_private_host(host))
        {
            return Err(RefusedHeader::DevelopmentHost(self.transport));
        }
        let is_known = |origin| is_known_origin(origin, host, self.origins);
        if origins.all(|origin| origin.is_some_and(is_known)) {
            return Ok(());
        }
        Err(RefusedHeader::Origin(self.transport))
    }
}

/// Whether a `Host` is an IP address, `localhost` or an allowed name, with or without its port.
fn is_known_host(host: &str, allowed_hosts: &[String]) -> bool {
    let Some((name, _)) = split_host(host) else { return false };
    let is_literal = name.parse::<IpAddr>().is_ok()
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let is_allowed =
        |allowed: &String| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host);
    is_literal || name.eq_ignore_ascii_case("localhost") || allowed_hosts.iter().any(is_allowed)
}

/// Whether a `Host` is a name that the public DNS cannot have, such as the name of a container.
fn is_private_host(host: &str) -> bool {
    let Some((name, _)) = split_host(host) else { return false };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let Some((_, end)) = name.rsplit_once('.') else { return true };
    // Names of containers end with the name of their network, for example `broker.shop_default`.
    end.contains('_') || PRIVATE_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether the first part of a token's audience is a host although no scheme precedes it: some
/// clients sign `bus.example/orders` instead of `sb://bus.example/orders`. Paths may also contain a
/// dot in their first part and must not be mistaken for a host. So it is a host only with a port,
/// as an IP address, as `localhost`, as a host of the cloud, or as one of `own_hosts`.
#[must_use]
pub fn is_host_of_audience(first: &str, own_hosts: &[String]) -> bool {
    let Some((name, port)) = split_host(first) else { return false };
    let is_cloud = || {
        let name = name.to_ascii_lowercase();
        CLOUD_ENDS.iter().any(|end| name.ends_with(end))
    };
    port.is_some() || is_known_host(name, own_hosts) || is_cloud()
}

/// Whether an `Origin` is allowed, or is the listener itself as named by `Host`.
fn is_known_origin(origin: &str, host: Option<&str>, allowed_origins: &[String]) -> bool {
    let is_allowed = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin);
    allowed_origins.iter().any(is_allowed) || host.is_some_and(|host| is_same_origin(origin, host))
}

/// Whether an origin has the host and port of `Host`. The scheme of the origin gives both a default
/// port.
#[must_use]
pub fn is_same_origin(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    match (split_host(authority), split_host(host)) {
        (Some((left, left_port)), Some((right, right_port))) => {
            left.eq_ignore_ascii_case(right)
                && left_port.unwrap_or(default_port) == right_port.unwrap_or(default_port)
        }
        _ => false,
    }
}

/// Splits a host into name and port; none if it is malformed.
#[must_use]
pub fn split_host(host: &str) -> Option<(&str, Option<u16>)> {
    let name_end = if host.starts_with('[') {
        host.find(']')? + 1
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (name, port) = host.split_at_checked(name_end)?;
    if name.is_empty() {
        return None;
    }
    if port.is_empty() {
        return Some((name, None));
    }
    let port = port.strip_prefix(':')?;
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((name, Some(port.parse().ok()?)))
}
