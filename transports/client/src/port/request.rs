//! What is asked over a link, and answered.

use bytes::Bytes;
use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};

/// What is asked of an entity, or of the session that the link holds.
#[derive(Clone, Debug)]
pub enum Request {
    /// Stores one message. Answer: [`Answer::Accepted`].
    Send(Box<Message>),
    /// Stores messages, each by itself. Answer: [`Answer::Sent`].
    SendEach(Vec<Message>),
    /// Stores all messages or none (SND-29). Answer: [`Answer::Sent`], of which none failed.
    SendBatch(Vec<Message>),
    /// Cancels scheduled messages, all or none (SCH-05). Answer: [`Answer::Done`].
    CancelScheduled(Vec<SequenceNumber>),
    /// Takes what is available, or waits for it (RCV-10 to RCV-13). Answer: [`Answer::Received`].
    Receive {
        /// At most this many.
        count_max: u32,
        /// How long to wait for the first; zero never waits.
        wait: TimeSpan,
    },
    /// Takes deferred messages, all or none (DEF-03). Answer: [`Answer::Received`].
    ReceiveDeferred(Vec<SequenceNumber>),
    /// Looks at messages (PEK-01). Answer: [`Answer::Received`].
    Peek {
        /// Those of this session alone, whoever holds it (PEK-07); a link that holds one looks at that.
        session_id: Option<Box<str>>,
        /// The first number to return.
        from: SequenceNumber,
        /// At most this many.
        count_max: u32,
    },
    /// Settles one message. Answer: [`Answer::Done`].
    Settle(LockToken, Settlement),
    /// Settles messages, each by itself (SET-14); without properties. Answer: [`Answer::Each`].
    SettleEach(Vec<LockToken>, Settlement),
    /// Prolongs locks, each by itself (SET-18). Answer: [`Answer::Renewed`].
    Renew(Vec<LockToken>),
    /// Removes available messages, as many as the broker allows at once if no count is given (DEL-01).
    /// Answer: [`Answer::Deleted`].
    DeleteBatch {
        /// At most this many.
        count_max: Option<u32>,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
    /// Removes all available messages that are there now (DEL-06). Answer: [`Answer::Deleted`].
    Purge,
    /// Prolongs the lock of the session (SES-12). Answer: [`Answer::Renewed`] with one.
    RenewSession,
    /// Reads the state of the session (SES-24). Answer: [`Answer::State`].
    SessionState,
    /// Replaces the state of the session, or clears it (SES-24). Answer: [`Answer::Done`].
    SetSessionState(Option<Bytes>),
}

/// What a receiver decides about a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Settlement {
    /// Processed: the message is removed (SET-01).
    Complete,
    /// Available again, at once or later, counted as a failed delivery (SET-03, RTY-01).
    Abandon {
        /// Application properties to set (SET-08).
        properties: Vec<(String, Value)>,
        /// For how long nobody gets it; `None` is as long as the entity's policy says (RTY-17).
        delay: Option<TimeSpan>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer {
        /// Application properties to set (SET-08).
        properties: Vec<(String, Value)>,
    },
    /// Moved to the dead-letter queue (SET-05).
    DeadLetter {
        /// Why, for programs.
        reason: Option<String>,
        /// Why, for people.
        description: Option<String>,
        /// Application properties to set (SET-06).
        properties: Vec<(String, Value)>,
    },
    /// Unlocked as if it had never been delivered; not counted (SET-32).
    Release,
}

/// What is answered.
#[derive(Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The number of the message that was sent; 0 for a dropped duplicate (DUP-02).
    Accepted(SequenceNumber),
    /// The numbers of messages that were sent, in their order; 0 for a dropped duplicate (DUP-02).
    Sent(Vec<Result<SequenceNumber, BrokerError>>),
    /// Messages, in their order.
    Received(Vec<ReceivedMessage>),
    /// What became of each.
    Each(Vec<Result<(), BrokerError>>),
    /// The new end of each lock, or an earlier instant.
    Renewed(Vec<Result<Timestamp, BrokerError>>),
    /// How many messages were removed.
    Deleted(u64),
    /// The state of a session, if it has one.
    State(Option<Bytes>),
}
