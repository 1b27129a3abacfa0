//! A received message: the sender's properties, and the properties that the broker set. Receivers
//! and consumers return it. The body is loaded on demand.

use bytes::Bytes;
use peeklock_core::command::{LAST_ERROR_PROPERTY, MessageFacts, MessageState, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Error of a body that is not JSON of the expected type.
#[derive(Debug, thiserror::Error)]
#[error("message {sequence} is not the expected JSON: {source}")]
pub struct BodyError {
    /// The message.
    pub sequence: SequenceNumber,
    /// The error of the parser.
    #[source]
    pub source: serde_json::Error,
}

/// Error of a value that cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("the value cannot be written as JSON: {source}")]
pub struct WriteError {
    /// The error of the serializer.
    #[source]
    pub source: serde_json::Error,
}

/// A message that was received or peeked.
///
/// Its body may share memory with messages that were received together, up to four times their
/// total size. To keep a single message for long, copy its body.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::json_message;
/// use peeklock::message::Value;
/// use peeklock::time::TimeSpan;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// # client.admin().create_queue("orders").await?;
/// let message = json_message(&["coffee", "tea"])?.with_application_property("table", "seven");
/// client.sender("orders")?.send(message).await?;
/// let order = client.receiver("orders")?.receive(TimeSpan::ZERO).await?.unwrap();
/// assert_eq!(order.json::<Vec<String>>()?, ["coffee", "tea"]);
/// let table = order.message().application_property("table");
/// assert_eq!(table, Some(&Value::from("seven")));
/// assert_eq!((order.sequence_number().0, order.delivery_count()), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Received {
    message: Message,
    facts: MessageFacts,
    own_time_to_live: Option<TimeSpan>,
    dead_letter_source: Option<String>,
}

impl Received {
    /// Loads the content of a received message.
    pub(crate) async fn load(received: &ReceivedMessage) -> Result<Self, Rejection> {
        let facts = received.facts;
        let loaded = received.load().await.map_err(|error| {
            let sequence = facts.sequence;
            tracing::error!(sequence_number = sequence.0, %error, "content cannot be read");
            error.refusal(&format!("the content of message {sequence}"))
        })?;
        let (mut message, dead_letter_source) = (loaded.message, loaded.dead_letter_source);
        let own_time_to_live = message.time_to_live;
        message.time_to_live = facts.time_to_live.or(own_time_to_live);
        Ok(Self { message, facts, own_time_to_live, dead_letter_source })
    }

    /// Creates a message that no broker has delivered.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn by_hand(message: Message, facts: MessageFacts) -> Self {
        let own_time_to_live = message.time_to_live;
        Self { message, facts, own_time_to_live, dead_letter_source: None }
    }

    /// Returns the message with the properties set by its sender and by settlements.
    #[must_use]
    pub const fn message(&self) -> &Message {
        &self.message
    }

    /// Converts to the message, for example to send it to another entity. It keeps its MessageId:
    /// an entity with duplicate detection that has seen the id within its window drops it, and the
    /// send returns `Ok` with a number that [is none](SequenceNumber::is_duplicate) (DUP-02). To
    /// send a dead letter back to its queue, use [`Received::to_resubmit`].
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }

    /// Returns a copy of a dead letter, to be sent to its queue again. The copy lacks
    /// DeadLetterReason and DeadLetterErrorDescription, which dead-lettering set (DLQ-14), the last
    /// error (SET-42), and the MessageId, for which duplicate detection would drop it (DUP-02). It has the sender's time to
    /// live, which starts again, and is not scheduled. Everything else is unchanged.
    ///
    /// To neither lose nor duplicate the message, complete the dead letter in the transaction that
    /// sends the copy:
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; }
    /// use peeklock::Client;
    /// use peeklock::path::dead_letter_path;
    /// use peeklock::time::TimeSpan;
    ///
    /// async fn resubmit(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    ///     let letters = client.receiver(&dead_letter_path("orders"))?;
    ///     let orders = client.sender("orders")?;
    ///     if let Some(letter) = letters.receive(TimeSpan::ZERO).await? {
    ///         let transaction = client.begin_transaction().await?;
    ///         transaction.complete(&letters, &letter).await?;
    ///         transaction.send(&orders, letter.to_resubmit()).await?;
    ///         transaction.commit().await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn to_resubmit(&self) -> Message {
        let mut copy = self.message.clone();
        copy.message_id = None;
        copy.time_to_live = self.own_time_to_live;
        // The scheduled instant has passed, since the message was delivered.
        copy.scheduled_enqueue_time = None;
        let of_failure = [DEAD_LETTER_REASON, DEAD_LETTER_ERROR_DESCRIPTION, LAST_ERROR_PROPERTY];
        copy.application_properties.retain(|(key, _)| !of_failure.contains(&key.as_str()));
        copy
    }

    /// Returns the bytes of the body (MSG-01).
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        self.message.body.as_bytes()
    }

    /// Parses the body as JSON of a type.
    ///
    /// # Errors
    /// Returns an error if the body is not JSON of that type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, BodyError> {
        serde_json::from_slice(self.body())
            .map_err(|source| BodyError { sequence: self.facts.sequence, source })
    }

    /// Returns the sequence number, which identifies the message in its entity (MSG-12).
    #[must_use]
    pub const fn sequence_number(&self) -> SequenceNumber {
        self.facts.sequence
    }

    /// Returns the enqueued time (MSG-17).
    #[must_use]
    pub const fn enqueued_at(&self) -> Timestamp {
        self.facts.enqueued_at
    }

    /// Returns the expiry; not computed when peeking a message without own TTL (EXP-11).
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.facts.expires_at
    }

    /// Returns the TTL: effective on receive, own on peek (EXP-14).
    #[must_use]
    pub const fn time_to_live(&self) -> Option<TimeSpan> {
        self.facts.time_to_live
    }

    /// Returns the TTL that the sender set, before any ceiling (EXP-05). Over a transport that uses
    /// JSON it equals [`Received::time_to_live`].
    #[must_use]
    pub const fn own_time_to_live(&self) -> Option<TimeSpan> {
        self.own_time_to_live
    }

    /// Returns the delivery count: 1 on the first delivery under lock (SET-30); when peeked, the
    /// number of failed deliveries (SET-29).
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.facts.shown_delivery_count()
    }

    /// Returns the state: active, deferred, scheduled or Delayed (PEK-05, RTY-12).
    #[must_use]
    pub const fn state(&self) -> MessageState {
        self.facts.state
    }

    /// Returns the end of the delay of a Delayed message (RTY-12).
    #[must_use]
    pub const fn delayed_until(&self) -> Option<Timestamp> {
        self.facts.delayed_until
    }

    /// Returns the token that settles it; absent without a lock (MSG-19).
    #[must_use]
    pub fn lock_token(&self) -> Option<LockToken> {
        self.facts.lock.map(|lock| lock.token)
    }

    /// Returns the end of the lock, as of the delivery (SET-16).
    #[must_use]
    pub fn locked_until(&self) -> Option<Timestamp> {
        self.facts.lock.map(|lock| lock.until)
    }

    /// Returns the reason for dead-lettering (DLQ-14).
    #[must_use]
    pub fn dead_letter_reason(&self) -> Option<&str> {
        self.text(DEAD_LETTER_REASON)
    }

    /// Returns the description of the reason for dead-lettering (DLQ-14).
    #[must_use]
    pub fn dead_letter_error_description(&self) -> Option<&str> {
        self.text(DEAD_LETTER_ERROR_DESCRIPTION)
    }

    /// Returns the error that the last failed handler left (SET-42).
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.text(LAST_ERROR_PROPERTY)
    }

    /// Returns the entity in which it was dead-lettered before it was forwarded here (FWD-26).
    #[must_use]
    pub fn dead_letter_source(&self) -> Option<&str> {
        self.dead_letter_source.as_deref()
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.message.application_property(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns all properties that the broker set.
    #[must_use]
    pub const fn facts(&self) -> &MessageFacts {
        &self.facts
    }
}

/// Creates a message with a value as its JSON body and the matching content type.
///
/// # Errors
/// Returns an error if the value cannot be written as JSON. With `?` in a handler the error
/// dead-letters the handler's message for the reason `BodyNotWritable`.
pub fn json_message<T: Serialize>(value: &T) -> Result<Message, WriteError> {
    let body = serde_json::to_vec(value).map_err(|source| WriteError { source })?;
    Ok(Message::new(body).with_content_type("application/json"))
}
