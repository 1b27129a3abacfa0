//! Management of entities (files 03, 13 and 17 of the specification).

mod topics;

use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Described, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityKind, QueueUpdate};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;

/// Creates, reads, changes and deletes queues, topics, subscriptions and rules.
#[derive(Clone)]
pub struct Admin {
    broker: Broker,
}

impl Admin {
    pub(crate) const fn new(broker: Broker) -> Self {
        Self { broker }
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
        self.broker.create_queue(path, properties).await
    }

    /// Reads a queue's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.broker.describe_queue(path).await
    }

    /// Whether there is a queue at a path.
    ///
    /// # Errors
    /// `ArgumentError` for a path that cannot be one, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue_exists(&self, path: &str) -> Result<bool, BrokerError> {
        match self.broker.describe_queue(path).await {
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
        self.broker.update_queue(path, properties, None).await
    }

    /// Deletes a queue with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_queue(&self, path: &str) -> Result<(), BrokerError> {
        self.broker.delete(path, EntityKind::Queue).await
    }

    /// The paths of queues in case-insensitive order (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.broker.queue_paths(skip, top)
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
        let entity = self.broker.entity(path)?;
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
        let entity = self.broker.entity(path)?;
        match entity.call(Command::DeleteBatchUnlocked { count_max, enqueued_before }).await? {
            Outcome::Deleted(count) => Ok(count),
            other => {
                let detail = format!("unexpected answer {other:?}");
                Err(entity.refuse(Rejection::internal(detail)))
            }
        }
    }
}
