//! Request bodies: bounded in size and pace, and in memory over all connections. Handlers read
//! bodies only through it. A slow client loses its memory to others that wait.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Bytes, BytesMut};
use futures_util::Stream as _;
use peeklock_core::admission::{NotGranted, Pace, PacedShare, Timer, arriving_step};
use peeklock_core::error::Rejection;
use peeklock_json::{Marks, PART_BYTES};
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::Refusal;
use crate::exchange::Exchange;
use crate::site::Site;
use crate::socket::Connection;

/// Maximum size of an unwanted body that is read and discarded, in bytes.
const DISCARDED_BYTES_MAX: u64 = 64 * 1_024;
/// Bytes that each connection may use without reserving memory.
const FREE_BYTES: u64 = 16 << 10;
/// Minimum pace of a body after `http.body_timeout`, in bytes per second.
const PACE_BYTES: u64 = 16 << 10;
/// Maximum time that a body waits for memory.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);
/// Upper bound of the memory of another message in a JSON list, in bytes.
const ELEMENT_BYTES: u64 = 1_024;
/// Maximum memory of the values of a JSON text in addition to its length, in bytes.
const MADE_BYTES_MAX: u64 = 16 << 20;

/// A request body. Dropping it releases its memory.
pub(crate) struct RequestBody {
    pub(crate) bytes: Bytes,
    share: PacedShare,
}

/// A body that is being received.
struct IncomingBody<'a> {
    site: &'a Site,
    connection: Option<&'a Rc<Connection>>,
    payload: &'a mut web::Payload,
    subject: &'a str,
    bytes_max: u64,
    /// Announced size, if the head gives one and memory is reserved for it.
    whole_bytes: Option<u64>,
    bytes: u64,
    pace: Pace,
    timer: Timer,
}

/// Reads a body of at most `bytes_max`; `subject` names it in a refusal. Memory is reserved as bytes
/// arrive; the announced size of a large body reserves nothing. A slow body yields to waiting ones,
/// and a body that waits too long for memory is refused with a retryable error (DESIGN D6).
pub(crate) async fn read(
    exchange: &Exchange,
    payload: &mut web::Payload,
    subject: &str,
    bytes_max: u64,
) -> Result<RequestBody, Refusal> {
    let Exchange { site, request, .. } = exchange;
    refuse_encoding(request)?;
    let whole_bytes = announced(request);
    if let Some(bytes) = whole_bytes
        && bytes > bytes_max
    {
        return Err(
            Refusal::from(Rejection::message_size_exceeded(subject, bytes, bytes_max)).closing()
        );
    }
    let mut share = site.inbound.paced_share();
    let mut arriving = IncomingBody::new(exchange, payload, subject, bytes_max, whole_bytes);
    let Some(first) = arriving.next(Some(&mut share)).await? else {
        exchange.deadline.restart(Duration::ZERO);
        return Ok(RequestBody { bytes: Bytes::new(), share });
    };
    let mut collected = BytesMut::new();
    let mut chunk = first;
    loop {
        arriving.reserve_received(&mut share).await?;
        collected.extend_from_slice(&chunk);
        arriving.allow_more(chunk.len());
        let Some(next) = arriving.next(Some(&mut share)).await? else { break };
        chunk = next;
    }
    // The body is complete: from now on the request waits for the broker, not for the client.
    share.rest();
    exchange.deadline.restart(Duration::ZERO);
    Ok(RequestBody { bytes: collected.freeze(), share })
}

/// Reads and discards the body of a request that needs none, so that the connection can continue
/// and its end is noticed.
pub(crate) async fn discard(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<(), Refusal> {
    let subject = "this request must not have a body";
    let mut arriving = IncomingBody::new(exchange, payload, subject, DISCARDED_BYTES_MAX, None);
    while let Some(chunk) = arriving.next(None).await? {
        arriving.allow_more(chunk.len());
    }
    exchange.deadline.restart(Duration::ZERO);
    Ok(())
}

/// Reads the body of a request whose operation has none, and refuses a body with content: its
/// sender would believe that it took effect (RTY-10). An empty body, or an empty JSON object, has
/// no content.
pub(crate) async fn read_nothing(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<(), Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    let subject = "this request must not have a body";
    let body = read(exchange, payload, subject, DISCARDED_BYTES_MAX).await?;
    if body.bytes.is_empty() {
        return Ok(());
    }
    let nothing = serde_json::from_slice::<Nothing>(&body.bytes);
    nothing
        .map(drop)
        .map_err(|error| Refusal::parser("this operation has no body; leave it out", &error))
}

impl<'a> IncomingBody<'a> {
    fn new(
        exchange: &'a Exchange,
        payload: &'a mut web::Payload,
        subject: &'a str,
        bytes_max: u64,
        whole_bytes: Option<u64>,
    ) -> Self {
        let Exchange { site, request, .. } = exchange;
        exchange.deadline.lift();
        let connection = request.conn_data();
        let grace = site.config.body_timeout;
        let pace = Pace::begin(Instant::now(), 0, grace).at_least(PACE_BYTES);
        let timer = Timer::default();
        Self { site, connection, payload, subject, bytes_max, whole_bytes, bytes: 0, pace, timer }
    }

    /// Returns the next chunk; none at the end.
    async fn next(&mut self, mut share: Option<&mut PacedShare>) -> Result<Option<Bytes>, Refusal> {
        let patience = self.site.config.body_timeout;
        let (pace, timer) = (self.pace, &mut self.timer);
        let (payload, here_bytes) = (&mut *self.payload, self.bytes);
        let chunk = poll_fn(|context| {
            if let Poll::Ready(chunk) = pin!(&mut *payload).poll_next(context) {
                return Poll::Ready(Ok(chunk));
            }
            let share = share.as_deref_mut();
            if share.is_some_and(|share| share.is_evicted(here_bytes, Instant::now(), context)) {
                return Poll::Ready(Err(evicted()));
            }
            pace.poll_slow(timer, context).map(|()| Err(too_slow(patience)))
        });
        let Some(chunk) = chunk.await? else { return Ok(None) };
        let chunk = chunk.map_err(|_| broken())?;
        self.bytes += chunk.len() as u64;
        self.pace.pass(self.bytes, 0, Instant::now());
        if self.bytes > self.bytes_max {
            let rejection =
                Rejection::message_size_exceeded(self.subject, self.bytes, self.bytes_max);
            return Err(Refusal::from(rejection).closing());
        }
        Ok(Some(chunk))
    }

    /// Reserves memory for the received bytes.
    async fn reserve_received(&mut self, share: &mut PacedShare) -> Result<(), Refusal> {
        let most = self.site.inbound.bytes_max();
        while self.bytes.min(most) > FREE_BYTES + share.held_bytes() {
            let step = arriving_step(self.whole_bytes, FREE_BYTES + share.held_bytes());
            let step = step.min(most - share.held_bytes());
            let asked = Instant::now();
            match share.wait(step, self.bytes, asked + ROOM_PATIENCE).await {
                // The body was not read during the wait.
                Ok(()) => self.pace.put_off(asked.elapsed()),
                Err(NotGranted::Evicted) => return Err(evicted()),
                Err(NotGranted::Late) => return Err(no_room().closing()),
            }
        }
        Ok(())
    }

    /// Allows the connection to read this many more bytes.
    fn allow_more(&self, bytes: usize) {
        if let Some(connection) = self.connection {
            connection.taken(bytes);
        }
    }
}

impl RequestBody {
    /// Reserves memory for the values of a JSON text before they are decoded, and for a second copy
    /// of its texts.
    pub(crate) async fn have_room_for_parts(&mut self, site: &Site) -> Result<(), Refusal> {
        let made_bytes = made_bytes(&self.bytes);
        if made_bytes > MADE_BYTES_MAX {
            let detail = format!(
                "the values in the request body would take more than {MADE_BYTES_MAX} bytes; send several requests"
            );
            return Err(Rejection::quota_exceeded(detail).into());
        }
        self.have_room_for(site, made_bytes.saturating_add(self.bytes.len() as u64)).await
    }

    /// Reserves memory for `made_bytes` in addition to the body, before it is used.
    pub(crate) async fn have_room_for(
        &mut self,
        site: &Site,
        made_bytes: u64,
    ) -> Result<(), Refusal> {
        let wanted = (self.bytes.len() as u64 + made_bytes).min(site.inbound.bytes_max());
        if wanted <= FREE_BYTES + self.share.held_bytes() {
            return Ok(());
        }
        // Requested in one step; meanwhile it holds no memory that others may wait for.
        self.share.release();
        let granted = self.share.wait(wanted, wanted, Instant::now() + ROOM_PATIENCE).await;
        granted.map_err(|_| no_room())?;
        self.share.rest();
        Ok(())
    }
}

/// Returns the memory of the values in a JSON text, without their texts. Counting stops at the
/// maximum. Invalid JSON gets some number and is refused later.
fn made_bytes(text: &[u8]) -> u64 {
    let mut bytes = 0;
    for mark in Marks::of(text) {
        bytes += match mark {
            b'{' => ELEMENT_BYTES,
            b',' | b'[' => PART_BYTES,
            _ => 0,
        };
        if bytes > MADE_BYTES_MAX {
            break;
        }
    }
    bytes
}

/// Whether `Content-Type` is JSON; none if there is no such header.
pub(crate) fn is_json(request: &HttpRequest) -> Option<bool> {
    let value = request.headers().get(header::CONTENT_TYPE)?.to_str().unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    let known = ["application/json", "application/merge-patch+json"];
    Some(known.iter().any(|one| media_type.eq_ignore_ascii_case(one)))
}

/// Reads a body as JSON; an empty one reads as an empty object. The returned body keeps only its
/// memory reservation.
pub(crate) async fn read_json<T: DeserializeOwned>(
    exchange: &Exchange,
    payload: &mut web::Payload,
) -> Result<(T, RequestBody), Refusal> {
    read_json_within(exchange, payload, json_bytes_max(&exchange.site)).await
}

/// As [`read_json`], for a body of at most `bytes_max`.
pub(crate) async fn read_json_within<T: DeserializeOwned>(
    exchange: &Exchange,
    payload: &mut web::Payload,
    bytes_max: u64,
) -> Result<(T, RequestBody), Refusal> {
    let site = &exchange.site;
    if is_json(&exchange.request) == Some(false) {
        return Err(Refusal::argument("the Content-Type must be application/json")
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .closing());
    }
    let mut body = read(exchange, payload, "request body", bytes_max).await?;
    body.have_room_for_parts(site).await?;
    let text: &[u8] = if body.bytes.is_empty() { b"{}" } else { &body.bytes };
    let value = serde_json::from_slice(text)
        .map_err(|error| Refusal::parser("the request body is not the expected JSON", &error))?;
    // Objects made from the value, such as a rule, use the memory of its text.
    body.bytes = Bytes::new();
    Ok((value, body))
}

/// Maximum size of a batch in JSON, in bytes: Base64 or escapes may double the size of its
/// messages.
pub(crate) fn json_bytes_max(site: &Site) -> u64 {
    let limits = &site.broker.settings().limits;
    limits.batch_bytes_max.saturating_mul(2).saturating_add(limits.header_bytes_max)
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
            Err(Refusal::argument("the Content-Encoding must be identity")
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
                .closing())
        }
        Some(_) | None => Ok(()),
    }
}

fn broken() -> Refusal {
    Refusal::argument("the request's body is malformed or incomplete").closing()
}

fn too_slow(patience: Duration) -> Refusal {
    let ms = patience.as_millis();
    let detail = format!(
        "the request body did not arrive: after `http.body_timeout`, {ms} ms, it must arrive with \
         at least {PACE_BYTES} bytes per second"
    );
    Refusal::from(Rejection::timeout(detail)).closing()
}

fn evicted() -> Refusal {
    let detail = "the request body arrives slowly while other requests wait for memory; retry";
    Refusal::from(Rejection::server_busy(detail)).closing()
}

fn no_room() -> Refusal {
    Rejection::server_busy("there is no memory for the request body; retry later").into()
}

/// Maximum number of elements in a list.
pub(crate) const COUNT_MAX: usize = 4_096;

/// A list of at most [`COUNT_MAX`] elements; a longer one is refused before the rest is read.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            if read.len() == COUNT_MAX {
                let text = format!("a list has at most {COUNT_MAX} elements");
                return Err(serde::de::Error::custom(text));
            }
            read.push(element);
        }
        Ok(List(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DESIGN D6: the values of a body are counted, contents of strings are not, and counting stops
    /// at the maximum.
    #[test]
    fn values_are_counted_as_far_as_there_may_be_any() {
        assert_eq!(made_bytes(br#"{"a":[1,"{,["]}"#), ELEMENT_BYTES + 2 * PART_BYTES);
        let list = |count: u64| {
            let elements = vec!["{}"; usize::try_from(count).unwrap()];
            format!("[{}]", elements.join(",")).into_bytes()
        };
        // Each element together with the comma or bracket before it.
        let each = ELEMENT_BYTES + PART_BYTES;
        let count_max = MADE_BYTES_MAX / each;
        assert_eq!(made_bytes(&list(count_max)), count_max * each);
        let beyond = made_bytes(&list(count_max + 1));
        assert!(beyond > MADE_BYTES_MAX);
        assert_eq!(made_bytes(&list(100 * count_max)), beyond);
    }
}
