//! The operations of a transport as scenarios use them, with plain values.
//!
//! A scenario does not know its transport and relies only on this trait. A new transport joins the
//! suite with an implementation in a file under `subjects`.

mod topics;

use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_client::Client;
use peeklock_core::command::{Described, MessageState, ReceiveMode, SessionFilter};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::PartOutcome;

pub use topics::Topics;

/// Result of an operation.
pub type Answer<T> = Result<T, Refusal>;

/// An error as a client of the transport sees it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The name of the condition (file 19).
    pub condition: String,
    /// Whether a retry can succeed.
    pub retryable: bool,
    /// The tracking id, if the transport sends it separately from the text.
    pub tracking_id: Option<String>,
    /// The error text.
    pub text: String,
}

/// A message as a client of the transport sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Body and properties of the sender, including properties that settlements have set.
    /// Application properties are in the order of their keys.
    pub message: Message,
    pub sequence: u64,
    pub enqueued_sequence: u64,
    pub enqueued_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub delivery_count: u32,
    pub state: MessageState,
    pub lock_token: Option<String>,
    pub locked_until: Option<Timestamp>,
    /// The entity that dead-lettered the message before it was forwarded (FWD-26).
    pub dead_letter_source: Option<String>,
}

/// A settlement by a receiver.
#[derive(Clone, Debug)]
pub enum Decision {
    Complete,
    Abandon(Vec<(String, Value)>),
    Defer(Vec<(String, Value)>),
    DeadLetter {
        reason: Option<String>,
        description: Option<String>,
        properties: Vec<(String, Value)>,
    },
}

/// An operation that can be part of a transaction (TXN-02).
#[derive(Clone, Debug)]
pub enum Work {
    Send(Message),
    SendBatch(Vec<Message>),
    /// A send to another entity through the entity of the operation (VIA-04).
    SendOn {
        destination: String,
        message: Message,
    },
    Settle {
        token: String,
        decision: Decision,
    },
    Renew {
        token: String,
    },
    /// Cancels scheduled messages.
    Cancel {
        sequences: Vec<u64>,
    },
}

/// An operation that not every transport has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extra {
    /// An update that states the version that it is based on (ENT-17).
    VersionedUpdate,
}

/// One transport, connected to one broker.
#[async_trait(?Send)]
pub trait Subject: Topics {
    /// Whether the transport has an optional operation.
    fn offers(&self, extra: Extra) -> bool;

    /// Handles over the transport, or `None`.
    fn client(&self) -> Option<Client> {
        None
    }

    async fn create(&self, path: &str, properties: QueueUpdate) -> Answer<Described>;
    async fn update(&self, path: &str, properties: QueueUpdate) -> Answer<Described>;
    /// Same as `update`, but only if the description is still of that instant.
    async fn update_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Answer<Described>;
    async fn delete(&self, path: &str) -> Answer<()>;
    async fn describe(&self, path: &str) -> Answer<Described>;
    async fn list(&self, skip: usize, top: usize) -> Answer<Vec<String>>;

    async fn send(&self, path: &str, message: Message) -> Answer<u64>;
    async fn send_batch(&self, path: &str, messages: Vec<Message>) -> Answer<Vec<u64>>;
    async fn schedule(&self, path: &str, message: Message, at: Timestamp) -> Answer<u64>;
    async fn cancel(&self, path: &str, sequences: &[u64]) -> Answer<()>;

    async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        count_max: u32,
        wait: TimeSpan,
    ) -> Answer<Vec<Seen>>;
    async fn receive_deferred(
        &self,
        path: &str,
        mode: ReceiveMode,
        sequences: &[u64],
    ) -> Answer<Vec<Seen>>;
    async fn settle(&self, path: &str, token: &str, decision: Decision) -> Answer<()>;
    /// Completes many messages. Each has its own answer, in their order (SET-14).
    async fn complete_many(&self, path: &str, tokens: &[String]) -> Answer<Vec<Answer<()>>>;
    async fn renew(&self, path: &str, token: &str) -> Answer<Timestamp>;

    async fn peek(&self, path: &str, from: u64, count_max: u32) -> Answer<Vec<Seen>>;
    async fn delete_batch(
        &self,
        path: &str,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Answer<u64>;
    async fn purge(&self, path: &str) -> Answer<u64>;
    async fn delete_deferred(&self, path: &str, sequence: u64) -> Answer<()>;

    /// An attached sender to one entity through another, or `None` if the transport has none.
    async fn sender_via(&self, _destination: &str, _via: &str) -> Option<Answer<Box<dyn Via>>> {
        None
    }

    /// Begins a transaction. Only transports with transactions offer this and the next methods
    /// (TXN-16).
    async fn begin(&self) -> Answer<u64> {
        panic!("the transport has no transactions")
    }

    /// Begins a transaction that can also send to entities other than its first one.
    async fn begin_across(&self) -> Answer<u64> {
        panic!("the transport has no transactions")
    }

    /// Makes an operation part of a transaction.
    async fn within(&self, transaction: u64, path: &str, work: Work) -> Answer<()> {
        panic!("no transaction {transaction} for {work:?} at {path}")
    }

    async fn commit(&self, transaction: u64) -> Answer<Vec<PartOutcome>> {
        panic!("no transaction {transaction}")
    }

    async fn roll_back(&self, transaction: u64) -> Answer<()> {
        panic!("no transaction {transaction}")
    }

    /// Locks a session, by id or the next one. Only transports with sessions offer this.
    async fn accept(
        &self,
        path: &str,
        session: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Answer<Box<dyn Session>> {
        panic!("no session can be accepted here: {path} {session:?} {mode:?} {wait}");
    }
    async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Answer<Vec<String>> {
        panic!("no sessions are listed here: {path} {which:?} {skip} {top}");
    }
    async fn delete_unlocked(&self, path: &str, count_max: u32) -> Answer<u64> {
        panic!("sessions are not emptied here: {path} {count_max}");
    }

    /// Address of the listener, if the transport has one.
    fn address(&self) -> Option<SocketAddr>;

    /// Ends the transport. Called before its broker is stopped.
    async fn stop(&self);
}

/// A sender to one entity through another (VIA-01).
#[async_trait(?Send)]
pub trait Via {
    async fn send(&self, message: Message) -> Answer<u64>;
    async fn send_batch(&self, messages: Vec<Message>) -> Answer<Vec<u64>>;
    async fn schedule(&self, message: Message, at: Timestamp) -> Answer<u64>;
}

impl std::fmt::Debug for dyn Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sender by way of another entity")
    }
}

/// A held session. If it is dropped, it is released as if its holder had disconnected.
#[async_trait(?Send)]
pub trait Session {
    fn id(&self) -> &str;
    fn locked_until(&self) -> Timestamp;
    async fn receive(&self, count_max: u32, wait: TimeSpan) -> Answer<Vec<Seen>>;
    async fn receive_deferred(&self, sequences: &[u64]) -> Answer<Vec<Seen>>;
    async fn peek(&self, from: u64, count_max: u32) -> Answer<Vec<Seen>>;
    /// Settles a message that this holder received. A completion may use any lock token.
    async fn settle(&self, seen: &Seen, decision: Decision) -> Answer<()>;
    async fn renew(&self) -> Answer<Timestamp>;
    async fn state(&self) -> Answer<Option<Bytes>>;
    async fn set_state(&self, state: Option<Bytes>) -> Answer<()>;
    async fn delete_batch(&self, count_max: u32) -> Answer<u64>;
    async fn close(self: Box<Self>) -> Answer<()>;
}

impl std::fmt::Debug for dyn Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session {}", self.id())
    }
}

impl Seen {
    pub fn body(&self) -> &Bytes {
        self.message.body.as_bytes()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.body()).unwrap()
    }

    /// The token of a message that was received under lock.
    pub fn token(&self) -> &str {
        self.lock_token.as_deref().unwrap()
    }

    pub fn property(&self, key: &str) -> Option<&Value> {
        self.message.application_property(key)
    }

    /// Text of an application property.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        match self.property(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn reason(&self) -> Option<&str> {
        self.text_of("DeadLetterReason")
    }

    pub fn description(&self) -> Option<&str> {
        self.text_of("DeadLetterErrorDescription")
    }
}

impl Decision {
    /// Every decision, without properties.
    pub fn all() -> [Self; 4] {
        let dead_letter = Self::DeadLetter { reason: None, description: None, properties: vec![] };
        [Self::Complete, Self::Abandon(vec![]), Self::Defer(vec![]), dead_letter]
    }
}
