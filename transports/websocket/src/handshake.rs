//! The upgrade: who may connect (SEC-23), and in which encoding.

use peeklock_core::Broker;
use peeklock_core::contract::browser::{is_known_host, is_known_origin};
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
    if broker.allows_anonymous()
        && !host.is_some_and(|host| is_known_host(host, &config.allowed_hosts))
    {
        return Err(refuse(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host of the request is not an IP address, `localhost` or one of the setting \
             `websocket.allowed_hosts`",
        ));
    }
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    if !origins.all(|origin| {
        origin.to_str().is_ok_and(|origin| is_known_origin(origin, host, &config.allowed_origins))
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

/// Whether a proxy says that it hands on what somebody else has asked (SEC-17).
pub(crate) fn is_by_proxy(request: &Request) -> bool {
    let headers = request.headers();
    headers.contains_key(header::FORWARDED) || headers.contains_key("x-forwarded-for")
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
