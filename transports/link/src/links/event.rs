//! Events: the results of requests and deliveries that a transport encodes for its client. The
//! engine passes them to the protocol of the transport.

use std::sync::Arc;

use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

/// Result of an answer or a delivery.
#[derive(Debug)]
pub enum Event {
    /// Nothing to send to the client.
    Nothing,
    /// A message was delivered on a link.
    Delivered {
        /// Number of the link.
        link: u32,
        /// Number of the delivery, one above the last.
        number: u64,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// A receiver gets no deliveries until it is given credit again. If the entity is gone or the
    /// link's right has ended, a sender or receiver is of no further use.
    Stopped {
        /// Number of the link.
        link: u32,
        /// Path of the entity.
        path: Arc<str>,
        /// Cause of the stop.
        reason: Rejection,
    },
    /// A request has succeeded or failed.
    Done {
        /// Id of the request.
        id: u32,
        /// Path of the entity.
        path: Arc<str>,
        /// Whether it succeeded.
        result: Result<(), Rejection>,
    },
    /// A drain has ended.
    Drained {
        /// Id of the request.
        id: u32,
        /// Path of the entity.
        path: Arc<str>,
        /// Unused credit, in messages.
        result: Result<u64, Rejection>,
    },
    /// A receive or a peek has ended.
    Messages {
        /// Id of the request.
        id: u32,
        /// Number of the link.
        link: u32,
        /// Path of the entity.
        path: Arc<str>,
        /// The messages.
        result: Result<Vec<ReceivedMessage>, Rejection>,
        /// Number of messages that the entity no longer stores, because they were received and
        /// deleted (RCV-02).
        taken_count: u64,
    },
    /// A session was locked for a link, or the accept failed and the link was removed.
    Accepted {
        /// Id of the request.
        id: u32,
        /// Path of the entity.
        path: Arc<str>,
        /// Session id, and the end of its lock.
        result: Result<(Arc<str>, Timestamp), Rejection>,
    },
    /// A command of the transport was answered.
    Answer {
        /// Slot of its request, which the transport removes when all its commands are answered.
        slot: usize,
        /// Index of the command within the request.
        index: usize,
        /// The answer.
        result: Result<Outcome, Rejection>,
    },
}
