//! Decides which clients may connect over WebSocket (SEC-23), and refuses others with a problem
//! document as HTTP does (ERR-02). Works with the handshake of tokio-tungstenite.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::contract::browser::{HeaderRules, RefusedHeader};
use peeklock_core::error::Rejection;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};

use crate::relayed::is_proxy_header;
use crate::strangers::Strangers;

/// Content type of an error (RFC 9457).
const PROBLEM: &str = "application/problem+json";
/// Time for a client to read the refusal of a request that was not a valid upgrade.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum bytes read from the client meanwhile: closing a socket with unread bytes could cut the
/// answer off.
const REST_BYTES_MAX: u64 = 64 << 10;

/// Refuses and logs a request whose host or origin is not known to the listener. `host` is the
/// result of [`host`].
///
/// # Errors
/// The answer to the refused client.
#[expect(clippy::result_large_err, reason = "the library's type")]
pub fn check_origin_and_host(
    known: HeaderRules<'_>,
    (broker, strangers): (&Broker, &Strangers),
    peer: Option<SocketAddr>,
    host: Option<&str>,
    request: &Request,
) -> Result<(), ErrorResponse> {
    let origins = || {
        let origins = request.headers().get_all(header::ORIGIN).iter();
        origins.map(|origin| origin.to_str().ok())
    };
    known.check(broker, host, origins()).map_err(|foreign| {
        let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        strangers.refused(foreign, peer, named, origins());
        let status = match foreign {
            RefusedHeader::Host(_) | RefusedHeader::DevelopmentHost(_) => {
                StatusCode::MISDIRECTED_REQUEST
            }
            RefusedHeader::Origin(_) => StatusCode::FORBIDDEN,
        };
        // The refusal is counted, and written to the log.
        let reason = Rejection::unauthorized(foreign.to_string());
        refuse(broker, status, reason.with_cause("origin").with_peer(peer))
    })
}

/// The single host in the request's header; none if the request target names another host.
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

/// Refuses an upgrade with a query, whose token would appear in logs of others, or with a body,
/// which is never read. `instead` describes where to put a token.
///
/// # Errors
/// The answer to the refused request.
#[expect(clippy::result_large_err, reason = "the library's type")]
pub fn check_no_query_or_body(
    broker: &Broker,
    request: &Request,
    instead: &str,
) -> Result<(), ErrorResponse> {
    let refused =
        |detail: String| Err(refuse(broker, StatusCode::BAD_REQUEST, Rejection::argument(detail)));
    if request.uri().query().is_some_and(|query| !query.is_empty()) {
        return refused(format!("the URL has a query; {instead}"));
    }
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH);
    if headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|it| it != "0") {
        return refused("an upgrade to WebSocket has no body; leave out Content-Length".to_owned());
    }
    Ok(())
}

/// Names of the offered subprotocols, in their order.
pub fn subprotocols(request: &Request) -> impl Iterator<Item = &str> {
    let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    offered
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .map(str::trim)
}

/// Whether a header shows that a proxy forwarded the request (SEC-17).
#[must_use]
pub fn is_by_proxy(request: &Request) -> bool {
    request.headers().keys().any(|name| is_proxy_header(name.as_str()))
}

/// Answer that closes the connection, with the condition and its tracking id.
#[must_use]
pub fn refuse(broker: &Broker, status: StatusCode, rejection: Rejection) -> ErrorResponse {
    let body = problem(broker, status, rejection);
    let length = body.len();
    let mut response = ErrorResponse::new(Some(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answers a request that is not a valid upgrade, if the handshake has sent no answer. `instead`
/// describes the services at this address.
pub async fn answer_invalid_upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    broker: &Broker,
    stream: &mut S,
    error: &Error,
    instead: &str,
) {
    if let Some((status, rejection)) = refusal_of(error, instead) {
        answer(broker, stream, status, rejection).await;
    }
}

/// Answers a client whose request did not arrive completely in time.
pub async fn answer_late_request<S: AsyncRead + AsyncWrite + Unpin>(
    broker: &Broker,
    stream: &mut S,
    instead: &str,
) {
    let detail = format!("the head of the request did not arrive in time; {instead}");
    answer(broker, stream, StatusCode::REQUEST_TIMEOUT, Rejection::timeout(detail)).await;
}

/// Sends an answer, and gives the client `ANSWER_TIMEOUT` to read it.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    broker: &Broker,
    stream: &mut S,
    status: StatusCode,
    rejection: Rejection,
) {
    let body = problem(broker, status, rejection);
    let reason = status.canonical_reason().unwrap_or_default();
    // An answer that requires an upgrade must name the protocol.
    let upgrade = match status {
        StatusCode::UPGRADE_REQUIRED => "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        _ => "",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {PROBLEM}\r\nCache-Control: no-store\r\n{upgrade}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        status.as_u16(),
        body.len()
    );
    let answering = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = AsyncReadExt::take(&mut *stream, REST_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        Ok::<(), io::Error>(())
    };
    // The client may have disconnected.
    tokio::time::timeout(ANSWER_TIMEOUT, answering).await.ok();
}

/// Status and cause for a request that the handshake rejected; none if it cannot be answered, or
/// was answered already.
fn refusal_of(error: &Error, instead: &str) -> Option<(StatusCode, Rejection)> {
    let (status, flaw) = match error {
        Error::Protocol(
            ProtocolError::WrongHttpMethod
            | ProtocolError::WrongHttpVersion
            | ProtocolError::MissingConnectionUpgradeHeader
            | ProtocolError::MissingUpgradeWebSocketHeader
            | ProtocolError::MissingSecWebSocketVersionHeader
            | ProtocolError::MissingSecWebSocketKey,
        ) => (StatusCode::UPGRADE_REQUIRED, "not an upgrade to WebSocket version 13"),
        Error::Protocol(_) | Error::HttpFormat(_) | Error::Url(_) | Error::Utf8(_) => {
            (StatusCode::BAD_REQUEST, "not an HTTP request")
        }
        Error::AttackAttempt | Error::Capacity(_) => {
            let detail = format!("the head of the request is too large; {instead}");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Some((status, Rejection::out_of_range(detail)));
        }
        Error::Http(_)
        | Error::Io(_)
        | Error::Tls(_)
        | Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::WriteBufferFull(_) => return None,
    };
    Some((status, Rejection::argument(format!("this is {flaw}: {error}; {instead}"))))
}

/// Body of a refusal, in the same form as over HTTP (ERR-02).
fn problem(broker: &Broker, status: StatusCode, rejection: Rejection) -> String {
    let error = broker.refuse(rejection, "");
    let condition = error.condition();
    let problem = json!({
        "type": format!("urn:peeklock:condition:{condition}"),
        "title": condition.name(),
        "status": status.as_u16(),
        "detail": error.detail(),
        "code": condition.name(),
        "message": error.to_string(),
        "trackingId": error.tracking_id().to_string(),
        "retryable": error.retryable(),
    });
    problem.to_string()
}
