//! What comes of what is asked and delivered.

use std::sync::Arc;

use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

/// What came of something, for the client.
#[derive(Debug)]
pub enum Event {
    /// Nothing that it is told.
    Nothing,
    /// A message, under a number of its link.
    Delivered {
        /// The link.
        link: u32,
        /// Its number, one above the last.
        number: u64,
        /// The message.
        message: Box<ReceivedMessage>,
    },
    /// A receiver gets nothing more until it is given credit anew; or a link, a sender too, is for nothing any
    /// more, because its entity is gone or its right is over.
    Stopped {
        /// The link.
        link: u32,
        /// The entity.
        path: Arc<str>,
        /// Why.
        reason: Rejection,
    },
    /// A request is done, or failed.
    Done {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// Whether it is done.
        result: Result<(), Rejection>,
    },
    /// A drain is done.
    Drained {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// What is left of the credit.
        result: Result<u64, Rejection>,
    },
    /// Messages were taken, or looked at.
    Messages {
        /// The request.
        id: u32,
        /// The link.
        link: u32,
        /// The entity.
        path: Arc<str>,
        /// The messages.
        result: Result<Vec<ReceivedMessage>, Rejection>,
        /// How many of them are stored nowhere any more (RCV-02).
        taken_count: u64,
    },
    /// A session is locked for a link; or there is no such link.
    Accepted {
        /// The request.
        id: u32,
        /// The entity.
        path: Arc<str>,
        /// The session, and the end of its lock.
        result: Result<(Arc<str>, Timestamp), Rejection>,
    },
    /// The answer to a command of the transport's.
    Answer {
        /// The place of its request, which is taken out when all of it is answered.
        slot: usize,
        /// Which of its commands.
        index: usize,
        /// The answer.
        result: Result<Outcome, Rejection>,
    },
}
