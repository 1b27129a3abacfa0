//! A received message: what the sender set, and what the broker says about it.

use bytes::Bytes;
use peeklock_core::command::{MessageFacts, MessageState, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a body is not of the type asked for.
#[derive(Debug, thiserror::Error)]
#[error("message {sequence} is not the expected JSON: {source}")]
pub struct BodyError {
    /// The message.
    pub sequence: SequenceNumber,
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

/// Why a value is no body: it cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("the value cannot be written as JSON: {source}")]
pub struct WriteError {
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

/// A message that was received or peeked.
///
/// Its body may share memory with messages that were received with it, of up to four times the bytes of
/// them all; who keeps one of many for long should copy its body.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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
    /// Fetches what was received.
    pub(crate) async fn load(received: &ReceivedMessage) -> Result<Self, Rejection> {
        let facts = received.facts;
        let loaded = received.load().await.map_err(|error| {
            let sequence = facts.sequence;
            Rejection::internal(format!("content of message {sequence} cannot be read: {error}"))
        })?;
        let (mut message, dead_letter_source) = (loaded.message, loaded.dead_letter_source);
        let own_time_to_live = message.time_to_live;
        message.time_to_live = facts.time_to_live.or(own_time_to_live);
        Ok(Self { message, facts, own_time_to_live, dead_letter_source })
    }

    /// One that no broker has delivered.
    #[cfg(feature = "testing")]
    pub(crate) fn by_hand(message: Message, facts: MessageFacts) -> Self {
        let own_time_to_live = message.time_to_live;
        Self { message, facts, own_time_to_live, dead_letter_source: None }
    }

    /// The message with the properties that its sender set, and those set by settlements.
    #[must_use]
    pub const fn message(&self) -> &Message {
        &self.message
    }

    /// The message, to be sent again elsewhere. It has its MessageId still: an entity with duplicate detection that has
    /// seen this within its window drops it, and the send answers with `Ok` and a number that
    /// [is none](SequenceNumber::is_duplicate) (DUP-02). What was dead-lettered goes back to its queue by
    /// [`Received::to_resubmit`].
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }

    /// A copy of a dead letter, to be sent to its queue again: without what the dead-lettering has set, DeadLetterReason
    /// and DeadLetterErrorDescription (DLQ-14), and without its MessageId, for which duplicate detection would drop the
    /// copy (DUP-02). It has the time to live that its sender set, which begins anew, and is not scheduled. Everything
    /// else is as it was.
    ///
    /// So that it is neither lost nor there twice, the letter is completed in the transaction in which the copy is sent:
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
        // It is over, or else the message would not be there.
        copy.scheduled_enqueue_time = None;
        copy.application_properties
            .retain(|(key, _)| key != DEAD_LETTER_REASON && key != DEAD_LETTER_ERROR_DESCRIPTION);
        copy
    }

    /// The bytes of the body (MSG-01).
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        self.message.body.as_bytes()
    }

    /// The body as a value of a type of yours.
    ///
    /// # Errors
    /// When it is not the JSON of one.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, BodyError> {
        serde_json::from_slice(self.body())
            .map_err(|source| BodyError { sequence: self.facts.sequence, source })
    }

    /// Identity in the entity (MSG-12).
    #[must_use]
    pub const fn sequence_number(&self) -> SequenceNumber {
        self.facts.sequence
    }

    /// When it was enqueued (MSG-17).
    #[must_use]
    pub const fn enqueued_at(&self) -> Timestamp {
        self.facts.enqueued_at
    }

    /// When it expires; not computed when peeking a message without own TTL (EXP-11).
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.facts.expires_at
    }

    /// The TTL: effective on receive, own on peek (EXP-14).
    #[must_use]
    pub const fn time_to_live(&self) -> Option<TimeSpan> {
        self.facts.time_to_live
    }

    /// The TTL that its sender set, before any ceiling (EXP-05). Where messages come as JSON, the same
    /// as [`Received::time_to_live`].
    #[must_use]
    pub const fn own_time_to_live(&self) -> Option<TimeSpan> {
        self.own_time_to_live
    }

    /// 1 on the first delivery under lock (SET-30); when peeked, the deliveries that failed (SET-29).
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.facts.shown_delivery_count()
    }

    /// Active, deferred, scheduled or Delayed (PEK-05, RTY-12).
    #[must_use]
    pub const fn state(&self) -> MessageState {
        self.facts.state
    }

    /// Until when nobody gets it, if it is Delayed (RTY-12).
    #[must_use]
    pub const fn delayed_until(&self) -> Option<Timestamp> {
        self.facts.delayed_until
    }

    /// The token that settles it; absent without a lock (MSG-19).
    #[must_use]
    pub fn lock_token(&self) -> Option<LockToken> {
        self.facts.lock.map(|lock| lock.token)
    }

    /// When the lock ends, as of the delivery (SET-16).
    #[must_use]
    pub fn locked_until(&self) -> Option<Timestamp> {
        self.facts.lock.map(|lock| lock.until)
    }

    /// Why it was dead-lettered (DLQ-14).
    #[must_use]
    pub fn dead_letter_reason(&self) -> Option<&str> {
        self.text(DEAD_LETTER_REASON)
    }

    /// What is said about why it was dead-lettered (DLQ-14).
    #[must_use]
    pub fn dead_letter_error_description(&self) -> Option<&str> {
        self.text(DEAD_LETTER_ERROR_DESCRIPTION)
    }

    /// The entity in which it was dead-lettered before it was forwarded here (FWD-26).
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

    /// Everything the broker says about it.
    #[must_use]
    pub const fn facts(&self) -> &MessageFacts {
        &self.facts
    }
}

/// A message whose body is the JSON of a value, with the content type that says so.
///
/// # Errors
/// When the value cannot be written as JSON. By `?` in a handler that dead-letters the message that the handler has, for
/// the reason `BodyNotWritable`.
pub fn json_message<T: Serialize>(value: &T) -> Result<Message, WriteError> {
    let body = serde_json::to_vec(value).map_err(|source| WriteError { source })?;
    Ok(Message::new(body).with_content_type("application/json"))
}
