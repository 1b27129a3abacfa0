//! Receiving and settling.

use std::sync::Mutex;
use std::sync::PoisonError;

use peeklock_core::Entity;
use peeklock_core::call::submit_unanswered;
use peeklock_core::command::{Command, LinkEnd, Outcome, ReceiveMode, ReceivedMessage, Settlement};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::message::{Overlay, Value};
use peeklock_core::store::StoreError;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::Received;

/// A receive takes at most this many bytes at once; what is over stays for the next (RCV-13).
pub(crate) const RECEIVE_BYTES_MAX: u64 = 64 << 20;

/// Receives from one queue, subscription or sub-queue and settles what it received.
///
/// It takes nothing ahead: a message is locked when it is asked for (RCV-21). Dropping the receiver
/// releases its locks, each counted as a failed delivery (SET-23); [`Receiver::close`] keeps them
/// until they run out.
pub struct Receiver {
    entity: Entity,
    id: ReceiverId,
    mode: ReceiveMode,
    /// Where the next peek goes on (PEK-04).
    peeked: Mutex<SequenceNumber>,
    closed: bool,
}

impl Receiver {
    pub(crate) fn new(entity: Entity, mode: ReceiveMode) -> Self {
        let id = entity.broker().receiver_id();
        Self::with_id(entity, id, mode)
    }

    /// The receiver of that id.
    pub(crate) fn with_id(entity: Entity, id: ReceiverId, mode: ReceiveMode) -> Self {
        Self { entity, id, mode, peeked: Mutex::default(), closed: false }
    }

    pub(crate) const fn id(&self) -> ReceiverId {
        self.id
    }

    pub(crate) const fn entity(&self) -> &Entity {
        &self.entity
    }

    /// The path of the queue or sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        self.entity.path()
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> ReceiveMode {
        self.mode
    }

    /// Receives one message, waiting for it up to `wait`; zero never waits (RCV-10, RCV-11).
    /// Dropping the future takes nothing (RCV-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`.
    pub async fn receive(&self, wait: TimeSpan) -> Result<Option<Received>, BrokerError> {
        Ok(self.receive_many(1, wait).await?.pop())
    }

    /// Receives what is available, up to `count_max`, waiting for the first up to `wait` (RCV-12).
    ///
    /// # Errors
    /// As for [`Receiver::receive`]; `ArgumentOutOfRange` if `count_max` is 0.
    pub async fn receive_many(
        &self,
        count_max: u32,
        wait: TimeSpan,
    ) -> Result<Vec<Received>, BrokerError> {
        let command = Command::Receive {
            mode: self.mode,
            count_max,
            bytes_max: RECEIVE_BYTES_MAX,
            wait,
            holder: Some(self.id),
        };
        self.messages(command).await
    }

    /// Receives deferred messages by number, all or none (DEF-03).
    ///
    /// # Errors
    /// `MessageNotFound` if one of them is unknown, not deferred, expired or locked.
    pub async fn receive_deferred(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<Vec<Received>, BrokerError> {
        let command =
            Command::ReceiveDeferred { mode: self.mode, sequences, holder: Some(self.id) };
        self.messages(command).await
    }

    /// Looks at up to `count_max` messages from a number on, without locking them (PEK-01).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn peek(
        &self,
        from: SequenceNumber,
        count_max: u32,
    ) -> Result<Vec<Received>, BrokerError> {
        let peeked = self.messages(Command::Peek { from, count_max }).await?;
        if let Some(last) = peeked.last() {
            *self.peeked.lock().unwrap_or_else(PoisonError::into_inner) =
                last.sequence_number().next();
        }
        Ok(peeked)
    }

    /// Goes on after the last message this receiver has peeked (PEK-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn peek_next(&self, count_max: u32) -> Result<Vec<Received>, BrokerError> {
        let from = *self.peeked.lock().unwrap_or_else(PoisonError::into_inner);
        self.peek(from, count_max).await
    }

    /// Looks at messages of one session of the queue from a number on, whoever holds it (PEK-07).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` on a queue without sessions.
    pub async fn peek_session(
        &self,
        session_id: &str,
        from: SequenceNumber,
        count_max: u32,
    ) -> Result<Vec<Received>, BrokerError> {
        let session = Box::from(session_id);
        self.messages(Command::PeekSession { session, from, count_max }).await
    }

    /// Ends the message: it was processed (SET-01).
    ///
    /// # Errors
    /// `MessageLockLost`; `InvalidOperation` for a message without lock.
    pub async fn complete(&self, message: &Received) -> Result<(), BrokerError> {
        self.settle(message, Settlement::Complete).await
    }

    /// Completes many messages as one group; each has its own result, in their order (SET-14).
    pub async fn complete_many(&self, tokens: &[LockToken]) -> Vec<Result<(), BrokerError>> {
        let commands = tokens
            .iter()
            .map(|token| Command::Settle { token: *token, settlement: Settlement::Complete })
            .collect();
        let results = self.entity.call_many(commands).await;
        results.into_iter().map(|result| result.map(|_| ())).collect()
    }

    /// Gives the message back for redelivery, counted as a failed delivery, and sets application
    /// properties on it (SET-03, SET-08).
    ///
    /// # Errors
    /// `MessageLockLost`, `MessageSizeExceeded`.
    pub async fn abandon(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = self.overlay(properties)?;
        self.settle(message, Settlement::Abandon { properties }).await
    }

    /// Sets the message aside; it can be received by its number only (DEF-01).
    ///
    /// # Errors
    /// `MessageLockLost`, `MessageSizeExceeded`.
    pub async fn defer(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = self.overlay(properties)?;
        self.settle(message, Settlement::Defer { properties }).await
    }

    /// Moves the message to the dead-letter queue (SET-05, SET-06).
    ///
    /// # Errors
    /// `MessageLockLost`, `ArgumentOutOfRange` for a reason or description over 4,096 characters
    /// (SET-11), `InvalidOperation` in a sub-queue (DLQ-07).
    pub async fn dead_letter(
        &self,
        message: &Received,
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let limits = &self.entity.broker().settings().limits;
        let settlement = Settlement::dead_letter(reason, description, properties, limits)
            .map_err(|rejection| self.entity.refuse(rejection))?;
        self.settle(message, settlement).await
    }

    /// Unlocks the message as if it had not been delivered; its count stays (SET-32).
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn release(&self, message: &Received) -> Result<(), BrokerError> {
        self.settle(message, Settlement::Release).await
    }

    /// Prolongs the lock to now plus LockDuration and returns its new end (SET-18).
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn renew_lock(&self, message: &Received) -> Result<Timestamp, BrokerError> {
        let token = self.token(message)?;
        match self.entity.call(Command::RenewLock { token }).await? {
            Outcome::Renewed(until) => Ok(until),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Removes available messages enqueued before an instant, default now, lowest numbers first, and
    /// returns how many (DEL-01 to DEL-04).
    ///
    /// # Errors
    /// `ArgumentOutOfRange` over the limit of the tier (DEL-02).
    pub async fn delete_batch(
        &self,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        match self.entity.call(Command::DeleteBatch { count_max, enqueued_before }).await? {
            Outcome::Deleted(count) => Ok(count),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Repeats [`Receiver::delete_batch`] with one instant until nothing is left, and returns the
    /// sum (DEL-06).
    ///
    /// # Errors
    /// As for [`Receiver::delete_batch`].
    pub async fn purge(&self) -> Result<u64, BrokerError> {
        let broker = self.entity.broker();
        let before = broker.now();
        let limit = broker.settings().limits.batch_delete_count_max;
        let count_max = u32::try_from(limit).unwrap_or(u32::MAX);
        let mut sum = 0;
        loop {
            match self.delete_batch(count_max, Some(before)).await? {
                0 => return Ok(sum),
                count => sum += count,
            }
        }
    }

    /// Closes the receiver; its locks stay until they run out or are settled by token (SET-21).
    ///
    /// # Errors
    /// When the entity is gone.
    pub async fn close(mut self) -> Result<(), BrokerError> {
        self.closed = true;
        let command = Command::Detach { receiver: self.id, end: LinkEnd::Orderly };
        self.entity.call(command).await.map(|_| ())
    }

    async fn settle(&self, message: &Received, settlement: Settlement) -> Result<(), BrokerError> {
        let token = self.token(message)?;
        self.entity.call(Command::Settle { token, settlement }).await.map(|_| ())
    }

    pub(crate) fn token(&self, message: &Received) -> Result<LockToken, BrokerError> {
        message.lock_token().ok_or_else(|| {
            let detail = format!("message {} is not locked", message.sequence_number());
            self.entity.refuse(Rejection::invalid_operation(detail))
        })
    }

    pub(crate) fn overlay(
        &self,
        properties: &[(String, Value)],
    ) -> Result<Option<Overlay>, BrokerError> {
        if properties.is_empty() {
            return Ok(None);
        }
        Overlay::encode(properties).map(Some).map_err(|rejection| self.entity.refuse(rejection))
    }

    pub(crate) async fn messages(&self, command: Command) -> Result<Vec<Received>, BrokerError> {
        let messages: Vec<ReceivedMessage> = match self.entity.call(command).await? {
            Outcome::Received(messages) | Outcome::Peeked(messages) => messages,
            other => return Err(self.unexpected(&other)),
        };
        let mut loaded = Vec::with_capacity(messages.len());
        for message in messages {
            let message = Received::load(message).await;
            loaded.push(message.map_err(|rejection| self.entity.refuse(rejection))?);
        }
        Ok(loaded)
    }

    pub(crate) fn unreadable(&self, error: &StoreError) -> BrokerError {
        self.entity.refuse(Rejection::internal(format!("a session state cannot be read: {error}")))
    }

    pub(crate) fn unexpected(&self, outcome: &Outcome) -> BrokerError {
        self.entity.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.closed {
            let command = Command::Detach { receiver: self.id, end: LinkEnd::Broken };
            submit_unanswered(&self.entity, vec![command]);
        }
    }
}
