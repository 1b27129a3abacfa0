//! Management of queues, for transports and embedding programs. `access/manage.rs` calls it after
//! it has checked rights.

use std::sync::Arc;

use super::Broker;
use super::update::Update as _;
use crate::actor::namespace::{Create, NewRoot};
use crate::command::Described;
use crate::description::{EntityKind, QueueUpdate};
use crate::error::{BrokerError, Rejection};
use crate::path::{EntityAddress, EntityName, SubQueue, validate_entity_path};
use crate::time::Timestamp;

impl Broker {
    /// Creates a queue. Properties that are not named have their defaults (ENT-03). Returns when
    /// the queue is durable and accepts messages.
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`;
    /// `EntityNotFound` for a missing destination (FWD-02), `InvalidOperation` for an impossible
    /// one (FWD-03, FWD-04).
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
        let root = NewRoot::Queue(description);
        let created = self.ask_namespace((1, 0), |answer| Create { root, answer }).await;
        self.describe_in::<QueueUpdate>(&created.map_err(refuse)?, path).await
    }

    /// Returns the description of a queue with its runtime part (ENT-31).
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue, which cannot be managed (DLQ-02).
    pub async fn describe_queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.describe::<QueueUpdate>(path).await
    }

    /// Replaces the named properties (ENT-17). With `read_at`, only if the description was last
    /// changed at that instant.
    ///
    /// # Errors
    /// As for [`Broker::create_queue`]; `EntityNotFound`, `UpdateConflict`.
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        self.update(&self.full_access(), path, properties, read_at).await
    }

    /// Returns the paths of queues in case-insensitive order: up to `top` after the first `skip`
    /// (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.paths_of(EntityKind::Queue, "", skip, top)
    }

    /// Returns the name of a queue or topic that is created at this path.
    pub(super) fn name_of_new(&self, path: &str) -> Result<EntityName, Rejection> {
        if EntityAddress::parse(path).is_ok_and(|address| address.sub_queue != SubQueue::Main) {
            let detail = format!("`{path}` is a sub-queue; it exists with its parent");
            return Err(Rejection::invalid_operation(detail));
        }
        validate_entity_path(path, &self.shared.settings.limits)
    }
}
