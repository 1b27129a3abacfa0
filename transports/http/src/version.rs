//! What all management over HTTP has: versions as ETags, places of what was created.

use actix_web::HttpResponse;
use actix_web::http::header;
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

use crate::error::Refusal;
use crate::serve::Exchange;

/// The version that the client has read; none if any will do.
pub(crate) fn version(exchange: &Exchange) -> Result<Option<Timestamp>, Refusal> {
    let Some(header) = exchange.request.headers().get(header::IF_MATCH) else { return Ok(None) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let instant = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match Timestamp::parse(instant) {
        Some(version) => Ok(Some(version)),
        None => {
            let detail = "If-Match must be * or the ETag of the entity, its quoted updatedAt";
            Err(Rejection::argument(detail).into())
        }
    }
}

/// An answer with its version as ETag.
pub(crate) fn versioned(mut response: HttpResponse, updated_at: Timestamp) -> HttpResponse {
    if let Ok(etag) = header::HeaderValue::from_str(&format!("\"{updated_at}\"")) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// An answer with the address of what was created.
pub(crate) fn located(mut response: HttpResponse, location: &str) -> HttpResponse {
    if let Ok(location) = header::HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
