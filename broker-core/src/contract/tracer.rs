//! Contract of a tracer, which gets the finished operations of clients for a tracing system.
//!
//! The core knows no tracing system. It notes the start of an operation and the time of its answer,
//! and reports both in one call. Without a tracer, the cost is one check of an `Option` for each
//! group of commands.

use std::time::SystemTime;

use crate::command::MessageFacts;
use crate::content_ref::ContentRef;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::{Content, PropertyView, ValueRef};
use crate::time::Timestamp;

/// Maximum number of messages of an operation that are reported individually; of the others only
/// the count. It equals the maximum number of links of an OpenTelemetry span.
pub const TRACED_MESSAGES_MAX: usize = 128;
/// Property with which a message continues the trace of its sender (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// The same property as named by the Azure SDKs.
const DIAGNOSTIC_ID: &str = "Diagnostic-Id";
/// Vendor-specific additions of tracing systems.
const TRACESTATE: &str = "tracestate";
/// Length of a `traceparent` of version 00 in bytes; longer values are ignored.
const TRACEPARENT_CHARS: usize = 55;
/// Minimum length that W3C asks systems to keep; longer values are ignored. In bytes.
const TRACESTATE_CHARS_MAX: usize = 512;

/// Receives each finished operation of a client: send, receive, settlement.
pub trait Tracer: Send + Sync {
    /// Called for an operation just before its answer leaves, or just before a message leaves over
    /// a link. Runs on threads of arbiters and clients: it must not block and must not panic.
    fn record(&self, operation: &Operation<'_>);
}

/// A finished operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Kind of operation.
    pub kind: OperationKind,
    /// Path of the entity or sub-queue, as in [`crate::Entity::path`].
    pub path: &'a str,
    /// Time at which the request came in.
    pub began_at: SystemTime,
    /// Time at which the answer left; if the operation stores data, it is durable by then.
    pub ended_at: SystemTime,
    /// Number of messages; for a receive, the received ones.
    pub message_count: u64,
    /// Details of the first [`TRACED_MESSAGES_MAX`] messages.
    pub messages: &'a [TracedMessage],
    /// Error if the operation was refused or failed.
    pub result: Result<(), &'a Rejection>,
}

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OperationKind {
    /// Sends messages.
    Send,
    /// Sends messages scheduled for later.
    Schedule,
    /// Takes over messages that another broker forwards.
    Forward,
    /// Receives messages with a call.
    Receive,
    /// Receives deferred messages by their sequence numbers.
    ReceiveDeferred,
    /// Pushes a message over a link with credit.
    Deliver,
    /// Completes a message.
    Complete,
    /// Abandons a message, as a failed delivery.
    Abandon,
    /// Defers a message.
    Defer,
    /// Dead-letters a message.
    DeadLetter,
    /// Returns a message as if it had not been delivered.
    Release,
    /// Carries out a transaction: sends and settlements in one step.
    Commit,
}

impl OperationKind {
    /// Returns the name of the kind, for example `send`, `receive_deferred`,
    /// `dead_letter`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Schedule => "schedule",
            Self::Forward => "forward",
            Self::Receive => "receive",
            Self::ReceiveDeferred => "receive_deferred",
            Self::Deliver => "deliver",
            Self::Complete => "complete",
            Self::Abandon => "abandon",
            Self::Defer => "defer",
            Self::DeadLetter => "dead_letter",
            Self::Release => "release",
            Self::Commit => "commit",
        }
    }
}

/// Details of a message of an operation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TracedMessage {
    /// Sequence number in the entity; none if the message was not stored.
    pub sequence: Option<SequenceNumber>,
    /// Text form of the message id.
    pub message_id: Option<Box<str>>,
    /// Text form of the correlation id.
    pub correlation_id: Option<Box<str>>,
    /// Trace context from the sender: property `traceparent`, otherwise `Diagnostic-Id`. Not
    /// validated.
    pub traceparent: Option<Box<str>>,
    /// Property `tracestate`, at most 512 bytes, if the message has a `traceparent`.
    pub tracestate: Option<Box<str>>,
    /// Number of deliveries including this one; only for received messages.
    pub delivery_count: Option<u32>,
    /// Time of enqueueing; only for received messages.
    pub enqueued_at: Option<Timestamp>,
}

impl TracedMessage {
    /// Creates the details of a sent message.
    pub(crate) fn sent(content: &Content) -> Self {
        let view = content.property_view();
        let traceparent = text_of(&view, TRACEPARENT, TRACEPARENT_CHARS)
            .or_else(|| text_of(&view, DIAGNOSTIC_ID, TRACEPARENT_CHARS));
        let tracestate =
            traceparent.as_ref().and_then(|_| text_of(&view, TRACESTATE, TRACESTATE_CHARS_MAX));
        Self {
            message_id: view.message_id().map(Into::into),
            correlation_id: view.correlation_id().map(Into::into),
            traceparent,
            tracestate,
            ..Self::default()
        }
    }

    /// Creates the details of a received message. Properties of its sender are included only if
    /// they are in memory, so that no disk access is needed.
    pub(crate) fn received(facts: &MessageFacts, content: &ContentRef) -> Self {
        let bytes = match content {
            ContentRef::Loaded(bytes) => Some(bytes.clone()),
            ContentRef::Stored(stored) => stored.cached().and_then(Result::ok),
        };
        let content = bytes.and_then(|bytes| Content::parse(bytes).ok());
        Self {
            sequence: Some(facts.sequence),
            delivery_count: Some(facts.shown_delivery_count()),
            enqueued_at: Some(facts.enqueued_at),
            ..content.as_ref().map(Self::sent).unwrap_or_default()
        }
    }

    /// Creates the details of a message of which only the number is known.
    pub(crate) fn numbered(sequence: SequenceNumber) -> Self {
        Self { sequence: Some(sequence), ..Self::default() }
    }
}

/// Returns a text property by its name in any case, since HTTP header names have no case.
fn text_of(view: &PropertyView<'_>, name: &str, chars_max: usize) -> Option<Box<str>> {
    match view.resolve(name)?.1 {
        ValueRef::String(text) if text.len() <= chars_max => Some(text.into()),
        _ => None,
    }
}
