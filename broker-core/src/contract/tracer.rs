//! What is told of the operations of clients, so that a tracing system can show them.
//!
//! The core knows no tracing system: it notes when an operation came in at the door and when its answer left, and hands
//! both over in one call. Nothing is noted where no tracer is; it costs one look at an `Option` for each group of commands.

use std::time::SystemTime;

use crate::command::MessageFacts;
use crate::content_ref::ContentRef;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::message::{Content, PropertyView, ValueRef};
use crate::time::Timestamp;

/// Of a list of messages so many are told of one by one; of the others only how many there are. As many links as a span
/// of OpenTelemetry has.
pub const TRACED_MESSAGES_MAX: usize = 128;
/// The property by which a trace goes on from who has sent a message (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// The same, as all SDKs of Azure name it.
const DIAGNOSTIC_ID: &str = "Diagnostic-Id";
/// What tracing systems say besides.
const TRACESTATE: &str = "tracestate";
/// A `traceparent` of version 00 has so many characters; a longer one is none that could be gone on with.
const TRACEPARENT_CHARS: usize = 55;
/// As many as W3C asks to be kept.
const TRACESTATE_CHARS_MAX: usize = 512;

/// Is told of each operation of a client that is over: its send, its receive, its settlement.
pub trait Tracer: Send + Sync {
    /// An operation was answered, or a message left over a link. Called just before that leaves, from threads of arbiters
    /// and of clients: it must not block and must not panic.
    fn record(&self, operation: &Operation<'_>);
}

/// An operation that is over.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// What was asked.
    pub kind: OperationKind,
    /// Of which entity or sub-queue: its path, as [`crate::Entity::path`] has it.
    pub path: &'a str,
    /// When it came in.
    pub began_at: SystemTime,
    /// When its answer left, which for what is stored is after it was.
    pub ended_at: SystemTime,
    /// How many messages it was about; of a receive those that came.
    pub message_count: u64,
    /// What is known of them, of the first [`TRACED_MESSAGES_MAX`].
    pub messages: &'a [TracedMessage],
    /// Why it was refused or has failed, if it has.
    pub result: Result<(), &'a Rejection>,
}

/// What is asked in an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OperationKind {
    /// Messages are sent.
    Send,
    /// Messages are sent for later.
    Schedule,
    /// Another broker hands messages over that it forwards.
    Forward,
    /// Messages are asked for.
    Receive,
    /// Deferred messages are asked for by their numbers.
    ReceiveDeferred,
    /// A message is pushed over a link that has credit.
    Deliver,
    /// A message was processed.
    Complete,
    /// A message is given back, as a failed delivery.
    Abandon,
    /// A message is set aside.
    Defer,
    /// A message is dead-lettered.
    DeadLetter,
    /// A message is given back as if it had not been delivered.
    Release,
    /// A transaction is carried out: sends and settlements as one.
    Commit,
}

impl OperationKind {
    /// Its name, in the words of the broker: `send`, `receive_deferred`, `dead_letter`.
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

/// What is known of a message that an operation was about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TracedMessage {
    /// Its number in the entity; none of one that was not stored.
    pub sequence: Option<SequenceNumber>,
    /// The text form of its id.
    pub message_id: Option<Box<str>>,
    /// The text form of its correlation id.
    pub correlation_id: Option<Box<str>>,
    /// What its sender says that it belongs to: its property `traceparent`, else `Diagnostic-Id`. Nobody has looked
    /// whether it is well-formed.
    pub traceparent: Option<Box<str>>,
    /// Its property `tracestate`, at most 512 characters, if it has a `traceparent`.
    pub tracestate: Option<Box<str>>,
    /// How often it was delivered, with this time; of what was received.
    pub delivery_count: Option<u32>,
    /// When it was enqueued; of what was received.
    pub enqueued_at: Option<Timestamp>,
}

impl TracedMessage {
    /// Of a message that is sent.
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

    /// Of a message that is received. What its sender has said is known of it only if that can be read without waiting
    /// for a disk.
    pub(crate) fn received(facts: &MessageFacts, content: &ContentRef) -> Self {
        let bytes = match content {
            ContentRef::Loaded(bytes) => Some(bytes.clone()),
            ContentRef::Stored(stored) => stored.at_hand().and_then(Result::ok),
        };
        let content = bytes.and_then(|bytes| Content::parse(bytes).ok());
        Self {
            sequence: Some(facts.sequence),
            delivery_count: Some(facts.shown_delivery_count()),
            enqueued_at: Some(facts.enqueued_at),
            ..content.as_ref().map(Self::sent).unwrap_or_default()
        }
    }

    /// Of a message of which nothing but its number is known.
    pub(crate) fn numbered(sequence: SequenceNumber) -> Self {
        Self { sequence: Some(sequence), ..Self::default() }
    }
}

/// A property in whatever case: over HTTP names of headers have none.
fn text_of(view: &PropertyView<'_>, name: &str, chars_max: usize) -> Option<Box<str>> {
    match view.resolve(name)?.1 {
        ValueRef::String(text) if text.len() <= chars_max => Some(text.into()),
        _ => None,
    }
}
