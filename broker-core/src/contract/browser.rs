//! Who may talk to a listener that any web page can reach: `Host` and `Origin` (SEC-23). For transports
//! whose clients may be browsers. And which names are those of this broker, in `Host` and in what a token is for.

use std::net::{IpAddr, Ipv6Addr};

use crate::broker::Broker;

/// Ends of names that the public DNS does not have, so that no stranger can have such a name lead to this machine
/// (RFC 6761, RFC 6762, RFC 8375; `internal` is set aside by ICANN).
const PRIVATE_ENDS: [&str; 6] =
    [".localhost", ".internal", ".local", ".test", ".home.arpa", ".localdomain"];
/// How hosts of the cloud end.
const CLOUD_ENDS: [&str; 4] = [
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.cloudapi.de",
];

/// Whom a listener knows.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The transport, whose section of the configuration has the names below.
    pub transport: &'static str,
    /// `allowed_hosts`: names beside IP literals and `localhost`.
    pub hosts: &'a [String],
    /// `allowed_origins`: origins beside the listener's own.
    pub origins: &'a [String],
}

/// What a request names that its listener does not know. Its text is for the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Foreign {
    /// Another `Host`, or none, or several.
    #[error(
        "the Host of the request is not an IP address, `localhost` or listed in the setting \
         `{0}.allowed_hosts`; add it there if clients use that name"
    )]
    Host(&'static str),
    /// The same where everybody knows a key.
    #[error(
        "the Host of the request is not an IP address, `localhost`, a name without a dot, a name \
         that ends with .localhost, .internal, .local, .localdomain, .home.arpa or .test, or \
         listed in the setting `{0}.allowed_hosts`; with --emulator the key is public, so a web \
         page could reach this broker by its own name: add the name that your clients use to \
         `{0}.allowed_hosts`"
    )]
    DevelopmentHost(&'static str),
    /// Another `Origin`.
    #[error(
        "the Origin of the request is neither this address nor listed in the setting \
         `{0}.allowed_origins`; add it there if the web page may connect"
    )]
    Origin(&'static str),
}

impl Known<'_> {
    /// Refuses a foreign `Host` while anonymous access is on or everybody knows a key (SEC-24), and a foreign `Origin`
    /// always. `host` is the one that the request names; an origin is none if it is no text.
    ///
    /// # Errors
    /// With what is foreign.
    pub fn check<'a>(
        &self,
        broker: &Broker,
        host: Option<&str>,
        mut origins: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<(), Foreign> {
        if broker.allows_anonymous() && !host.is_some_and(|host| is_known_host(host, self.hosts)) {
            return Err(Foreign::Host(self.transport));
        }
        if broker.shared.policies.have_development_key()
            && !host.is_some_and(|host| is_known_host(host, self.hosts) || is_private_host(host))
        {
            return Err(Foreign::DevelopmentHost(self.transport));
        }
        let is_known = |origin| is_known_origin(origin, host, self.origins);
        if origins.all(|origin| origin.is_some_and(is_known)) {
            return Ok(());
        }
        Err(Foreign::Origin(self.transport))
    }
}

/// Whether a `Host` is an IP address, `localhost`, or one of those allowed, with or without its port.
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

/// Whether a `Host` is a name that the public DNS cannot have, such as that of a container.
fn is_private_host(host: &str) -> bool {
    let Some((name, _)) = split_host(host) else { return false };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let Some((_, end)) = name.rsplit_once('.') else { return true };
    // A network of containers is the end of their names, such as `broker.shop_default`.
    end.contains('_') || PRIVATE_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether the first part of what a token is for is a host, although no scheme stands before it: `bus.example/orders` signed
/// instead of `sb://bus.example/orders`. A path may begin with a dot in it, too, and is not to become another one; so it is
/// a host only with a port, as an IP address, as `localhost`, as a host of the cloud, or as one of `own_hosts`.
#[must_use]
pub fn is_host_of_audience(first: &str, own_hosts: &[String]) -> bool {
    let Some((name, port)) = split_host(first) else { return false };
    let is_cloud = || {
        let name = name.to_ascii_lowercase();
        CLOUD_ENDS.iter().any(|end| name.ends_with(end))
    };
    port.is_some() || is_known_host(name, own_hosts) || is_cloud()
}

/// Whether an `Origin` is one of those allowed, or that of the listener itself, as `Host` names it.
fn is_known_origin(origin: &str, host: Option<&str>, allowed_origins: &[String]) -> bool {
    let is_allowed = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin);
    allowed_origins.iter().any(is_allowed) || host.is_some_and(|host| is_same_origin(origin, host))
}

/// Whether an origin has the host and port of `Host`; the origin's scheme gives both a default port.
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

/// Name and port of a host; none if it is not one.
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
