//! Who may talk to a listener that any web page can reach: `Host` and `Origin` (SEC-23). For transports
//! whose clients may be browsers.

use std::net::{IpAddr, Ipv6Addr};

/// Whether a `Host` is an IP address, `localhost`, or one of those allowed, with or without its port.
#[must_use]
pub fn is_known_host(host: &str, allowed_hosts: &[String]) -> bool {
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

/// Whether an `Origin` is one of those allowed, or that of the listener itself, as `Host` names it.
#[must_use]
pub fn is_known_origin(origin: &str, host: Option<&str>, allowed_origins: &[String]) -> bool {
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
