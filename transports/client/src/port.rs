//! What handles stand on: the few things that a transport does for them.
//!
//! ```text
//!  Client ──► Port    asks the namespace, opens links, begins transactions
//!  Sender, Receiver ──► Link    asks one entity, or one session of it
//!  Consumer ──► Deliveries    gets what is pushed, and settles it
//! ```
//!
//! A port says what an operation is and carries it out; it decides nothing. Whatever it cannot carry out is
//! answered with an error.

mod deliveries;
mod request;

use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::activity::AtWork;
use peeklock_core::command::ReceiveMode;
pub use peeklock_core::description::Patch;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
pub use peeklock_core::management::{Managed, Management, Page, SampleMessage};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};

pub use self::deliveries::{Arrival, Deliveries, Verdict};
pub use self::request::{Answer, Request, Settlement};

/// A future of a port.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// The answer to something that was asked.
pub type Answering<'a, T> = Waiting<'a, Result<T, BrokerError>>;

/// A way to a broker.
pub trait Port: Send + Sync {
    /// The broker's clock, as far as it is known.
    fn now(&self) -> Timestamp;

    /// Makes an error of what was found wrong on this side.
    fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError;

    /// Opens a link to send over, by way of another entity if one is named (VIA-01). Whether the entity is
    /// there may be told by the first send.
    ///
    /// # Errors
    /// `EntityNotFound`, `CommunicationProblem`; `InvalidOperation` for an entity by way of itself.
    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError>;

    /// Opens a link to receive over; nothing is pushed.
    ///
    /// # Errors
    /// As for [`Port::sender`].
    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError>;

    /// Locks a session, or the next one if none is named, and opens a link to it (SES-05 to SES-08). A
    /// future that is dropped locks nothing.
    fn session<'a>(
        &'a self,
        path: &'a str,
        session_id: Option<&'a str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Answering<'a, Accepted>;

    /// Opens a link over which messages are pushed under lock, as many as may be unsettled at once
    /// (RCV-16).
    fn deliveries<'a>(
        &'a self,
        path: &'a str,
        unsettled_max: u32,
    ) -> Answering<'a, Box<dyn Deliveries>>;

    /// Asks something about an entity, or about all of them.
    fn manage<'a>(&'a self, path: &'a str, asked: Management) -> Answering<'a, Managed>;

    /// Begins a transaction (TXN-01).
    fn begin(&self, reach: Reach) -> Answering<'_, TransactionId>;

    /// Carries a transaction out that has so many operations, or none of it (TXN-07).
    fn commit(
        &self,
        transaction: TransactionId,
        operations: u32,
    ) -> Answering<'_, Vec<PartOutcome>>;

    /// Ends a transaction as if nothing of it had been (TXN-04).
    fn roll_back(&self, transaction: TransactionId) -> Answering<'_, ()>;

    /// Forgets a transaction, whatever has become of it.
    fn forget(&self, transaction: TransactionId);

    /// Waits until the broker can be reached, or until it cannot. Where it always can, the one is so at once
    /// and the other never.
    fn reached(&self, is_reached: bool) -> Waiting<'_, ()>;

    /// Whether nothing is carried out any more, so that it makes no sense to ask again: it was closed, or has given up.
    fn is_closed(&self) -> bool {
        false
    }

    /// Says that somebody has something to do, as long as what is returned is there; for a broker of this process that
    /// is waited for until it is idle.
    fn at_work(&self) -> Option<AtWork> {
        None
    }

    /// Ends the way in order: locks stay until they run out (SET-21).
    fn close(&self) -> Waiting<'_, ()>;
}

/// A way to one entity, sub-queue or session. Dropping it ends it as if its holder were gone: its
/// locks are released and counted (SET-23).
pub trait Link: Send + Sync {
    /// The path of the entity or sub-queue.
    fn path(&self) -> &str;

    /// How it receives.
    fn mode(&self) -> ReceiveMode;

    /// The broker's clock, as far as it is known.
    fn now(&self) -> Timestamp;

    /// Makes an error of what was found wrong on this side.
    fn refuse(&self, rejection: Rejection) -> BrokerError;

    /// Asks something. Once the future was polled it is under way, and goes on if the future is
    /// dropped: but a receive is withdrawn then, and what it had locked goes back uncounted (RCV-14).
    fn ask(&self, request: Request) -> Answering<'_, Answer>;

    /// Asks for a receive that is withdrawn when `stop` completes; what it had got by then is the answer.
    fn ask_until<'a>(&'a self, request: Request, stop: Waiting<'a, ()>) -> Answering<'a, Answer>;

    /// Releases messages that nobody takes, uncounted, without waiting (RCV-14).
    fn give_back(&self, tokens: Vec<LockToken>);

    /// Makes a send, a settlement, a renewal, a cancellation or a session state part of a transaction.
    fn ask_in(&self, transaction: TransactionId, request: Request) -> Answering<'_, ()>;

    /// Ends it in order: its locks stay until they run out (SET-21); a session is given back uncounted
    /// (SES-31). Dropping it does nothing more then.
    fn detach(&self) -> Answering<'_, ()>;
}

impl dyn Port + '_ {
    /// Error for an answer of another kind than the request has.
    pub(crate) fn unexpected(&self, path: &str, answer: &Managed) -> BrokerError {
        self.refuse(Rejection::internal(format!("unexpected answer {answer:?}")), path)
    }
}

impl dyn Link + '_ {
    /// Error for an answer of another kind than the request has.
    pub(crate) fn unexpected(&self, answer: &Answer) -> BrokerError {
        self.refuse(Rejection::internal(format!("unexpected answer {answer:?}")))
    }

    /// Results of a request about a list of `count` items. An error of the whole request is the result of each item.
    pub(crate) fn each<T>(
        &self,
        count: usize,
        answer: Result<Answer, BrokerError>,
        read: impl FnOnce(Answer) -> Result<Vec<Result<T, BrokerError>>, Answer>,
    ) -> Vec<Result<T, BrokerError>> {
        let error = match answer.map(read) {
            Ok(Ok(results)) if results.len() == count => return results,
            Ok(Ok(results)) => {
                let detail = format!("unexpected answer {:?}", results.len());
                self.refuse(Rejection::internal(detail))
            }
            Ok(Err(other)) => self.unexpected(&other),
            Err(error) => error,
        };
        let copy = || {
            let (id, entity, at) = (error.tracking_id(), error.entity(), error.timestamp());
            Err(BrokerError::new(error.rejection().clone(), id, entity, at))
        };
        (0..count).map(|_| copy()).collect()
    }
}

/// A session that is locked, and the way to it.
pub struct Accepted {
    /// The link.
    pub link: Arc<dyn Link>,
    /// The id of the session (SES-10).
    pub session_id: Arc<str>,
    /// When the lock ends, unless it is renewed.
    pub locked_until: Timestamp,
}
