//! Judges the upgrade: which clients may connect (SEC-23), and which encoding they use. The
//! listener calls it before any frame is read.

use std::net::SocketAddr;

use peeklock_core::condition::Condition;
use peeklock_core::contract::browser::HeaderRules;
use peeklock_core::error::Rejection;
use peeklock_listen::upgrade;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};

use crate::frame::Encoding;
use crate::site::Site;

/// Judges an upgrade; returns the encoding, and the response that agrees to it.
#[expect(clippy::result_large_err, reason = "the library's type")]
pub(crate) fn accept(
    site: &Site,
    peer: Option<SocketAddr>,
    request: &Request,
    mut response: Response,
) -> Result<(Encoding, Response), ErrorResponse> {
    let (broker, config) = (&site.broker, &site.config);
    let known = HeaderRules {
        transport: "websocket",
        hosts: &config.allowed_hosts,
        origins: &config.allowed_origins,
    };
    let host = upgrade::host(request, str::eq_ignore_ascii_case);
    upgrade::check_origin_and_host(known, (broker, &site.strangers), peer, host, request)?;
    if request.uri().path() != "/" {
        let rejection =
            Rejection::new(Condition::EntityNotFound, "WebSocket is served at the path /");
        return Err(upgrade::refuse(broker, StatusCode::NOT_FOUND, rejection));
    }
    let instead = "the URL must not have a token; send it in the first frame";
    upgrade::check_no_query_or_body(broker, request, instead)?;
    let Some(encoding) = upgrade::subprotocols(request).find_map(Encoding::of_subprotocol) else {
        let rejection = Rejection::argument(
            "none of the offered subprotocols is supported; offer peeklock.v1.binary or \
             peeklock.v1.json",
        );
        return Err(upgrade::refuse(broker, StatusCode::BAD_REQUEST, rejection));
    };
    let name = HeaderValue::from_static(encoding.subprotocol());
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    Ok((encoding, response))
}
