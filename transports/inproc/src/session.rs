//! Receiving by session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use peeklock_core::Entity;
use peeklock_core::command::{
    Command, LinkEnd, Outcome, ReceiveMode, SessionCommand, SessionFilter, Settlement,
};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::receiver::RECEIVE_BYTES_MAX;
use crate::{Received, Receiver};

/// Holds one session: receives its messages in order, settles them, keeps its state (SES-11, SES-19).
///
/// The session lock lasts LockDuration and is prolonged by [`SessionReceiver::renew_lock`]; nothing
/// renews it by itself. It covers the locks of all messages received under it (SES-14). When it has
/// ended, everything here fails with `SessionLockLost` (SES-15). [`SessionReceiver::close`] gives the
/// session back with the messages that are not settled, which count as never delivered (SES-31);
/// dropping the receiver does too, but counts them (SES-33).
pub struct SessionReceiver {
    receiver: Receiver,
    session: Arc<str>,
    locked_until: Mutex<Timestamp>,
}

impl SessionReceiver {
    pub(crate) async fn accept(
        entity: Entity,
        session: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Result<Self, BrokerError> {
        let id = entity.broker().receiver_id();
        let session = session.map(Box::from);
        let command = Command::AcceptSession { session, receiver: id, mode, wait };
        match entity.call(command).await? {
            Outcome::SessionAccepted { session, locked_until, way, .. } => {
                let entity = entity.by_way_of(way);
                let receiver = Receiver::with_id(entity, id, mode);
                Ok(Self { receiver, session, locked_until: Mutex::new(locked_until) })
            }
            other => Err(Receiver::with_id(entity, id, mode).unexpected(&other)),
        }
    }

    pub(crate) const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The id of the session (SES-10).
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.session
    }

    /// When the session lock ends, as of the accept or the last renewal (SES-10, SES-12).
    #[must_use]
    pub fn locked_until(&self) -> Timestamp {
        *self.locked_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the queue.
    #[must_use]
    pub fn path(&self) -> &str {
        self.receiver.path()
    }

    /// The mode (SES-21).
    #[must_use]
    pub const fn mode(&self) -> ReceiveMode {
        self.receiver.mode()
    }

    /// Receives the next message of the session, waiting for it up to `wait`; zero never waits.
    /// Dropping the future takes nothing (RCV-14).
    ///
    /// # Errors
    /// `SessionLockLost`, `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`.
    pub async fn receive(&self, wait: TimeSpan) -> Result<Option<Received>, BrokerError> {
        Ok(self.receive_many(1, wait).await?.pop())
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
        let bytes_max = RECEIVE_BYTES_MAX;
        let command = SessionCommand::Receive { count_max, bytes_max, wait };
        self.receiver.messages(self.command(command)).await
    }

    /// Receives deferred messages of the session by number, all or none (DEF-08).
    ///
    /// # Errors
    /// `MessageNotFound`; `SessionLockLost`, also for a message of another session.
    pub async fn receive_deferred(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<Vec<Received>, BrokerError> {
        let command = SessionCommand::ReceiveDeferred { sequences };
        self.receiver.messages(self.command(command)).await
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
        let session = Box::from(&*self.session);
        self.receiver.messages(Command::PeekSession { session, from, count_max }).await
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

    /// Prolongs the session lock, and with it the locks of its messages, to now plus LockDuration;
    /// returns the new end (SES-12, SES-14).
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn renew_lock(&self) -> Result<Timestamp, BrokerError> {
        match self.call(SessionCommand::Renew).await? {
            Outcome::Renewed(until) => {
                *self.locked_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
                Ok(until)
            }
            other => Err(self.receiver.unexpected(&other)),
        }
    }

    /// Reads the state of the session; none at first (SES-24).
    ///
    /// # Errors
    /// `SessionLockLost`.
    pub async fn state(&self) -> Result<Option<Bytes>, BrokerError> {
        let state = match self.call(SessionCommand::GetState).await? {
            Outcome::SessionState(state) => state,
            other => return Err(self.receiver.unexpected(&other)),
        };
        let Some(state) = state else { return Ok(None) };
        let loaded = state.load().await.map_err(|error| self.receiver.unreadable(&error))?;
        Ok(Some(loaded))
    }

    /// Sets the state of the session, or clears it with none. It stays for the next holder (SES-25).
    ///
    /// # Errors
    /// `SessionLockLost`; `MessageSizeExceeded` over the size of a message (SES-26); `QuotaExceeded`
    /// when the queue is full (SES-27).
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), BrokerError> {
        self.call(SessionCommand::SetState { state }).await.map(|_| ())
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
        match self.call(SessionCommand::DeleteBatch { count_max, enqueued_before }).await? {
            Outcome::Deleted(count) => Ok(count),
            other => Err(self.receiver.unexpected(&other)),
        }
    }

    /// Gives the session back; what is not settled is available again at once, as if it had not been
    /// delivered (SES-31).
    ///
    /// # Errors
    /// When the entity is gone.
    pub async fn close(self) -> Result<(), BrokerError> {
        self.receiver.close().await
    }

    /// The same for a session that others have a hand on too; they find its lock gone.
    pub(crate) async fn give_back(&self) -> Result<(), BrokerError> {
        let receiver = self.receiver.id();
        let detach = Command::Detach { receiver, end: LinkEnd::Orderly };
        self.receiver.entity().call(detach).await.map(|_| ())
    }

    pub(crate) async fn settle_token(
        &self,
        token: LockToken,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        self.receiver.entity().call(Command::Settle { token, settlement }).await.map(|_| ())
    }

    /// Half of what is left of the session lock.
    pub(crate) fn half_of_lock(&self) -> Duration {
        self.locked_until().since(self.receiver.entity().broker().now()).to_std() / 2
    }

    fn command(&self, command: SessionCommand) -> Command {
        Command::InSession { receiver: self.receiver.id(), command }
    }

    async fn call(&self, command: SessionCommand) -> Result<Outcome, BrokerError> {
        self.receiver.entity().call(self.command(command)).await
    }
}

/// Names sessions of a queue, ascending (SES-29).
pub(crate) async fn list(
    entity: &Entity,
    which: SessionFilter,
    skip: u64,
    top: u32,
) -> Result<Vec<Arc<str>>, BrokerError> {
    match entity.call(Command::ListSessions { which, skip, top }).await? {
        Outcome::Sessions(names) => Ok(names),
        other => {
            let detail = format!("unexpected answer {other:?}");
            Err(entity.refuse(peeklock_core::error::Rejection::internal(detail)))
        }
    }
}
