//! Who may talk to a listener that any web page can reach: `Host` and `Origin` (SEC-23).

use std::net::{IpAddr, Ipv6Addr};

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use peeklock_core::error::Rejection;

use crate::error::Refusal;
use crate::site::Site;

/// Refuses a foreign `Host` while anonymous access is on, and a foreign `Origin` always.
pub(crate) fn check(site: &Site, request: &HttpRequest) -> Result<(), Refusal> {
    let host = host(request);
    if site.broker.allows_anonymous() && !host.is_some_and(|host| is_known(site, host)) {
        let detail = "the Host of the request is not an IP address, `localhost` or one of the \
                      setting `http.allowed_hosts`";
        return Err(Refusal::from(Rejection::unauthorized(detail))
            .with_status(StatusCode::MISDIRECTED_REQUEST)
            .closing());
    }
    let mut origins = request.headers().get_all(header::ORIGIN);
    if origins.all(|origin| {
        origin.to_str().is_ok_and(|origin| {
            is_configured(site, origin) || host.is_some_and(|host| is_same(origin, host))
        })
    }) {
        return Ok(());
    }
    let detail = "the Origin of the request is neither this listener nor one of the setting \
                  `http.allowed_origins`";
    Err(Refusal::from(Rejection::unauthorized(detail)).with_status(StatusCode::FORBIDDEN).closing())
}

/// The one host that the request names, in its target or in its header; none if they differ.
pub(crate) fn host(request: &HttpRequest) -> Option<&str> {
    let mut headers = request.headers().get_all(header::HOST);
    let header = headers.next().and_then(|host| host.to_str().ok());
    if headers.next().is_some() {
        return None;
    }
    match request.uri().authority() {
        None => header,
        Some(target) => header.filter(|host| host.eq_ignore_ascii_case(target.as_str())),
    }
}

fn is_known(site: &Site, host: &str) -> bool {
    let Some((name, _)) = split(host) else { return false };
    let is_literal = name.parse::<IpAddr>().is_ok()
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    is_literal
        || name.eq_ignore_ascii_case("localhost")
        || site
            .config
            .allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host))
}

fn is_configured(site: &Site, origin: &str) -> bool {
    let allowed = &site.config.allowed_origins;
    allowed.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
}

/// Whether an origin has the host and port of `Host`; the origin's scheme gives both a default port.
pub(crate) fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    match (split(authority), split(host)) {
        (Some((left, left_port)), Some((right, right_port))) => {
            left.eq_ignore_ascii_case(right)
                && left_port.unwrap_or(default_port) == right_port.unwrap_or(default_port)
        }
        _ => false,
    }
}

/// Name and port of a host; none if it is not one.
pub(crate) fn split(host: &str) -> Option<(&str, Option<u16>)> {
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
