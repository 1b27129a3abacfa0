//! Who may connect over WebSocket (SEC-23), and how one is refused who may not. For the handshake of tokio-tungstenite.

use peeklock_core::Broker;
use peeklock_core::contract::browser::{Foreign, Known};
use peeklock_core::error::Rejection;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};

use crate::relayed::names_proxy;

/// Refuses who comes from where the listener does not know. `host` is that of [`host`].
///
/// # Errors
/// With the answer to who is refused.
#[expect(clippy::result_large_err, reason = "the library's type")]
pub fn check(
    known: Known<'_>,
    broker: &Broker,
    host: Option<&str>,
    request: &Request,
) -> Result<(), ErrorResponse> {
    let origins = request.headers().get_all(header::ORIGIN).iter();
    let origins = origins.map(|origin| origin.to_str().ok());
    known.check(broker, host, origins).map_err(|foreign| {
        let status = match foreign {
            Foreign::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Foreign::Origin(_) => StatusCode::FORBIDDEN,
        };
        // Counted, and told in the log.
        drop(broker.refuse(Rejection::unauthorized(foreign.to_string()).because("origin"), ""));
        refuse(status, &foreign.to_string())
    })
}

/// The one host that the request names in its header; none if its target names one that is not the same.
pub fn host(request: &Request, is_same: impl Fn(&str, &str) -> bool) -> Option<&str> {
    let mut headers = request.headers().get_all(header::HOST).iter();
    let host = headers.next().and_then(|host| host.to_str().ok());
    if headers.next().is_some() {
        return None;
    }
    match request.uri().authority() {
        None => host,
        Some(target) => host.filter(|host| is_same(host, target.as_str())),
    }
}

/// The names of the subprotocols that are offered, in their order.
pub fn subprotocols(request: &Request) -> impl Iterator<Item = &str> {
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    offered
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .map(str::trim)
}

/// Whether a proxy says that it hands on what somebody else has asked (SEC-17).
#[must_use]
pub fn is_by_proxy(request: &Request) -> bool {
    request.headers().keys().any(|name| names_proxy(name.as_str()))
}

/// An answer that ends the connection, with a text for people.
#[must_use]
pub fn refuse(status: StatusCode, text: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len() + 1));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
