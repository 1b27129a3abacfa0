//! Management of entities (files 03, 13 and 17 of the specification).

mod topics;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use peeklock_core::command::{Command, Described, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::{EntityKind, QueueUpdate};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;
use peeklock_core::{Access, Broker};

/// Creates, reads, changes and deletes queues, topics, subscriptions and rules.
#[derive(Clone)]
pub struct Admin {
    access: Access,
}

impl Admin {
    pub(crate) const fn new(access: Access) -> Self {
        Self { access }
    }

    /// Creates a queue with all properties at their defaults (ENT-03).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.create_queue_with(path, QueueUpdate::default()).await
    }

    /// Creates a queue with the properties named.
    ///
    /// # Errors
    /// As for [`Admin::create_queue`]; `EntityNotFound` for a destination that is not there (FWD-02),
    /// `InvalidOperation` for one that cannot be (FWD-03, FWD-04).
    pub async fn create_queue_with(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        self.access.create_queue(path, properties).await
    }

    /// Reads a queue's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.access.describe_queue(path).await
    }

    /// Whether there is a queue at a path.
    ///
    /// # Errors
    /// `ArgumentError` for a path that cannot be one, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue_exists(&self, path: &str) -> Result<bool, BrokerError> {
        match self.access.describe_queue(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.condition() == Condition::EntityNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the properties named. An absent ForwardTo, ForwardDeadLetteredMessagesTo or
    /// UserMetadata means none, any other absent property keeps its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        self.access.update_queue(path, properties, None).await
    }

    /// Deletes a queue with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_queue(&self, path: &str) -> Result<(), BrokerError> {
        self.access.delete(path, EntityKind::Queue).await
    }

    /// The paths of those queues that may be read, in case-insensitive order (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        at_once(self.access.queue_paths(skip, top), self.access.broker()).unwrap_or_default()
    }

    /// Removes one deferred message, expired or not (DEL-09).
    ///
    /// # Errors
    /// `MessageNotFound`, `EntityNotFound`.
    pub async fn delete_deferred(
        &self,
        path: &str,
        sequence: SequenceNumber,
    ) -> Result<(), BrokerError> {
        let entity = self.access.entity(path, Action::DeleteDeferred).await?;
        entity.call(Command::DeleteDeferred { sequence }).await.map(|_| ())
    }

    /// Removes available messages of all sessions that nobody holds, lowest numbers first, and returns
    /// how many (DEL-07).
    ///
    /// # Errors
    /// `InvalidOperation` on a queue without sessions; `ArgumentOutOfRange` over the limit of the tier
    /// (DEL-02).
    pub async fn delete_batch_unlocked(
        &self,
        path: &str,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        let entity = self.access.entity(path, Action::DeleteUnlocked).await?;
        match entity.call(Command::DeleteBatchUnlocked { count_max, enqueued_before }).await? {
            Outcome::Deleted(count) => Ok(count),
            other => {
                let detail = format!("unexpected answer {other:?}");
                Err(entity.refuse(Rejection::internal(detail)))
            }
        }
    }
}

/// The answer of an authorizer that need not be waited for.
fn at_once<T>(
    asked: impl Future<Output = Result<T, BrokerError>>,
    broker: &Broker,
) -> Result<T, BrokerError> {
    match pin!(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => {
            let detail = "who may do this is not known yet, and has to be waited for";
            Err(broker.refuse(Rejection::server_busy(detail), ""))
        }
    }
}
