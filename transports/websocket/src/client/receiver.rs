//! Receiving and settling.

use std::sync::{Arc, Mutex, PoisonError};

use peeklock_core::command::ReceiveMode;
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::oneshot;

use super::core::{Ask, Link};
use super::keeper::LockKeeper;
use super::{Received, Refusal};
use crate::frame::message::{Delivered, Properties};
use crate::frame::session::PeekSession;
use crate::frame::text::{Instant, Token};
use crate::frame::{
    Decision, DeleteBatch, FailedRange, LIST_COUNT_MAX, Notice, Numbered, Operation, Peek, Purge,
    Receive, Renew, Settle,
};

/// Locks that one request of many names: few enough for any broker (`commandCountMax`).
const PART_COUNT: usize = 512;

/// Receives from one queue or sub-queue and settles what it received.
///
/// It takes nothing ahead: a message is locked when it is asked for (RCV-21). Dropping the receiver
/// releases its locks, each counted as a failed delivery (SET-23); [`Receiver::close`] keeps them
/// until they run out.
pub struct Receiver {
    pub(super) link: Arc<Link>,
    /// Where the next peek goes on (PEK-04).
    peeked: Mutex<SequenceNumber>,
}

impl Receiver {
    pub(super) fn new(link: Link) -> Self {
        Self { link: Arc::new(link), peeked: Mutex::default() }
    }

    /// The path of the queue or sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.link.path
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> ReceiveMode {
        self.link.mode
    }

    /// Receives one message, waiting for it up to `wait`; zero never waits (RCV-10, RCV-11).
    /// Dropping the future takes nothing (RCV-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`, `CommunicationProblem`.
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
        self.messages(Operation::Receive(self.receiving(count_max, wait))).await
    }

    /// As [`Receiver::receive_many`], until `stop` completes: then the receive is withdrawn, and what it
    /// had got by then is returned, so that nothing stays locked unseen (RCV-14).
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub async fn receive_many_until(
        &self,
        count_max: u32,
        wait: TimeSpan,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Received>, BrokerError> {
        let receive = Operation::Receive(self.receiving(count_max, wait));
        let link = &self.link;
        match link.core.call_until(Some(link.number), &link.path, receive, stop).await {
            Ok(answer) => self.read(answer),
            // It had not been sent.
            Err(error) if error.condition() == Condition::OperationCancelled => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn receiving(&self, count_max: u32, wait: TimeSpan) -> Receive {
        let most = u32::try_from(LIST_COUNT_MAX).unwrap_or(u32::MAX);
        let wait_seconds = wait.as_seconds_f64();
        Receive { link: self.link.number, max_count: count_max.min(most), wait_seconds }
    }

    /// Receives deferred messages by number, all or none (DEF-03).
    ///
    /// # Errors
    /// `MessageNotFound` if one of them is unknown, not deferred, expired or locked.
    pub async fn receive_deferred(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<Vec<Received>, BrokerError> {
        let sequence_numbers = sequences.into_iter().map(|number| number.0).collect();
        let receive = Numbered { link: self.link.number, sequence_numbers };
        self.messages(Operation::ReceiveDeferred(receive)).await
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
        let peek = Peek { link: self.link.number, from: from.0, max_count: count_max };
        let peeked = self.messages(Operation::Peek(peek)).await?;
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
        let peek = PeekSession {
            link: self.link.number,
            session_id: session_id.to_owned(),
            from: from.0,
            max_count: count_max,
        };
        self.messages(Operation::PeekSession(peek)).await
    }

    /// Ends the message: it was processed (SET-01). Completions that are under way at once share a
    /// frame.
    ///
    /// # Errors
    /// `MessageLockLost`; `InvalidOperation` for a message without lock.
    pub async fn complete(&self, message: &Received) -> Result<(), BrokerError> {
        let answered = self.begin_complete(self.token(message)?);
        self.link.core.answered(answered, &self.link.path).await
    }

    /// Completes many messages as one group; each has its own result, in their order (SET-14).
    pub async fn complete_many(&self, tokens: &[LockToken]) -> Vec<Result<(), BrokerError>> {
        let begun: Vec<_> = tokens.iter().map(|token| self.begin_complete(*token)).collect();
        let mut results = Vec::with_capacity(begun.len());
        for answered in begun {
            results.push(self.link.core.answered(answered, &self.link.path).await);
        }
        results
    }

    fn begin_complete(&self, token: LockToken) -> oneshot::Receiver<Result<(), BrokerError>> {
        let (answer, answered) = oneshot::channel();
        let token = Token(token);
        self.link.core.ask(Ask::Complete { link: self.link.number, token, answer });
        answered
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
        self.settle(self.token(message)?, Decision::Abandon, properties, None, None).await
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
        self.settle(self.token(message)?, Decision::Defer, properties, None, None).await
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
        let token = self.token(message)?;
        self.settle(token, Decision::DeadLetter, properties, reason, description).await
    }

    /// Unlocks the message as if it had not been delivered; its count stays (SET-32).
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn release(&self, message: &Received) -> Result<(), BrokerError> {
        self.settle(self.token(message)?, Decision::Release, &[], None, None).await
    }

    /// Settles by token a message that anybody has received (SET-24): `Ok` completes it.
    ///
    /// # Errors
    /// As for the settlement.
    pub async fn settle_token(
        &self,
        token: LockToken,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        match outcome {
            Ok(()) => {
                let answered = self.begin_complete(token);
                self.link.core.answered(answered, &self.link.path).await
            }
            Err(Refusal::Abandon { properties }) => {
                self.settle(token, Decision::Abandon, &properties, None, None).await
            }
            Err(Refusal::Defer) => self.settle(token, Decision::Defer, &[], None, None).await,
            Err(Refusal::DeadLetter { reason, description }) => {
                let (reason, description) = (Some(reason.as_str()), Some(description.as_str()));
                self.settle(token, Decision::DeadLetter, &[], reason, description).await
            }
        }
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
        let mut results = Vec::with_capacity(tokens.len());
        for part in tokens.chunks(PART_COUNT) {
            let settle = Settle {
                link: self.link.number,
                decision: Decision::Release,
                ranges: Vec::new(),
                lock_tokens: part.iter().copied().map(Token).collect(),
                properties: None,
                reason: None,
                description: None,
            };
            match self.link.call(Operation::Settle(settle)).await? {
                Notice::Settled(settled) => each(part.len(), settled.failed, &mut results),
                _ => return Err(self.link.unexpected()),
            }
        }
        Ok(results)
    }

    /// Prolongs locks to now plus LockDuration (SET-18). Each has its own result, in their order.
    ///
    /// # Errors
    /// When a request as a whole fails; those before it were carried out.
    pub async fn renew_many(
        &self,
        tokens: &[LockToken],
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let mut results = Vec::with_capacity(tokens.len());
        for part in tokens.chunks(PART_COUNT) {
            let renew = Renew {
                link: self.link.number,
                ranges: Vec::new(),
                lock_tokens: part.iter().copied().map(Token).collect(),
            };
            match self.link.call(Operation::Renew(renew)).await? {
                Notice::Renewed(renewed) => each(part.len(), renewed.failed, &mut results),
                _ => return Err(self.link.unexpected()),
            }
        }
        Ok(results)
    }

    /// Prolongs the lock to now plus LockDuration and returns its new end (SET-18).
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn renew_lock(&self, message: &Received) -> Result<Timestamp, BrokerError> {
        self.renew_token(self.token(message)?).await
    }

    /// As [`Receiver::renew_lock`], by token.
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn renew_token(&self, token: LockToken) -> Result<Timestamp, BrokerError> {
        let lock_tokens = vec![Token(token)];
        let renew = Renew { link: self.link.number, ranges: Vec::new(), lock_tokens };
        match self.link.call(Operation::Renew(renew)).await? {
            Notice::Renewed(mut renewed) => {
                match (renewed.failed.pop(), renewed.locked_until_utc) {
                    (Some(failed), _) => Err(failed.error.into_error()),
                    (None, Some(Instant(until))) => Ok(until),
                    (None, None) => Err(self.link.unexpected()),
                }
            }
            _ => Err(self.link.unexpected()),
        }
    }

    /// Renews the lock of a message until the keeper is dropped, for handlers that take long. To be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// `InvalidOperation` for a message without lock.
    pub fn keep_locked(&self, message: &Received) -> Result<LockKeeper, BrokerError> {
        let token = self.token(message)?;
        let until = message.locked_until().unwrap_or_default();
        Ok(LockKeeper::start(Arc::clone(&self.link), token, until))
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
        let delete = DeleteBatch {
            link: self.link.number,
            max_count: Some(count_max),
            enqueued_before_utc: enqueued_before.map(Instant),
        };
        self.deleted(Operation::DeleteBatch(delete)).await
    }

    /// As [`Receiver::delete_batch`], with the largest count that the broker allows in one call.
    ///
    /// # Errors
    /// As for [`Receiver::delete_batch`].
    pub async fn delete_most(&self, enqueued_before: Timestamp) -> Result<u64, BrokerError> {
        let delete = DeleteBatch {
            link: self.link.number,
            max_count: None,
            enqueued_before_utc: Some(Instant(enqueued_before)),
        };
        self.deleted(Operation::DeleteBatch(delete)).await
    }

    /// Removes all available messages that are there now, and returns how many (DEL-06).
    ///
    /// # Errors
    /// As for [`Receiver::delete_batch`].
    pub async fn purge(&self) -> Result<u64, BrokerError> {
        let purge = Purge { link: self.link.number, enqueued_before_utc: None };
        self.deleted(Operation::Purge(purge)).await
    }

    async fn deleted(&self, operation: Operation) -> Result<u64, BrokerError> {
        match self.link.call(operation).await? {
            Notice::Deleted(deleted) => Ok(deleted.count),
            _ => Err(self.link.unexpected()),
        }
    }

    /// Closes the receiver; its locks stay until they run out or are settled by token (SET-21).
    ///
    /// # Errors
    /// When the entity is gone.
    pub async fn close(self) -> Result<(), BrokerError> {
        match Arc::try_unwrap(self.link) {
            Ok(link) => link.detach().await,
            // A keeper renews one of its locks still; the last one to go detaches.
            Err(_) => Ok(()),
        }
    }

    /// Settles by token, whoever received the message (SET-24).
    pub(super) async fn settle(
        &self,
        token: LockToken,
        decision: Decision,
        properties: &[(String, Value)],
        reason: Option<&str>,
        description: Option<&str>,
    ) -> Result<(), BrokerError> {
        settle(&self.link, token, decision, properties, reason, description).await
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn token(&self, message: &Received) -> Result<LockToken, BrokerError> {
        message.lock_token().ok_or_else(|| {
            let detail = format!("message {} is not locked", message.sequence_number());
            self.link.refuse(Rejection::invalid_operation(detail))
        })
    }

    async fn messages(&self, operation: Operation) -> Result<Vec<Received>, BrokerError> {
        self.read(self.link.call(operation).await?)
    }

    fn read(&self, answer: Notice) -> Result<Vec<Received>, BrokerError> {
        match answer {
            Notice::Received(messages) => messages
                .messages
                .iter()
                .map(|message: &Delivered| Received::read(message, &self.link.path))
                .collect::<Result<_, _>>()
                .map_err(|rejection| self.link.refuse(rejection)),
            _ => Err(self.link.unexpected()),
        }
    }
}

/// Gives each of a part of a list its result.
fn each(count: usize, failed: Vec<FailedRange>, results: &mut Vec<Result<(), BrokerError>>) {
    let begin = results.len();
    results.resize_with(begin + count, || Ok(()));
    for FailedRange { from, to, error } in failed {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let to = usize::try_from(to).unwrap_or(usize::MAX).min(count.saturating_sub(1));
        for place in from..=to {
            if let Some(result) = results.get_mut(begin + place) {
                *result = Err(error.clone().into_error());
            }
        }
    }
}

pub(super) async fn settle(
    link: &Link,
    token: LockToken,
    decision: Decision,
    properties: &[(String, Value)],
    reason: Option<&str>,
    description: Option<&str>,
) -> Result<(), BrokerError> {
    let settle = Settle {
        link: link.number,
        decision,
        ranges: Vec::new(),
        lock_tokens: vec![Token(token)],
        properties: (!properties.is_empty()).then(|| Properties(properties.to_vec())),
        reason: reason.map(str::to_owned),
        description: description.map(str::to_owned),
    };
    match link.call(Operation::Settle(settle)).await? {
        Notice::Settled(mut settled) => match settled.failed.pop() {
            Some(failed) => Err(failed.error.into_error()),
            None => Ok(()),
        },
        _ => Err(link.unexpected()),
    }
}
