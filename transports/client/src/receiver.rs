//! The receiver: receives and settles messages of a queue, subscription or sub-queue.
//! [`Client`](crate::Client) makes it.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, stream};
use peeklock_core::command::{ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::keeper::renew;
use crate::port::{Answer, Link, Request, Settlement};
use crate::{LockKeeper, Received, Refusal};

/// Time limit of a single receive of a stream, which is then repeated.
const STREAM_WAIT: TimeSpan = TimeSpan::from_seconds(60);

/// Receives from one queue, subscription or sub-queue and settles the messages.
///
/// It does not prefetch: a message is locked only when it is requested (RCV-21). Dropping the
/// receiver releases its locks, each counted as a failed delivery (SET-23); [`Receiver::close`]
/// keeps them until they expire.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::message::Message;
/// use peeklock::time::TimeSpan;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// # client.admin().create_queue("orders").await?;
/// # client.sender("orders")?.send(Message::new("two coffees")).await?;
/// let receiver = client.receiver("orders")?;
/// let wait = TimeSpan::from_seconds(5);
/// let order = receiver.receive(wait).await?.unwrap();
/// receiver.abandon(&order, &[]).await?;
/// let again = receiver.receive(wait).await?.unwrap();
/// assert_eq!((again.body(), again.delivery_count()), (order.body(), 2));
/// receiver.complete(&again).await?;
/// # Ok(())
/// # }
/// ```
pub struct Receiver {
    link: Arc<dyn Link>,
    /// Start of the next peek (PEK-04).
    peeked: Mutex<SequenceNumber>,
}

impl Receiver {
    pub(crate) fn new(link: Arc<dyn Link>) -> Self {
        Self { link, peeked: Mutex::default() }
    }

    pub(crate) const fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// Returns the path of the queue, subscription or sub-queue.
    #[must_use]
    pub fn path(&self) -> &str {
        self.link.path()
    }

    /// Returns the mode.
    #[must_use]
    pub fn mode(&self) -> ReceiveMode {
        self.link.mode()
    }

    /// Receives one message, waiting for at most `wait`; zero never waits (RCV-10, RCV-11).
    /// Dropping the future takes nothing (RCV-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`, `CommunicationProblem`.
    pub async fn receive(
        &self,
        wait: impl Into<TimeSpan>,
    ) -> Result<Option<Received>, BrokerError> {
        Ok(self.receive_many(1, wait).await?.pop())
    }

    /// Receives the available messages, up to `count_max`, waiting for the first for at most `wait`
    /// (RCV-12).
    ///
    /// # Errors
    /// As for [`Receiver::receive`]; `ArgumentOutOfRange` if `count_max` is 0.
    pub async fn receive_many(
        &self,
        count_max: u32,
        wait: impl Into<TimeSpan>,
    ) -> Result<Vec<Received>, BrokerError> {
        self.messages(Request::Receive { count_max, wait: wait.into() }).await
    }

    /// As [`Receiver::receive_many`], until `stop` completes: then the receive is withdrawn, and
    /// the messages received until then are returned, so that none stays locked unseen (RCV-14).
    ///
    /// # Errors
    /// As for [`Receiver::receive`].
    pub async fn receive_many_until(
        &self,
        count_max: u32,
        wait: impl Into<TimeSpan>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Received>, BrokerError> {
        let receive = Request::Receive { count_max, wait: wait.into() };
        let answer = self.link.ask_until(receive, Box::pin(stop)).await?;
        self.read(answer, self.mode() == ReceiveMode::ReceiveAndDelete).await
    }

    /// Returns a stream of messages, each requested after the previous one was taken. The stream
    /// waits for messages without a time limit, and ends after the first error. Dropping it takes
    /// nothing (RCV-14). It can move to another task or into the context of an actor, and continues
    /// after this receiver is dropped.
    pub fn stream(
        &self,
    ) -> impl Stream<Item = Result<Received, BrokerError>> + Send + 'static + use<> {
        stream::try_unfold(Self::new(Arc::clone(&self.link)), async |receiver| {
            loop {
                if let Some(message) = receiver.receive(STREAM_WAIT).await? {
                    return Ok(Some((message, receiver)));
                }
            }
        })
    }

    /// Receives deferred messages by number, all or none (DEF-03).
    ///
    /// # Errors
    /// `MessageNotFound` if one is unknown, not deferred, expired or locked; `QuotaExceeded` for
    /// more than 4 MiB in total (DEF-11).
    pub async fn receive_deferred(
        &self,
        sequences: Vec<SequenceNumber>,
    ) -> Result<Vec<Received>, BrokerError> {
        self.messages(Request::ReceiveDeferred(sequences)).await
    }

    /// Peeks at up to `count_max` messages from the number `from` on, without locking them
    /// (PEK-01). `SequenceNumber::default()` starts at the beginning.
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn peek(
        &self,
        from: SequenceNumber,
        count_max: u32,
    ) -> Result<Vec<Received>, BrokerError> {
        let peek = Request::Peek { session_id: None, from, count_max };
        let peeked = self.messages(peek).await?;
        if let Some(last) = peeked.last() {
            *self.peeked.lock().unwrap_or_else(PoisonError::into_inner) =
                last.sequence_number().next();
        }
        Ok(peeked)
    }

    /// Continues after the last message that this receiver peeked (PEK-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn peek_next(&self, count_max: u32) -> Result<Vec<Received>, BrokerError> {
        let from = *self.peeked.lock().unwrap_or_else(PoisonError::into_inner);
        self.peek(from, count_max).await
    }

    /// Peeks at messages of a session from the number `from` on, regardless of its holder (PEK-07).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` on a queue without sessions.
    pub async fn peek_session(
        &self,
        session_id: &str,
        from: SequenceNumber,
        count_max: u32,
    ) -> Result<Vec<Received>, BrokerError> {
        let session_id = Some(session_id.into());
        self.messages(Request::Peek { session_id, from, count_max }).await
    }

    /// Completes the message: it is removed as processed (SET-01).
    ///
    /// # Errors
    /// `MessageLockLost`; `InvalidOperation` for a message without lock.
    pub async fn complete(&self, message: &Received) -> Result<(), BrokerError> {
        self.settle(self.token(message)?, Settlement::Complete).await
    }

    /// Completes messages as one group; each has its own result, in order (SET-14).
    pub async fn complete_many(&self, tokens: &[LockToken]) -> Vec<Result<(), BrokerError>> {
        self.settle_each(tokens, Settlement::Complete).await
    }

    /// Gives the message back for redelivery, counted as a failed delivery, and sets application
    /// properties on it (SET-03, SET-08). It is available again immediately, or after the delay of
    /// the entity's retry policy (RTY-17).
    ///
    /// # Errors
    /// `MessageLockLost`, `MessageSizeExceeded`.
    pub async fn abandon(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        self.settle(self.token(message)?, Settlement::Abandon { properties, delay: None }).await
    }

    /// Gives the message back like [`Receiver::abandon`], with this delay before redelivery
    /// (RTY-01). The delay overrides the entity's retry policy; zero means immediately. The last
    /// attempt that MaxDeliveryCount allows dead-letters the message without a delay (RTY-05).
    ///
    /// # Errors
    /// As for [`Receiver::abandon`]; `ArgumentOutOfRange` for more than 7 days (RTY-02),
    /// `InvalidOperation` for a deferred message (RTY-08).
    pub async fn abandon_with_delay(
        &self,
        message: &Received,
        delay: impl Into<TimeSpan>,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        let settlement = Settlement::Abandon { properties, delay: Some(delay.into()) };
        self.settle(self.token(message)?, settlement).await
    }

    /// Defers the message; it can then be received only by its number (DEF-01).
    ///
    /// # Errors
    /// `MessageLockLost`, `MessageSizeExceeded`.
    pub async fn defer(
        &self,
        message: &Received,
        properties: &[(String, Value)],
    ) -> Result<(), BrokerError> {
        let properties = properties.to_vec();
        self.settle(self.token(message)?, Settlement::Defer { properties }).await
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
        let settlement = Settlement::dead_letter(reason, description, properties);
        self.settle(self.token(message)?, settlement).await
    }

    /// Unlocks the message as if it had not been delivered; its delivery count is unchanged
    /// (SET-32).
    ///
    /// # Errors
    /// `MessageLockLost`.
    pub async fn release(&self, message: &Received) -> Result<(), BrokerError> {
        self.settle(self.token(message)?, Settlement::Release).await
    }

    /// Settles a message by its token, also one that another receiver has received (SET-24): `Ok`
    /// completes it.
    ///
    /// # Errors
    /// As for the settlement.
    pub async fn settle_token(
        &self,
        token: LockToken,
        outcome: Result<(), Refusal>,
    ) -> Result<(), BrokerError> {
        self.settle(token, outcome.into()).await
    }

    /// Unlocks messages as if they had not been delivered; their delivery counts are unchanged
    /// (SET-32). Each has its own result, in order (SET-14).
    pub async fn release_many(&self, tokens: &[LockToken]) -> Vec<Result<(), BrokerError>> {
        self.settle_each(tokens, Settlement::Release).await
    }

    /// Renews locks to now plus LockDuration (SET-18). Each has its own result, in order: its new
    /// end, or the earliest end in its group.
    pub async fn renew_many(&self, tokens: &[LockToken]) -> Vec<Result<Timestamp, BrokerError>> {
        let answer = self.link.ask(Request::Renew(tokens.to_vec())).await;
        self.link.each(tokens.len(), answer, |answer| match answer {
            Answer::Renewed(renewed) => Ok(renewed),
            other => Err(other),
        })
    }

    /// Renews the lock to now plus LockDuration and returns its new end (SET-18).
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
        renew(&*self.link, Some(token)).await
    }

    /// Renews the lock of a message until the keeper is dropped, for slow handlers. Call it inside
    /// a tokio runtime.
    ///
    /// # Errors
    /// `InvalidOperation` for a message without lock.
    pub fn keep_locked(&self, message: &Received) -> Result<LockKeeper, BrokerError> {
        let token = self.token(message)?;
        let until = message.locked_until().unwrap_or_default();
        Ok(LockKeeper::start(Arc::clone(&self.link), Some(token), until))
    }

    /// Removes available messages enqueued before an instant, by default now, lowest numbers first,
    /// and returns their number (DEL-01 to DEL-04).
    ///
    /// # Errors
    /// `ArgumentOutOfRange` over the limit of the tier (DEL-02).
    pub async fn delete_batch(
        &self,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        let count_max = Some(count_max);
        self.deleted(Request::DeleteBatch { count_max, enqueued_before }).await
    }

    /// As [`Receiver::delete_batch`], with the maximum count that the broker allows in one call.
    ///
    /// # Errors
    /// As for [`Receiver::delete_batch`].
    pub async fn delete_most(&self, enqueued_before: Timestamp) -> Result<u64, BrokerError> {
        let enqueued_before = Some(enqueued_before);
        self.deleted(Request::DeleteBatch { count_max: None, enqueued_before }).await
    }

    /// Removes all messages that are available now, and returns their number (DEL-06).
    ///
    /// # Errors
    /// As for [`Receiver::delete_batch`].
    pub async fn purge(&self) -> Result<u64, BrokerError> {
        self.deleted(Request::Purge).await
    }

    /// Closes the receiver; its locks stay until they expire or are settled by token (SET-21).
    ///
    /// # Errors
    /// Returns an error if the entity is gone.
    pub async fn close(self) -> Result<(), BrokerError> {
        self.link.detach().await
    }

    async fn deleted(&self, request: Request) -> Result<u64, BrokerError> {
        match self.link.ask(request).await? {
            Answer::Deleted(count) => Ok(count),
            other => Err(self.link.unexpected(&other)),
        }
    }

    pub(crate) async fn settle(
        &self,
        token: LockToken,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        self.link.ask(Request::Settle(token, settlement)).await.map(drop)
    }

    async fn settle_each(
        &self,
        tokens: &[LockToken],
        settlement: Settlement,
    ) -> Vec<Result<(), BrokerError>> {
        let answer = self.link.ask(Request::SettleEach(tokens.to_vec(), settlement)).await;
        self.link.each(tokens.len(), answer, |answer| match answer {
            Answer::Each(results) => Ok(results),
            other => Err(other),
        })
    }

    pub(crate) fn token(&self, message: &Received) -> Result<LockToken, BrokerError> {
        message.lock_token().ok_or_else(|| {
            let detail = format!("message {} is not locked", message.sequence_number());
            self.link.refuse(Rejection::invalid_operation(detail))
        })
    }

    async fn messages(&self, request: Request) -> Result<Vec<Received>, BrokerError> {
        let is_peek = matches!(request, Request::Peek { .. });
        let are_removed = self.mode() == ReceiveMode::ReceiveAndDelete && !is_peek;
        let answer = self.link.ask(request).await?;
        self.read(answer, are_removed).await
    }

    /// Loads the content of all messages. If one is unreadable it is abandoned, so that it becomes
    /// a dead letter in the end and does not block the queue; the others are released uncounted and
    /// the error is returned. While the store is not available, all are released uncounted.
    async fn read(&self, answer: Answer, are_removed: bool) -> Result<Vec<Received>, BrokerError> {
        let received = match answer {
            Answer::Received(received) => received,
            other => return Err(self.link.unexpected(&other)),
        };
        let mut back = UntakenLocks { link: &*self.link, tokens: locks(&received) };
        let mut messages = Vec::with_capacity(received.len());
        let mut unread = Vec::new();
        for message in received {
            let token = message.facts.lock.map(|lock| lock.token);
            match Received::load(&message).await {
                Ok(message) => messages.push(message),
                // A removed message is lost, so the error must not ask for a repetition (ERR-06).
                Err(_) if are_removed => {
                    unread.push((token, self.link.refuse(message.undeliverable())));
                }
                Err(rejection) => unread.push((token, self.link.refuse(rejection))),
            }
        }
        if unread.is_empty() || (are_removed && !messages.is_empty()) {
            for (_, error) in unread {
                // The other messages are already removed from the entity, so return them.
                tracing::error!(path = self.path(), %error, "a received message is lost");
            }
            back.tokens.clear();
            return Ok(messages);
        }
        let is_lost = |error: &BrokerError| error.condition() != Condition::ServerBusy;
        let bad = unread.iter().filter(|(_, error)| is_lost(error));
        let bad: Vec<LockToken> = bad.filter_map(|(token, _)| *token).collect();
        back.tokens.retain(|token| !bad.contains(token));
        drop(back);
        let abandon = Settlement::Abandon { properties: Vec::new(), delay: None };
        for error in self.settle_each(&bad, abandon).await.into_iter().filter_map(Result::err) {
            // The lock expires by itself.
            tracing::debug!(path = self.path(), %error, "could not abandon a message");
        }
        Err(unread.swap_remove(0).1)
    }
}

/// Locks of messages that the caller has not taken yet. Dropping them releases the messages
/// uncounted (RCV-14).
struct UntakenLocks<'a> {
    link: &'a dyn Link,
    tokens: Vec<LockToken>,
}

impl Drop for UntakenLocks<'_> {
    fn drop(&mut self) {
        if !self.tokens.is_empty() {
            self.link.give_back(std::mem::take(&mut self.tokens));
        }
    }
}

fn locks(received: &[ReceivedMessage]) -> Vec<LockToken> {
    received.iter().filter_map(|message| message.facts.lock).map(|lock| lock.token).collect()
}

impl Settlement {
    /// Returns a dead-letter settlement.
    pub(crate) fn dead_letter(
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
    ) -> Self {
        Self::DeadLetter {
            reason: reason.map(str::to_owned),
            description: description.map(str::to_owned),
            properties: properties.to_vec(),
        }
    }
}
