//! The upgrade: who may connect (SEC-23), and in which encoding.

use peeklock_core::Broker;
use peeklock_core::contract::browser::Known;
use peeklock_listen::upgrade;
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
    let known = Known {
        transport: "websocket",
        hosts: &config.allowed_hosts,
        origins: &config.allowed_origins,
    };
    let host = upgrade::host(request, str::eq_ignore_ascii_case);
    upgrade::check(known, broker, host, request)?;
    if request.uri().path() != "/" {
        return Err(upgrade::refuse(StatusCode::NOT_FOUND, "WebSocket is served at the path /"));
    }
    if request.uri().query().is_some() {
        return Err(upgrade::refuse(
            StatusCode::BAD_REQUEST,
            "the URL has a query; a token is sent in the first frame, never in the URL",
        ));
    }
    let Some(encoding) = upgrade::subprotocols(request).find_map(Encoding::of_subprotocol) else {
        return Err(upgrade::refuse(
            StatusCode::BAD_REQUEST,
            "none of the subprotocols offered is known; offer peeklock.v1.binary or \
             peeklock.v1.json",
        ));
    };
    let name = HeaderValue::from_static(encoding.subprotocol());
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok((encoding, response))
}
