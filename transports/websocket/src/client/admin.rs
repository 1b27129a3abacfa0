//! Management of queues (files 03 and 17 of the specification); `topics` has the rest.

use std::sync::Arc;

use peeklock_core::command::Described;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;

use super::core::Lifeline;
use crate::frame::queue::{Cleared, QueueProperties};
use crate::frame::session::DeleteUnlocked;
use crate::frame::text::Instant;
use crate::frame::{
    CreateQueue, DeleteDeferred, ListQueues, Notice, Operation, PathOnly, Role, UpdateQueue,
};

/// Creates, reads, changes and deletes queues, topics, subscriptions and rules.
#[derive(Clone)]
pub struct Admin {
    core: Arc<Lifeline>,
}

impl Admin {
    pub(super) const fn new(core: Arc<Lifeline>) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Lifeline {
        &self.core
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
        let properties = QueueProperties::from(&properties);
        let create = CreateQueue { path: path.to_owned(), properties };
        self.queue_of(path, Operation::CreateQueue(create)).await
    }

    /// Reads a queue's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue(&self, path: &str) -> Result<Described, BrokerError> {
        let get = Operation::GetQueue(PathOnly { path: path.to_owned() });
        self.queue_of(path, get).await
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
        self.update(path, &properties, None).await
    }

    /// As [`Admin::update_queue`], if the description is still of that instant.
    ///
    /// # Errors
    /// As for [`Admin::update_queue`], and `UpdateConflict`.
    pub async fn update_queue_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Result<Described, BrokerError> {
        self.update(path, &properties, Some(read_at)).await
    }

    /// Changes the properties named and keeps all others; `cleared` says which of those that can be
    /// without a value lose it.
    ///
    /// # Errors
    /// As for [`Admin::update_queue`].
    pub async fn change_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        cleared: Cleared,
    ) -> Result<Described, BrokerError> {
        let properties = QueueProperties::from(&properties).clearing(cleared);
        let update = UpdateQueue { path: path.to_owned(), properties, version: None };
        self.queue_of(path, Operation::UpdateQueue(update)).await
    }

    async fn update(
        &self,
        path: &str,
        properties: &QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        let properties = QueueProperties::from(properties).replacing();
        let version = read_at.map(Instant);
        let update = UpdateQueue { path: path.to_owned(), properties, version };
        self.queue_of(path, Operation::UpdateQueue(update)).await
    }

    /// Deletes a queue with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_queue(&self, path: &str) -> Result<(), BrokerError> {
        let delete = Operation::DeleteQueue(PathOnly { path: path.to_owned() });
        self.core.call(None, path, delete).await.map(|_| ())
    }

    /// The paths of queues in case-insensitive order (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queue_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let list = ListQueues { skip: narrow(skip), top: Some(narrow(top)) };
        match self.core.call(None, "", Operation::ListQueues(list)).await? {
            Notice::Queues(list) => {
                Ok(list.queues.into_iter().map(|queue| queue.path.into()).collect())
            }
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), "")),
        }
    }

    /// Queues in case-insensitive order of their paths, with counts and instants; a page has at most as
    /// many as the broker's limit (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queues(&self, skip: usize) -> Result<Vec<Described>, BrokerError> {
        let list = ListQueues { skip: u32::try_from(skip).unwrap_or(u32::MAX), top: None };
        match self.core.call(None, "", Operation::ListQueues(list)).await? {
            Notice::Queues(list) => Ok(list.queues.into_iter().map(Described::from).collect()),
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), "")),
        }
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
        let mode = peeklock_core::command::ReceiveMode::PeekLock;
        let link = self.core.attach(path, Role::Receiver, mode)?;
        let delete = DeleteDeferred { link: link.number, sequence_number: sequence.0 };
        link.call(Operation::DeleteDeferred(delete)).await?;
        link.detach().await
    }

    /// Removes available messages of all sessions that nobody holds, lowest numbers first, and returns
    /// how many (DEL-07). Without a count, as many as the broker allows in one call.
    ///
    /// # Errors
    /// `InvalidOperation` on a queue without sessions; `ArgumentOutOfRange` over the limit of the tier
    /// (DEL-02).
    pub async fn delete_batch_unlocked(
        &self,
        path: &str,
        count_max: Option<u32>,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        let delete = DeleteUnlocked {
            path: path.to_owned(),
            max_count: count_max,
            enqueued_before_utc: enqueued_before.map(Instant),
        };
        match self.core.call(None, path, Operation::DeleteUnlocked(delete)).await? {
            Notice::Deleted(deleted) => Ok(deleted.count),
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), path)),
        }
    }

    async fn queue_of(&self, path: &str, operation: Operation) -> Result<Described, BrokerError> {
        match self.core.call(None, path, operation).await? {
            Notice::Queue(view) => Ok(Described::from(*view)),
            _ => Err(self.core.refuse(Rejection::internal("unexpected answer"), path)),
        }
    }
}
