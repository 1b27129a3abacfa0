//! Requests over a link, and their answers. Handles make them, and each port (in process, over a
//! connection, simulated) carries them out with the same results.

use bytes::Bytes;
use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};

/// A request to an entity, or to the session that the link holds.
#[derive(Clone, Debug)]
pub enum Request {
    /// Stores one message. Answer: [`Answer::Accepted`].
    Send(Box<Message>),
    /// Stores messages independently. Answer: [`Answer::Sent`].
    SendEach(Vec<Message>),
    /// Stores all messages or none (SND-29). Answer: [`Answer::Sent`] without failures.
    SendBatch(Vec<Message>),
    /// Cancels scheduled messages, all or none (SCH-05). Answer: [`Answer::Done`].
    CancelScheduled(Vec<SequenceNumber>),
    /// Receives available messages, or waits for one (RCV-10 to RCV-13). Answer:
    /// [`Answer::Received`].
    Receive {
        /// Maximum number of messages.
        count_max: u32,
        /// Maximum wait for the first message; zero never waits.
        wait: TimeSpan,
    },
    /// Receives deferred messages, all or none (DEF-03). Answer: [`Answer::Received`].
    ReceiveDeferred(Vec<SequenceNumber>),
    /// Peeks at messages (PEK-01). Answer: [`Answer::Received`].
    Peek {
        /// Only messages of this session, regardless of its holder (PEK-07); by default the session
        /// that the link holds.
        session_id: Option<Box<str>>,
        /// The first number to return.
        from: SequenceNumber,
        /// Maximum number of messages.
        count_max: u32,
    },
    /// Settles one message. Answer: [`Answer::Done`].
    Settle(LockToken, Settlement),
    /// Settles messages independently (SET-14), without properties. Answer: [`Answer::Each`].
    SettleEach(Vec<LockToken>, Settlement),
    /// Renews locks independently (SET-18). Answer: [`Answer::Renewed`].
    Renew(Vec<LockToken>),
    /// Removes available messages; without a count as many as the broker allows in one call
    /// (DEL-01). Answer: [`Answer::Deleted`].
    DeleteBatch {
        /// Maximum number of messages.
        count_max: Option<u32>,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
    /// Removes all messages that are available now (DEL-06). Answer: [`Answer::Deleted`].
    Purge,
    /// Renews the lock of the session (SES-12). Answer: [`Answer::Renewed`] with one result.
    RenewSession,
    /// Reads the state of the session (SES-24). Answer: [`Answer::State`].
    SessionState,
    /// Replaces the state of the session, or clears it (SES-24). Answer: [`Answer::Done`].
    SetSessionState(Option<Bytes>),
}

/// A receiver's decision about a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Settlement {
    /// Processed: the message is removed (SET-01).
    Complete,
    /// Available again, immediately or later; counted as a failed delivery (SET-03, RTY-01).
    Abandon {
        /// Application properties to set (SET-08).
        properties: Vec<(String, Value)>,
        /// Delay before redelivery; `None` follows the entity's retry policy (RTY-17).
        delay: Option<TimeSpan>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer {
        /// Application properties to set (SET-08).
        properties: Vec<(String, Value)>,
    },
    /// Moved to the dead-letter queue (SET-05).
    DeadLetter {
        /// Reason, for programs.
        reason: Option<String>,
        /// Description, for people.
        description: Option<String>,
        /// Application properties to set (SET-06).
        properties: Vec<(String, Value)>,
    },
    /// Unlocked as if it had never been delivered; not counted (SET-32).
    Release,
}

/// An answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The request is done.
    Done,
    /// The number of the sent message; 0 for a dropped duplicate (DUP-02).
    Accepted(SequenceNumber),
    /// The numbers of the sent messages, in order; 0 for a dropped duplicate (DUP-02).
    Sent(Vec<Result<SequenceNumber, BrokerError>>),
    /// Messages, in order.
    Received(Vec<ReceivedMessage>),
    /// The result of each item.
    Each(Vec<Result<(), BrokerError>>),
    /// The new end of each lock, or an earlier instant.
    Renewed(Vec<Result<Timestamp, BrokerError>>),
    /// Number of removed messages.
    Deleted(u64),
    /// The state of a session, if set.
    State(Option<Bytes>),
}
