//! Receiving by session.

mod state;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use peeklock_core::error::BrokerError;
use peeklock_core::time::Timestamp;

pub use self::state::StateError;
use crate::keeper::renew;
use crate::port::{Accepted, Answer, Request};
use crate::{LockKeeper, Receiver};

/// Holds one session: receives its messages in order, settles them, keeps its state (SES-11, SES-19). What is not
/// said here is that of its [`Receiver`].
///
/// The session lock lasts LockDuration and is prolonged by [`SessionReceiver::renew_lock`], or by
/// [`SessionReceiver::keep_locked`] as long as that lives. It covers the locks of all messages received
/// under it (SES-14). When it has ended, everything here fails with `SessionLockLost` (SES-15), also
/// when a connection was lost for longer than its grace: accept the session again then.
/// [`SessionReceiver::close`] gives the session back with the messages that are not settled, which
/// count as never delivered (SES-31); dropping the receiver does too, but counts them (SES-33).
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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
    /// In ticks.
    locked_until: AtomicI64,
}

impl SessionReceiver {
    pub(crate) fn new(accepted: Accepted) -> Self {
        Self {
            receiver: Receiver::new(accepted.link),
            session: accepted.session_id,
            locked_until: AtomicI64::new(accepted.locked_until.ticks()),
        }
    }

    /// The id of the session (SES-10).
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.session
    }

    /// When the session lock ends, as of the accept or the last [`SessionReceiver::renew_lock`] (SES-10,
    /// SES-12).
    #[must_use]
    pub fn locked_until(&self) -> Timestamp {
        Timestamp::from_ticks(self.locked_until.load(Ordering::Relaxed))
    }

    /// The receiver over its link, which receives and settles within the session (SES-19): an abandoned message is
    /// the next one that it gets (SES-20), deferred ones are received by who holds the session (DEF-08). Its
    /// messages have no lock of their own to be renewed.
    #[must_use]
    pub const fn as_receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Prolongs the session lock, and with it the locks of its messages, to now plus LockDuration;
    /// returns the new end (SES-12, SES-14).
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn renew_lock(&self) -> Result<Timestamp, BrokerError> {
        let until = renew(&**self.receiver.link(), None).await?;
        self.locked_until.store(until.ticks(), Ordering::Relaxed);
        Ok(until)
    }

    /// Renews the session lock until the keeper is dropped. To be called inside a tokio runtime.
    #[must_use]
    pub fn keep_locked(&self) -> LockKeeper {
        LockKeeper::start(Arc::clone(self.receiver.link()), None, self.locked_until())
    }

    /// Reads the state of the session; none at first (SES-24). As a value of a type:
    /// [`SessionReceiver::state_json`].
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

    /// Sets the state of the session, or clears it with none. It stays for the next holder (SES-25).
    ///
    /// # Errors
    /// `SessionLockLost`; `MessageSizeExceeded` over the size of a message (SES-26), or of a frame;
    /// `QuotaExceeded` when the queue is full (SES-27).
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), BrokerError> {
        self.receiver.link().ask(Request::SetSessionState(state)).await.map(drop)
    }

    /// Gives the session back; what is not settled is available again at once, as if it had not been
    /// delivered (SES-31).
    ///
    /// # Errors
    /// When the entity is gone; `SessionLockLost` if the connection was lost for longer than its grace.
    pub async fn close(self) -> Result<(), BrokerError> {
        self.give_back().await
    }

    /// The same for a session that others have a hand on too; they find its lock gone.
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
