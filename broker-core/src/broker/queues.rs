//! Queues, as transports and embedding code manage them.

use std::sync::Arc;

use super::Broker;
use super::update::Update as _;
use crate::actor::namespace::{Create, Root};
use crate::command::Described;
use crate::description::{EntityKind, QueueUpdate};
use crate::error::{BrokerError, Rejection};
use crate::path::{EntityAddress, EntityName, SubQueue, validate_entity_path};
use crate::time::Timestamp;

impl Broker {
    /// Creates a queue with the properties named, the others at their defaults (ENT-03). Answers
    /// when it is durable and takes messages.
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`,
    /// `EntityNotFound` for a destination that does not exist (FWD-02), `InvalidOperation` for one that
    /// cannot be (FWD-03, FWD-04).
    pub async fn create_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        let refuse = |rejection| self.refuse(rejection, path);
        let name = self.name_of_new(path).map_err(refuse)?;
        let description = properties.create(name.path(), &self.shared.settings).map_err(refuse)?;
        let destinations = QueueUpdate::destinations(&description);
        self.check_destinations(destinations).await.map_err(refuse)?;
        let root = Root::Queue(description);
        let created = self.ask_namespace((1, 0), |answer| Create { root, answer }).await;
        self.describe_in::<QueueUpdate>(&created.map_err(refuse)?, path).await
    }

    /// Reads a queue's description and runtime part (ENT-31).
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue, which cannot be managed (DLQ-02).
    pub async fn describe_queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.describe::<QueueUpdate>(path).await
    }

    /// Replaces the properties named (ENT-17). With `read_at`, only if the description is still of
    /// that instant.
    ///
    /// # Errors
    /// As for [`Broker::create_queue`], and `EntityNotFound`, `UpdateConflict`.
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        self.update(&self.full_access(), path, properties, read_at).await
    }

    /// The paths of all queues in case-insensitive order, `top` of them after `skip` (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.paths_of(EntityKind::Queue, "", skip, top)
    }

    /// The name that a queue or topic gets which is created at this path.
    pub(super) fn name_of_new(&self, path: &str) -> Result<EntityName, Rejection> {
        if EntityAddress::parse(path).is_ok_and(|address| address.sub_queue != SubQueue::Main) {
            let detail = format!("`{path}` is a sub-queue; it exists with its parent");
            return Err(Rejection::invalid_operation(detail));
        }
        validate_entity_path(path, &self.shared.settings.limits)
    }
}
