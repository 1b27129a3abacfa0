//! Queues, as transports and embedding code manage them.

use std::sync::Arc;

use super::Broker;
use crate::access::Access;
use crate::actor::namespace::{Create, Root};
use crate::command::{Command, Described, Outcome};
use crate::description::{EntityKind, QueueUpdate};
use crate::error::{BrokerError, Rejection};
use crate::path::{EntityAddress, SubQueue, validate_entity_path};
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
        if EntityAddress::parse(path).is_ok_and(|address| address.sub_queue != SubQueue::Main) {
            let detail = format!("`{path}` is a sub-queue, it is there with its parent");
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        let name = validate_entity_path(path, &self.shared.settings.limits).map_err(refuse)?;
        let description = properties.create(name.path(), &self.shared.settings).map_err(refuse)?;
        self.check_destinations([
            &description.forward_to,
            &description.forward_dead_lettered_messages_to,
        ])
        .map_err(refuse)?;
        let root = Root::Queue(description);
        self.ask_namespace(1, |answer| Create { root, answer }).await.map_err(refuse)?;
        self.describe_queue(path).await
    }

    /// Reads a queue's description and runtime part (ENT-31).
    ///
    /// # Errors
    /// `EntityNotFound`; `InvalidOperation` for a sub-queue, which cannot be managed (DLQ-02).
    pub async fn describe_queue(&self, path: &str) -> Result<Described, BrokerError> {
        let entity = self.manageable(path, EntityKind::Queue)?;
        match entity.manage(Command::Describe).await? {
            Outcome::Described(described) => Ok(*described),
            _ => Err(self.refuse(Rejection::internal("unexpected answer"), path)),
        }
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
        self.update_queue_by(&self.full_access(), path, properties, read_at).await
    }

    /// The same for who may forward to the destinations that it gets (FWD-05).
    pub(crate) async fn update_queue_by(
        &self,
        access: &Access,
        path: &str,
        properties: QueueUpdate,
        read_at: Option<Timestamp>,
    ) -> Result<Described, BrokerError> {
        let entity = self.manageable(path, EntityKind::Queue)?;
        let refuse = |rejection| self.refuse(rejection, path);
        loop {
            let current = self.describe_queue(path).await?;
            let description = properties
                .clone()
                .apply_to(&current.description, &self.shared.settings.limits)
                .map_err(refuse)?;
            let before = &current.description;
            let named = [
                newly(&before.forward_to, &description.forward_to),
                newly(
                    &before.forward_dead_lettered_messages_to,
                    &description.forward_dead_lettered_messages_to,
                ),
            ];
            access.allow_forwarding_to(named).await?;
            self.check_destinations([
                &description.forward_to,
                &description.forward_dead_lettered_messages_to,
            ])
            .map_err(refuse)?;
            let command = Command::Update {
                description: Box::new(description),
                read_at: read_at.or(Some(current.updated_at)),
            };
            match entity.manage(command).await {
                Ok(_) => return self.describe_queue(path).await,
                // Somebody else was faster: without a version of the caller's, apply it to theirs.
                Err(error)
                    if read_at.is_none()
                        && error.condition() == crate::condition::Condition::UpdateConflict => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The paths of all queues in case-insensitive order, `top` of them after `skip` (ENT-30).
    #[must_use]
    pub fn queue_paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        self.paths_of(EntityKind::Queue, "", skip, top)
    }
}

/// A destination that an update names and that was not there before.
pub(super) fn newly<'a>(before: &Option<Box<str>>, after: &'a Option<Box<str>>) -> Option<&'a str> {
    after.as_deref().filter(|destination| before.as_deref() != Some(destination))
}
