//! Request bodies: bounded in size, in time, and all together.

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Bytes, BytesMut};
use futures_util::StreamExt;
use peeklock_core::error::Rejection;
use peeklock_core::permits::Permit;
use serde::de::DeserializeOwned;

use crate::error::Refusal;
use crate::site::Site;

/// A body of an operation that has none is read and dropped up to this size.
const DISCARDED_BYTES_MAX: u64 = 64 * 1_024;

/// A request body, and the room it takes until this is dropped.
pub(crate) struct RequestBody {
    pub(crate) bytes: Bytes,
    _permit: Permit,
}

/// Reads a body of at most so many bytes; `what` names it in a refusal. Room is taken before the
/// first byte is read; without room the client is told to come back (DESIGN D6).
pub(crate) async fn read(
    site: &Site,
    request: &HttpRequest,
    payload: &mut web::Payload,
    what: &str,
    bytes_max: u64,
) -> Result<RequestBody, Refusal> {
    refuse_encoding(request)?;
    let announced = announced(request);
    if let Some(bytes) = announced
        && bytes > bytes_max
    {
        return Err(
            Refusal::from(Rejection::message_size_exceeded(what, bytes, bytes_max)).closing()
        );
    }
    // A body of unknown length may become as large as is allowed.
    let room = announced.unwrap_or(bytes_max);
    let Some(permit) = site.inbound.try_acquire(room) else {
        let detail = "there is no room for the request's body";
        return Err(Refusal::from(Rejection::server_busy(detail)).closing());
    };
    let bytes = in_time(site, collect(payload, what, bytes_max)).await?;
    Ok(RequestBody { bytes, _permit: permit })
}

/// Reads a body as JSON; an empty one reads as an empty object.
pub(crate) async fn read_json<T: DeserializeOwned>(
    site: &Site,
    request: &HttpRequest,
    payload: &mut web::Payload,
) -> Result<(T, RequestBody), Refusal> {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let is_json = content_type.is_none_or(|value| {
        let value = value.to_str().unwrap_or_default();
        let media_type = value.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/json")
            || media_type.eq_ignore_ascii_case("application/merge-patch+json")
    });
    if !is_json {
        return Err(Refusal::argument("the Content-Type is not application/json")
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .closing());
    }
    let body = read(site, request, payload, "request body", json_bytes_max(site)).await?;
    let text: &[u8] = if body.bytes.is_empty() { b"{}" } else { &body.bytes };
    let value = serde_json::from_slice(text)
        .map_err(|error| Refusal::parser("the request body is not the JSON expected", &error))?;
    Ok((value, body))
}

/// A batch in JSON: its text may be twice as long as its messages, by Base64 or escapes.
pub(crate) fn json_bytes_max(site: &Site) -> u64 {
    let limits = &site.broker.settings().limits;
    limits.batch_bytes_max.saturating_mul(2).saturating_add(limits.header_bytes_max)
}

/// Reads and drops the body of a request that needs none, so that the connection can go on, and so
/// that the end of the connection is seen.
pub(crate) async fn discard(site: &Site, payload: &mut web::Payload) -> Result<(), Refusal> {
    let skim = async {
        let mut bytes = 0;
        while let Some(chunk) = payload.next().await {
            bytes += chunk.map_err(|_| broken())?.len() as u64;
            if bytes > DISCARDED_BYTES_MAX {
                let what = "body of a request that needs none";
                let rejection = Rejection::message_size_exceeded(what, bytes, DISCARDED_BYTES_MAX);
                return Err(Refusal::from(rejection).closing());
            }
        }
        Ok(())
    };
    in_time(site, skim).await
}

async fn collect(payload: &mut web::Payload, what: &str, bytes_max: u64) -> Result<Bytes, Refusal> {
    let Some(first) = payload.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| broken())?;
    let mut bytes = first.len() as u64;
    let mut collected = BytesMut::new();
    let mut chunk = first;
    loop {
        if bytes > bytes_max {
            let rejection = Rejection::message_size_exceeded(what, bytes, bytes_max);
            return Err(Refusal::from(rejection).closing());
        }
        collected.extend_from_slice(&chunk);
        let Some(next) = payload.next().await else { return Ok(collected.freeze()) };
        chunk = next.map_err(|_| broken())?;
        bytes += chunk.len() as u64;
    }
}

async fn in_time<T>(
    site: &Site,
    reading: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let limit = site.config.body_timeout;
    tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
        let detail = format!("the request's body did not arrive within {} ms", limit.as_millis());
        Err(Refusal::from(Rejection::timeout(detail)).closing())
    })
}

fn announced(request: &HttpRequest) -> Option<u64> {
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    match headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.trim().parse().ok(),
        None => Some(0),
    }
}

fn refuse_encoding(request: &HttpRequest) -> Result<(), Refusal> {
    match request.headers().get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(Refusal::argument("the Content-Encoding is not identity")
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                .closing())
        }
        Some(_) | None => Ok(()),
    }
}

fn broken() -> Refusal {
    Refusal::argument("the request's body is malformed or incomplete").closing()
}
