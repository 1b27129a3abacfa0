//! Messages between the broker and an answer: in with the limits of HTTP, out with their content.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use peeklock_core::Entity;
use peeklock_core::call::submit_unanswered;
use peeklock_core::command::{Command, InboundMessage, LoadedMessage, ReceivedMessage, Settlement};
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Defect, Message};
use peeklock_core::permits::Permit;

use crate::error::Refusal;
use crate::site::Site;

/// Makes a message ready to be sent. One above the size of HTTP gets that defect, so that the entity
/// refuses it at its place among the other checks (SND-19, QUO-01).
pub(crate) fn inbound(site: &Site, message: Message) -> InboundMessage {
    let mut inbound = site.broker.inbound(message);
    let bytes_max = site.broker.settings().limits.message_bytes_http_max;
    let bytes = u64::from(inbound.envelope.size);
    if bytes > bytes_max && !matches!(inbound.envelope.defect, Some(Defect::Size(_))) {
        let rejection =
            Rejection::message_size_exceeded("message sent over HTTP", bytes, bytes_max);
        inbound.envelope.defect = Some(Defect::Size(rejection));
    }
    inbound
}

/// Locks taken for an answer that has not begun. Dropped before, because the client went away or the
/// answer cannot be made, they are released without count (RCV-14, HTP-11).
pub(crate) struct Undelivered<'a> {
    entity: &'a Entity,
    tokens: Vec<LockToken>,
}

impl<'a> Undelivered<'a> {
    pub(crate) fn new(entity: &'a Entity, messages: &[ReceivedMessage]) -> Self {
        let tokens =
            messages.iter().filter_map(|message| message.facts.lock).map(|lock| lock.token);
        Self { entity, tokens: tokens.collect() }
    }

    /// The answer is handed over to be written.
    pub(crate) fn begun(mut self) {
        self.tokens.clear();
    }
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        let releases = self
            .tokens
            .drain(..)
            .map(|token| Command::Settle { token, settlement: Settlement::Release })
            .collect();
        submit_unanswered(self.entity, releases);
    }
}

/// Takes room for the contents of messages. Messages that can be given back are, when there is none;
/// those that were removed by being received are worth a wait.
pub(crate) async fn outbound(site: &Site, messages: &[ReceivedMessage]) -> Result<Permit, Refusal> {
    let bytes = messages.iter().map(|message| u64::from(message.facts.size)).sum();
    if let Some(permit) = site.outbound.try_acquire(bytes) {
        return Ok(permit);
    }
    if messages.iter().all(|message| message.facts.lock.is_some()) {
        let detail = "there is no room for the messages of the answer";
        return Err(Rejection::server_busy(detail).into());
    }
    Ok(site.outbound.acquire(bytes).await)
}

/// Reads a message with the properties that settlements gave it.
pub(crate) async fn load(received: &ReceivedMessage) -> Result<LoadedMessage, Refusal> {
    received.load().await.map_err(|error| {
        let sequence_number = received.facts.sequence.0;
        tracing::error!(sequence_number, %error, "message cannot be read");
        Refusal::from(Rejection::internal("the content of the message cannot be read"))
    })
}

/// The text form of a stored message's id.
pub(crate) async fn message_id(received: &ReceivedMessage) -> Result<Option<String>, Refusal> {
    Ok(load(received).await?.message.message_id.map(|id| id.to_string()))
}

/// The body of an answer, and the room it takes until it is written.
pub(crate) struct HeldBody {
    bytes: Bytes,
    written: bool,
    _permit: Permit,
}

impl HeldBody {
    pub(crate) const fn new(bytes: Bytes, permit: Permit) -> Self {
        Self { bytes, written: false, _permit: permit }
    }
}

impl MessageBody for HeldBody {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.written {
            return Poll::Ready(None);
        }
        self.written = true;
        Poll::Ready(Some(Ok(std::mem::take(&mut self.bytes))))
    }
}
