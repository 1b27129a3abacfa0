//! The interface between the handles and a transport. The handles call it; a transport implements
//! it.
//!
//! ```text
//!  Client           ──► Port          manages the namespace, opens links, begins transactions
//!  Sender, Receiver ──► Link          requests to one entity, or to one session
//!  Consumer         ──► Deliveries    pushed messages and their settlements
//! ```
//!
//! A port only carries out operations; it makes no decisions. It answers unsupported operations
//! with an error.

mod deliveries;
mod request;

use std::sync::Arc;

use peeklock_core::activity::PendingWork;
pub use peeklock_core::call::BoxFuture;
use peeklock_core::command::ReceiveMode;
pub use peeklock_core::description::Patch;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
pub use peeklock_core::management::{Managed, Management, Page, SampleMessage};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId};

pub use self::deliveries::{Arrival, Deliveries, Verdict};
pub use self::request::{Answer, Request, Settlement};

/// The future answer to a request.
pub type BoxAnswer<'a, T> = BoxFuture<'a, Result<T, BrokerError>>;

/// A connection to a broker.
pub trait Port: Send + Sync {
    /// Returns the broker's clock, or an estimate.
    fn now(&self) -> Timestamp;

    /// Converts a rejection found on the client's side to an error.
    fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError;

    /// Opens a link for sending, via another entity if `via` is given (VIA-01). An absent entity
    /// may be reported only by the first send.
    ///
    /// # Errors
    /// `EntityNotFound`, `CommunicationProblem`; `InvalidOperation` if `via` is the same entity.
    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError>;

    /// Opens a link for receiving without pushed deliveries.
    ///
    /// # Errors
    /// As for [`Port::sender`].
    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError>;

    /// Locks a session, or the next one without an id, and opens a link to it (SES-05 to SES-08). A
    /// dropped future locks nothing.
    fn session<'a>(
        &'a self,
        path: &'a str,
        session_id: Option<&'a str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession>;

    /// Opens a link over which messages are pushed under lock, with at most `unsettled_max`
    /// unsettled messages (RCV-16).
    fn deliveries<'a>(
        &'a self,
        path: &'a str,
        unsettled_max: u32,
    ) -> BoxAnswer<'a, Box<dyn Deliveries>>;

    /// Sends a management request for an entity, or with an empty path for the namespace.
    fn manage<'a>(&'a self, path: &'a str, request: Management) -> BoxAnswer<'a, Managed>;

    /// Begins a transaction (TXN-01).
    fn begin(&self, reach: Reach) -> BoxAnswer<'_, TransactionId>;

    /// Commits a transaction with this number of operations, completely or not at all (TXN-07).
    fn commit(
        &self,
        transaction: TransactionId,
        operations: u32,
    ) -> BoxAnswer<'_, Vec<PartOutcome>>;

    /// Rolls a transaction back (TXN-04).
    fn roll_back(&self, transaction: TransactionId) -> BoxAnswer<'_, ()>;

    /// Forgets a transaction in any state, without waiting.
    fn forget(&self, transaction: TransactionId);

    /// Waits until the broker is reachable (`is_reached`) or unreachable. If the broker is always
    /// reachable, the former returns immediately and the latter never.
    fn reached(&self, is_reached: bool) -> BoxFuture<'_, ()>;

    /// Returns whether the port was closed or has given up permanently, so that retries are
    /// useless.
    fn is_closed(&self) -> bool {
        false
    }

    /// Marks work as pending while the returned value exists, for a broker in this process whose
    /// idle state is awaited.
    fn pending_work(&self) -> Option<PendingWork> {
        None
    }

    /// Closes the connection in order: locks stay until they expire (SET-21).
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A link to one entity, sub-queue or session. Dropping it ends it as if its holder were gone: its
/// locks are released and counted (SET-23).
pub trait Link: Send + Sync {
    /// Returns the path of the entity or sub-queue.
    fn path(&self) -> &str;

    /// Returns the receive mode.
    fn mode(&self) -> ReceiveMode;

    /// Returns the broker's clock, or an estimate.
    fn now(&self) -> Timestamp;

    /// Converts a rejection found on the client's side to an error.
    fn refuse(&self, rejection: Rejection) -> BrokerError;

    /// Sends a request. Once polled, the request continues even if the future is dropped.
    /// Exception: a dropped receive is withdrawn, and messages that it had locked are released
    /// without being counted (RCV-14).
    fn ask(&self, request: Request) -> BoxAnswer<'_, Answer>;

    /// Sends a receive that is withdrawn when `stop` completes; the answer contains the messages
    /// received until then.
    fn ask_until<'a>(&'a self, request: Request, stop: BoxFuture<'a, ()>) -> BoxAnswer<'a, Answer>;

    /// Releases messages that nobody takes, uncounted and without waiting (RCV-14).
    fn give_back(&self, tokens: Vec<LockToken>);

    /// Adds a send, a settlement, a renewal, a cancellation or a session state to a transaction.
    fn ask_in(&self, transaction: TransactionId, request: Request) -> BoxAnswer<'_, ()>;

    /// Ends the link in order: its locks stay until they expire (SET-21); a session is given back
    /// uncounted (SES-31). A later drop does nothing.
    fn detach(&self) -> BoxAnswer<'_, ()>;
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

/// A locked session with its link.
pub struct AcceptedSession {
    /// The link.
    pub link: Arc<dyn Link>,
    /// The id of the session (SES-10).
    pub session_id: Arc<str>,
    /// End of the lock, unless it is renewed.
    pub locked_until: Timestamp,
}
