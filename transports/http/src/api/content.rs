//! Bodies of messages and states of sessions, as they are stored (CON-03, CON-27). They leave as
//! bytes that no browser shows as a document (CON-69).

use actix_web::HttpResponse;
use actix_web::body::{BoxBody, SizedStream};
use actix_web::http::{StatusCode, header};
use actix_web::web::{Bytes, BytesMut};
use futures_util::stream;
use peeklock_core::command::MessageReadError;
use peeklock_core::error::Rejection;
use peeklock_core::inspect::{BODY_BYTES_MAX, BodyReader};
use peeklock_json::{BodyKindName, JsonName as _};
use utoipa::OpenApi;

use super::inspect::sequence_number;
use super::no_content;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(body, session_state))]
pub(super) struct Operations;

/// Memory for a download: the piece that is read next, and the piece that is written.
pub(super) const STREAMED_BYTES: usize = 512 << 10;

/// Read the body of a message.
///
/// With `Range: bytes=FIRST-LAST` the answer has that part, at most 4 MiB; without it, the whole
/// body. A body of an AMQP value or sequence is the encoded section; `Peeklock-Body-Kind` has the
/// kind. Reading changes nothing.
#[utoipa::path(get, operation_id = "get_body", path = "/queues/{queue}/messages/{sequenceNumber}/body",
    tag = "inspect",
    params(("queue" = String, Path), ("sequenceNumber" = u64, Path),
        ("Range" = Option<String>, Header, description = "one range of bytes")),
    responses((status = 200, body = [u8], content_type = "application/octet-stream"),
        (status = 206, body = [u8], content_type = "application/octet-stream"),
        (status = 416, description = "the body has no such byte", body = Problem),
        (status = "default", body = Problem)))]
pub(super) async fn body(exchange: &Exchange, path: &str, sequence: &str) -> Answer {
    let sequence = sequence_number(sequence)?;
    let body = exchange.access.body(path, sequence).await?;
    let kind = BodyKindName::from(body.kind()).text();
    let mut response = answer(exchange, body).await?;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::HeaderName::from_static("peeklock-body-kind"), kind);
    Ok(response)
}

/// Read the state of a session without its lock.
///
/// `Range` works as for the body of a message. A session without a state answers 204.
#[utoipa::path(get, operation_id = "get_session_state",
    path = "/queues/{queue}/sessions/{sessionId}/state", tag = "inspect",
    params(("queue" = String, Path), ("sessionId" = String, Path),
        ("Range" = Option<String>, Header, description = "one range of bytes")),
    responses((status = 200, body = [u8], content_type = "application/octet-stream"),
        (status = 204, description = "the session has no state"),
        (status = 206, body = [u8], content_type = "application/octet-stream"),
        (status = 416, description = "the state has no such byte", body = Problem),
        (status = "default", body = Problem)))]
pub(super) async fn session_state(exchange: &Exchange, path: &str, session: &str) -> Answer {
    match exchange.access.session_state(path, session).await? {
        Some(state) => answer(exchange, state).await,
        None => Ok(no_content()),
    }
}

/// Answers with the part that the request names, or with the whole content.
async fn answer(exchange: &Exchange, content: BodyReader) -> Answer {
    let length = content.length();
    let Some(range) = range(exchange) else {
        return whole(exchange, content).await;
    };
    let Some((first, last)) = range.within(length) else {
        let detail = format!("the content has {length} bytes");
        let refusal = Refusal::from(Rejection::out_of_range(detail));
        return Err(refusal.with_status(StatusCode::RANGE_NOT_SATISFIABLE));
    };
    let last = last.min(first.saturating_add(BODY_BYTES_MAX - 1));
    let bytes = part(exchange, content, first, last - first + 1).await?;
    let place = format!("bytes {first}-{last}/{length}");
    Ok(octets(StatusCode::PARTIAL_CONTENT)
        .insert_header((header::CONTENT_RANGE, place))
        .body(bytes))
}

/// Reads a part of a content, with memory that was reserved before.
async fn part(
    exchange: &Exchange,
    mut content: BodyReader,
    from: u64,
    length: u64,
) -> Result<Bytes, Refusal> {
    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
    let room = exchange.room_of(wanted).await?;
    let mut bytes = BytesMut::with_capacity(wanted);
    content.skip_to(from).await.map_err(unreadable)?;
    while bytes.len() < wanted {
        let Some(piece) = content.next().await.map_err(unreadable)? else { break };
        let end = piece.len().min(wanted - bytes.len());
        bytes.extend_from_slice(piece.get(..end).unwrap_or_default());
    }
    if let Some(room) = room {
        exchange.hand_over(room, bytes.len(), None);
    }
    Ok(bytes.freeze())
}

/// Answers with the whole content, piece by piece: each is read when the socket has room for it.
async fn whole(exchange: &Exchange, content: BodyReader) -> Answer {
    let length = content.length();
    let held = usize::try_from(length).unwrap_or(usize::MAX).min(STREAMED_BYTES);
    if let Some(room) = exchange.room_of(held).await? {
        exchange.hand_over(room, held, None);
    }
    let pieces = stream::try_unfold(content, |mut content| async move {
        let piece = content.next().await.inspect_err(log)?;
        Ok::<_, MessageReadError>(piece.map(|piece| (piece, content)))
    });
    Ok(octets(StatusCode::OK).body(BoxBody::new(SizedStream::new(length, Box::pin(pieces)))))
}

/// Begins an answer of bytes that no browser shows as a document (CON-69).
pub(super) fn octets(status: StatusCode) -> actix_web::HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer
        .insert_header((header::CONTENT_TYPE, "application/octet-stream"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox"))
        .insert_header((header::ACCEPT_RANGES, "bytes"))
        .insert_header((header::CACHE_CONTROL, "no-store"));
    answer
}

fn log(error: &MessageReadError) {
    tracing::error!(%error, "stored content cannot be read");
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: MessageReadError) -> Refusal {
    log(&error);
    error.refusal("the stored content").into()
}

/// A range of bytes in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Range {
    /// From this byte to that byte, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl Range {
    /// Parses the value of the header; none for a unit or a list that is not supported, which is
    /// then ignored (RFC 9110 section 14.2).
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A larger number is after the end of every content.
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Returns the first and the last byte in a content of this length; none if it has no such
    /// byte.
    fn within(self, length: u64) -> Option<(u64, u64)> {
        let end = length.checked_sub(1)?;
        let (first, last) = match self {
            Self::From(first, last) => (first, last.unwrap_or(end).min(end)),
            Self::Last(count) if count > 0 => (length.saturating_sub(count), end),
            Self::Last(_) => return None,
        };
        (first <= last).then_some((first, last))
    }
}

fn range(exchange: &Exchange) -> Option<Range> {
    let header = exchange.request.headers().get(header::RANGE)?;
    Range::parse(header.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-03: a range is at most the content, and a request for no existing byte is refused.
    #[test]
    fn range_is_read_and_cut_to_the_content() {
        let read = |text: &str, length| Range::parse(text).map(|range| range.within(length));
        assert_eq!(read("bytes=0-9", 100), Some(Some((0, 9))));
        assert_eq!(read("bytes=90-", 100), Some(Some((90, 99))));
        assert_eq!(read("bytes=-10", 100), Some(Some((90, 99))));
        assert_eq!(read("bytes=-200", 100), Some(Some((0, 99))));
        assert_eq!(read("bytes=99-500", 100), Some(Some((99, 99))));
        let long = format!("bytes=0-{}0", u64::MAX);
        assert_eq!(read(&long, 100), Some(Some((0, 99))));
        for text in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(read(text, 100), Some(None), "{text}");
        }
        assert_eq!(read("bytes=0-", 0), Some(None));
        for text in ["bytes=", "bytes=-", "bytes=9-3", "bytes=0-1,4-5", "items=0-1", "bytes=+1-2"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }
}
