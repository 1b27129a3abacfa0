//! The upgrade: who may connect (SEC-23), and in which encoding.

use peeklock_core::Broker;
use std::net::{IpAddr, Ipv6Addr};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};

use crate::config::WebSocketConfig;
use crate::frame::Encoding;

/// Judges an upgrade; answers with the encoding and the response that agrees to it.
#[expect(clippy::result_large_err, reason = "the library's type")]
pub(crate) fn accept(
    broker: &Broker,
    config: &WebSocketConfig,
    request: &Request,
    mut response: Response,
) -> Result<(Encoding, Response), ErrorResponse> {
    let host = host(request);
    if broker.allows_anonymous() && !host.is_some_and(|host| is_known(config, host)) {
        return Err(refuse(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host of the request is not an IP address, `localhost` or one of the setting \
             `websocket.allowed_hosts`",
        ));
    }
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    if !origins.all(|origin| {
        origin.to_str().is_ok_and(|origin| {
            is_configured(config, origin) || host.is_some_and(|host| is_same(origin, host))
        })
    }) {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            "the Origin of the request is neither this listener nor one of the setting \
             `websocket.allowed_origins`",
        ));
    }
    if request.uri().path() != "/" {
        return Err(refuse(StatusCode::NOT_FOUND, "WebSocket is served at the path /"));
    }
    if request.uri().query().is_some() {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "the URL has a query; a token is sent in the first frame, never in the URL",
        ));
    }
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let encoding = offered
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .find_map(|name| Encoding::of_subprotocol(name.trim()));
    let Some(encoding) = encoding else {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "none of the subprotocols offered is known; offer peeklock.v1.binary or \
             peeklock.v1.json",
        ));
    };
    let name = HeaderValue::from_static(encoding.subprotocol());
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok((encoding, response))
}

fn refuse(status: StatusCode, text: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len() + 1));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The one host that the request names.
fn host(request: &Request) -> Option<&str> {
    let mut headers = request.headers().get_all(header::HOST).iter();
    let host = headers.next().and_then(|host| host.to_str().ok());
    if headers.next().is_some() {
        return None;
    }
    match request.uri().authority() {
        None => host,
        Some(target) => host.filter(|host| host.eq_ignore_ascii_case(target.as_str())),
    }
}

fn is_known(config: &WebSocketConfig, host: &str) -> bool {
    let Some((name, _)) = split(host) else { return false };
    let is_literal = name.parse::<IpAddr>().is_ok()
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    is_literal
        || name.eq_ignore_ascii_case("localhost")
        || config
            .allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host))
}

fn is_configured(config: &WebSocketConfig, origin: &str) -> bool {
    let allowed = &config.allowed_origins;
    allowed.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
}

/// Whether an origin has the host and port of `Host`; the origin's scheme gives both a default port.
fn is_same(origin: &str, host: &str) -> bool {
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
fn split(host: &str) -> Option<(&str, Option<u16>)> {
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
