//! Receiving by session.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::core::{Lifeline, Link};
use super::keeper::LockKeeper;
use super::{Received, Receiver};
use crate::frame::session::{ListSessions, SessionAccepted, SetSessionState};
use crate::frame::text::Instant;
use crate::frame::{Detach, LinkOnly, Notice, Operation};

/// Holds one session: receives its messages in order, settles them, keeps its state (SES-11, SES-19).
///
/// The session lock lasts LockDuration and is prolonged by [`SessionReceiver::renew_lock`], or by
/// [`SessionReceiver::keep_locked`] as long as that lives. It covers the locks of all messages received
/// under it (SES-14). When it has ended, everything here fails with `SessionLockLost` (SES-15), also
/// when the connection was lost for longer than its grace: accept the session again then.
/// [`SessionReceiver::close`] gives the session back with the messages that are not settled, which
/// count as never delivered (SES-31); dropping the receiver does too, but counts them (SES-33).
pub struct SessionReceiver {
    receiver: Receiver,
    session: Arc<str>,
    /// In ticks.
    locked_until: AtomicI64,
}

impl SessionReceiver {
    pub(super) fn new(link: Link, accepted: SessionAccepted) -> Self {
        Self {
            receiver: Receiver::new(link),
            session: accepted.session_id.into(),
            locked_until: AtomicI64::new(accepted.locked_until_utc.0.ticks()),
        }
    }

    pub(super) const fn receiver(&self) -> &Receiver {
        &self.receiver
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

    /// The path of the queue.
    #[must_use]
    pub fn path(&self) -> &str {
        self.receiver.path()
    }

    /// The mode (SES-21).
    #[must_use]
    pub fn mode(&self) -> ReceiveMode {
        self.receiver.mode()
    }

    /// Receives the next message of the session, waiting for it up to `wait`; zero never waits.
    /// Dropping the future takes nothing (RCV-14).
    ///
    /// # Errors
    /// `SessionLockLost`, `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`, `CommunicationProblem`.
    pub async fn receive(&self, wait: TimeSpan) -> Result<Option<Received>, BrokerError> {
        self.receiver.receive(wait).await
    }

    /// Receives what is available in the session, up to `count_max`, in ascending order (SES-19).
    ///
    /// # Errors
    /// As for [`SessionReceiver::receive`]; `ArgumentOutOfRange` if `count_max` is 0.
    pub async fn receive_many(
        &self,
        count_max: u32,
        wait: TimeSpan,
    ) -> Result<Vec<Received>, BrokerError> {
        self.receiver.receive_many(count_max, wait).await
    }

    /// As [`SessionReceiver::receive_many`], until `stop` completes: then the receive is withdrawn, and
    /// what it had got by then is returned (RCV-14).
    ///
    /// # Errors
    /// As for [`SessionReceiver::receive`].
    pub async fn receive_many_until(
        &self,
        count_max: u32,
        wait: TimeSpan,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Received>, BrokerError> {
        self.receiver.receive_many_until(count_max, wait, stop).await
    }

    /// Receives deferred messages of the session by number, all or none (DEF-08).
    ///
    /// # Errors
    /// `MessageNotFound`; `SessionLockLost`, also for a message of another session.
    pub async fn receive_deferred(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<Vec<Received>, BrokerError> {
        self.receiver.receive_deferred(sequences).await
    }

    /// Looks at messages of the session from a number on, without locking them (PEK-07).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn peek(
        &self,
        from: SequenceNumber,
        count_max: u32,
    ) -> Result<Vec<Received>, BrokerError> {
        self.receiver.peek(from, count_max).await
    }

    /// Ends the message: it was processed (SET-01).
    ///
    /// # Errors
    /// `SessionLockLost`; `MessageLockLost` if it was settled before.
    pub async fn complete(&self, message: &Received) -> Result<(), BrokerError> {
        self.receiver.complete(message).await
    }

    /// Completes many messages as one group; each has its own result, in their order (SET-14).
    pub async fn complete_many(&self, tokens: &[LockToken]) -> Vec<Result<(), BrokerError>> {
        self.receiver.complete_many(tokens).await
    }

    /// Gives the message back: it is the next one that this receiver gets (SES-20), counted as a
    /// failed delivery.
    ///
    /// # Errors
    /// `SessionLockLost`, `MessageLockLost`, `MessageSizeExceeded`.
    pub async fn abandon(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        self.receiver.abandon(message, properties).await
    }

    /// Sets the message aside; the holder of the session can receive it by its number (DEF-08).
    ///
    /// # Errors
    /// As for [`SessionReceiver::abandon`].
    pub async fn defer(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        self.receiver.defer(message, properties).await
    }

    /// Moves the message to the dead-letter queue, out of its session (SES-22).
    ///
    /// # Errors
    /// As for [`Receiver::dead_letter`], and `SessionLockLost`.
    pub async fn dead_letter(
        &self,
        message: &Received,
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        self.receiver.dead_letter(message, reason, description, properties).await
    }

    /// Unlocks messages as if they had not been delivered; their counts stay (SET-32). Each has its
    /// own result, in their order (SET-14).
    ///
    /// # Errors
    /// When a request as a whole fails; those before it were carried out.
    pub async fn release_many(
        &self,
        tokens: &[LockToken],
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        self.receiver.release_many(tokens).await
    }

    /// The receiver over its link, which receives and settles within the session. Its messages have no
    /// lock of their own to be renewed.
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
        let until = renew(&self.receiver.link).await?;
        self.locked_until.store(until.ticks(), Ordering::Relaxed);
        Ok(until)
    }

    /// Renews the session lock until the keeper is dropped. To be called inside a tokio runtime.
    #[must_use]
    pub fn keep_locked(&self) -> LockKeeper {
        LockKeeper::start_session(Arc::clone(&self.receiver.link), self.locked_until())
    }

    /// Reads the state of the session; none at first (SES-24).
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn state(&self) -> Result<Option<Bytes>, BrokerError> {
        let link = &self.receiver.link;
        let get = Operation::GetSessionState(LinkOnly { link: link.number });
        match link.call(get).await? {
            Notice::SessionState(state) => Ok(state.state),
            _ => Err(link.unexpected()),
        }
    }

    /// Sets the state of the session, or clears it with none. It stays for the next holder (SES-25).
    ///
    /// # Errors
    /// `SessionLockLost`; `MessageSizeExceeded` over the size of a message (SES-26), or of a frame;
    /// `QuotaExceeded` when the queue is full (SES-27).
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), BrokerError> {
        let link = &self.receiver.link;
        let set = Operation::SetSessionState(SetSessionState { link: link.number, state });
        link.call(set).await.map(|_| ())
    }

    /// Removes available messages of the session, lowest numbers first, and returns how many
    /// (DEL-07).
    ///
    /// # Errors
    /// `SessionLockLost`; `ArgumentOutOfRange` over the limit of the tier (DEL-02).
    pub async fn delete_batch(
        &self,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        self.receiver.delete_batch(count_max, enqueued_before).await
    }

    /// Gives the session back; what is not settled is available again at once, as if it had not been
    /// delivered (SES-31).
    ///
    /// # Errors
    /// When the entity is gone; `SessionLockLost` if the connection was lost for longer than its grace.
    pub async fn close(self) -> Result<(), BrokerError> {
        let link = &self.receiver.link;
        // Also if a keeper has the link still: it finds nothing to renew then.
        link.call(Operation::Detach(Detach { link: link.number, release: false })).await.map(|_| ())
    }
}

/// Prolongs the lock of the session of a link.
pub(super) async fn renew(link: &Link) -> Result<Timestamp, BrokerError> {
    match link.call(Operation::RenewSession(LinkOnly { link: link.number })).await? {
        Notice::Renewed(renewed) => match renewed.locked_until_utc {
            Some(Instant(until)) => Ok(until),
            None => Err(link.unexpected()),
        },
        _ => Err(link.unexpected()),
    }
}

/// Names sessions of a queue, ascending (SES-29).
pub(super) async fn list(
    core: &Arc<Lifeline>,
    path: &str,
    which: SessionFilter,
    skip: u64,
    top: u32,
) -> Result<Vec<Arc<str>>, BrokerError> {
    let (with_active_messages, state_set_after_utc) = match which {
        SessionFilter::All => (false, None),
        SessionFilter::WithActiveMessages => (true, None),
        SessionFilter::StateSetAfter(at) => (false, Some(Instant(at))),
    };
    let list = ListSessions {
        path: path.to_owned(),
        with_active_messages,
        state_set_after_utc,
        skip: u32::try_from(skip).unwrap_or(u32::MAX),
        top: Some(top),
    };
    match core.call(None, path, Operation::ListSessions(list)).await? {
        Notice::Sessions(list) => Ok(list.session_ids.into_iter().map(Arc::from).collect()),
        _ => Err(core.refuse(Rejection::internal("unexpected answer"), path)),
    }
}
