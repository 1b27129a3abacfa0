//! The receiver of a session: it has the session's messages, lock and state. A client's `accept`
//! methods return it, and the consumer of sessions uses it. Dropping it gives the session back.

mod state;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use peeklock_core::error::BrokerError;
use peeklock_core::time::Timestamp;

pub use self::state::StateError;
use crate::keeper::renew;
use crate::port::{AcceptedSession, Answer, Request};
use crate::{LockKeeper, Receiver};

/// Holds one session: receives its messages in order, settles them, and keeps its state (SES-11,
/// SES-19). It derefs to its [`Receiver`].
///
/// The session lock lasts LockDuration. [`SessionReceiver::renew_lock`] renews it once,
/// [`SessionReceiver::keep_locked`] repeatedly. It covers the locks of all messages received under
/// it (SES-14). After it has ended, all calls fail with `SessionLockLost` (SES-15), also when a
/// connection was lost for longer than its grace: accept the session again.
/// [`SessionReceiver::close`] gives the session back with its unsettled messages, which count as
/// never delivered (SES-31). Dropping the receiver also gives it back, but counts them (SES-33).
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::description::QueueProperties;
/// use peeklock::message::Message;
/// use peeklock::time::TimeSpan;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// let by_session = QueueProperties::new().with_sessions();
/// client.admin().create_queue_with("steps", by_session).await?;
/// let step = Message::new("paid").with_session_id("order-7");
/// client.sender("steps")?.send(step).await?;
///
/// let order = client.accept_next_session("steps", TimeSpan::from_seconds(5)).await?;
/// assert_eq!(order.session_id(), "order-7");
/// let step = order.receive(TimeSpan::ZERO).await?.unwrap();
/// order.set_state(Some(step.body().clone())).await?;
/// order.complete(&step).await?;
/// order.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct SessionReceiver {
    receiver: Receiver,
    session: Arc<str>,
    /// End of the session lock, in ticks.
    locked_until: AtomicI64,
}

impl SessionReceiver {
    /// A receiver of a session that no broker has.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn by_hand(accepted: AcceptedSession) -> Self {
        Self::new(accepted)
    }

    pub(crate) fn new(accepted: AcceptedSession) -> Self {
        Self {
            receiver: Receiver::new(accepted.link),
            session: accepted.session_id,
            locked_until: AtomicI64::new(accepted.locked_until.ticks()),
        }
    }

    /// Returns the id of the session (SES-10).
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.session
    }

    /// Returns the end of the session lock, as of the accept or the last
    /// [`SessionReceiver::renew_lock`] (SES-10, SES-12).
    #[must_use]
    pub fn locked_until(&self) -> Timestamp {
        Timestamp::from_ticks(self.locked_until.load(Ordering::Relaxed))
    }

    /// Returns the receiver over its link, which receives and settles within the session (SES-19).
    /// An abandoned message is its next one (SES-20), and only the holder of the session can
    /// receive its deferred messages (DEF-08). The messages have no locks of their own to renew.
    #[must_use]
    pub const fn as_receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Renews the session lock, and with it the locks of its messages, to now plus LockDuration.
    /// Returns the new end (SES-12, SES-14).
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn renew_lock(&self) -> Result<Timestamp, BrokerError> {
        let until = renew(&**self.receiver.link(), None).await?;
        self.locked_until.store(until.ticks(), Ordering::Relaxed);
        Ok(until)
    }

    /// Renews the session lock until the keeper is dropped. Call it inside a tokio runtime.
    #[must_use]
    pub fn keep_locked(&self) -> LockKeeper {
        LockKeeper::start(Arc::clone(self.receiver.link()), None, self.locked_until())
    }

    /// Returns the state of the session, `None` if it is not set (SES-24).
    /// [`SessionReceiver::state_json`] parses it.
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn state(&self) -> Result<Option<Bytes>, BrokerError> {
        let link = self.receiver.link();
        match link.ask(Request::SessionState).await? {
            Answer::State(state) => Ok(state),
            other => Err(link.unexpected(&other)),
        }
    }

    /// Sets the state of the session, or clears it with `None`. It stays for the next holder
    /// (SES-25).
    ///
    /// # Errors
    /// `SessionLockLost`; `MessageSizeExceeded` over the limit of a message (SES-26), or of a
    /// frame; `QuotaExceeded` if the queue is full (SES-27).
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), BrokerError> {
        self.receiver.link().ask(Request::SetSessionState(state)).await.map(drop)
    }

    /// Gives the session back; unsettled messages are immediately available again, as if they had
    /// not been delivered (SES-31).
    ///
    /// # Errors
    /// Returns an error if the entity is gone; `SessionLockLost` if the connection was lost for
    /// longer than its grace.
    pub async fn close(self) -> Result<(), BrokerError> {
        self.give_back().await
    }

    /// Gives a shared session back; other users of the handle then find its lock gone.
    pub(crate) async fn give_back(&self) -> Result<(), BrokerError> {
        self.receiver.link().detach().await
    }
}

impl Deref for SessionReceiver {
    type Target = Receiver;

    fn deref(&self) -> &Receiver {
        &self.receiver
    }
}
