//! Lists of entities, which contain only entities that their reader may read (ENT-30, CON-73).
//!
//! The authorizer gets at most two questions for a list: one for the namespace or topic that
//! contains the entities and, if that right does not suffice, one for all their paths together. A
//! list of paths needs nothing from the entities. For a page of descriptions, the entities of the
//! page are asked one after the other, until the page has its maximum bytes.

use std::sync::Arc;

use super::{Access, question};
use crate::broker::{Broker, Update};
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::grant::Entitlement;
use crate::path::PathKey;

/// Maximum bytes of descriptions in one page, unless the first one exceeds it.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// Approximate bytes of a description as written for clients, without its texts.
const DESCRIPTION_BYTES: u64 = 1_024;

/// Entities of a kind that a principal may read.
pub(super) struct EntityListing {
    kind: EntityKind,
    readable: ReadableEntities,
}

/// The entities that may be read.
enum ReadableEntities {
    /// All entities whose keys start with this prefix.
    All(Box<str>),
    /// These entities, in their order, if they still exist.
    These(Vec<Arc<str>>),
}

impl EntityListing {
    /// Returns an empty listing, for requests that list nothing.
    pub(super) const fn empty() -> Self {
        Self { kind: EntityKind::Queue, readable: ReadableEntities::These(Vec::new()) }
    }

    /// Returns the paths of up to `top` existing entities after the first `skip`.
    pub(super) fn paths(&self, broker: &Broker, skip: usize, top: usize) -> Vec<Arc<str>> {
        match &self.readable {
            ReadableEntities::All(prefix) => broker.paths_of(self.kind, prefix, skip, top),
            ReadableEntities::These(paths) => {
                let there = paths.iter().filter(|path| is_there(broker, path));
                there.skip(skip).take(top).cloned().collect()
            }
        }
    }

    /// Returns a page of descriptions and counts: of up to `top` entities after `skip`, and fewer
    /// if they exceed [`PAGE_BYTES_MAX`]. A page is empty only after the last entity.
    pub(super) async fn page<U: Update>(
        &self,
        broker: &Broker,
        skip: usize,
        top: usize,
    ) -> Result<Vec<U::Described>, BrokerError> {
        let mut page = Vec::new();
        let mut bytes = 0;
        // Number of entities that are still listed while they are being deleted.
        let mut passed = 0;
        loop {
            let skip = skip.saturating_add(page.len() + passed);
            let paths = self.paths(broker, skip, top - page.len());
            let mut is_whole = true;
            for path in paths {
                match broker.describe::<U>(&path).await {
                    Ok(described) => {
                        let described_bytes = path.len() as u64 + weight::<U>(&described);
                        if !page.is_empty() && bytes + described_bytes > PAGE_BYTES_MAX {
                            return Ok(page);
                        }
                        bytes += described_bytes;
                        page.push(described);
                    }
                    Err(error) if error.condition() == Condition::EntityNotFound => {
                        passed += usize::from(is_there(broker, &path));
                        is_whole = false;
                    }
                    Err(error) => return Err(error),
                }
            }
            if is_whole {
                return Ok(page);
            }
            // Fills the places of entities that were deleted meanwhile: a short page must mean that
            // its bytes are used up or that it is the last.
        }
    }
}

fn is_there(broker: &Broker, path: &str) -> bool {
    broker.shared.directory.get(&PathKey::fold(path)).is_some()
}

fn weight<U: Update>(described: &U::Described) -> u64 {
    DESCRIPTION_BYTES + U::text_bytes(U::current(described).0)
}

impl Access {
    /// Returns the subscriptions of a topic that may be read.
    pub(super) async fn subscription_listing(
        &self,
        topic: &str,
    ) -> Result<EntityListing, BrokerError> {
        let resource = super::canonical(topic);
        // The lookup does not affect the refusal, which is the same whether the topic exists or
        // not.
        self.broker.wait_for_creation(&resource).await;
        match self.broker.subscription_prefix(&resource) {
            Ok(prefix) => {
                self.listing_of(EntityKind::Subscription, prefix.as_str(), &resource).await
            }
            Err(absent) => {
                if let Some(check) = &self.check {
                    let entitlement = self.entitlement_for(check, &resource).await;
                    let checked = entitlement
                        .and_then(|entitlement| self.covers_all(&entitlement, Action::Describe));
                    checked.map_err(|rejection| self.broker.refuse(rejection, &resource))?;
                }
                Err(absent)
            }
        }
    }

    /// Returns the queues or topics of the namespace that may be read.
    pub(super) async fn listing(&self, kind: EntityKind) -> Result<EntityListing, BrokerError> {
        self.listing_of(kind, "", "").await
    }

    /// Returns the entities of a kind that may be read. `container` is the namespace or a topic. A
    /// right on the container covers everything in it (SEC-12), so the authorizer then gets no
    /// further question.
    async fn listing_of(
        &self,
        kind: EntityKind,
        prefix: &str,
        container: &str,
    ) -> Result<EntityListing, BrokerError> {
        let paths = || self.broker.paths_of(kind, prefix, 0, usize::MAX);
        let readable = match self.granted_paths(container, Action::Describe, paths).await? {
            None => ReadableEntities::All(prefix.into()),
            Some(paths) => ReadableEntities::These(paths),
        };
        Ok(EntityListing { kind, readable })
    }

    /// Returns the paths in a container on which an action is granted; `None` if it is granted on
    /// the container, so that it covers all. The authorizer gets at most one question for the
    /// container and one for all paths.
    pub(super) async fn granted_paths(
        &self,
        container: &str,
        action: Action,
        paths: impl FnOnce() -> Vec<Arc<str>>,
    ) -> Result<Option<Vec<Arc<str>>>, BrokerError> {
        let Some(check) = &self.check else { return Ok(None) };
        let entitlement = self.entitlement_for(check, container).await;
        let entitlement =
            entitlement.map_err(|rejection| self.broker.refuse(rejection, container))?;
        let Err(refusal) = self.covers_all(&entitlement, action) else { return Ok(None) };
        let mut paths = paths();
        let now = || self.broker.now();
        let principal = Arc::clone(&check.lock().principal);
        let grants = question::ask_all(&self.broker, &principal, &paths).await;
        let mut granted = grants.iter().map(|grant| {
            check.actions(grant, now()).contains(action)
                && grant.until.is_none_or(|until| now() < until)
        });
        paths.retain(|_| granted.next().unwrap_or(false));
        if paths.is_empty() {
            return Err(self.broker.refuse(refusal, container));
        }
        paths.shrink_to_fit();
        Ok(Some(paths))
    }

    /// Refuses a grant that does not cover an action on everything in a container.
    fn covers_all(&self, entitlement: &Entitlement, action: Action) -> Result<(), Rejection> {
        let may = |action| entitlement.check(action, || self.broker.now());
        may(action).or_else(|refusal| match action {
            Action::Describe => may(Action::List),
            _ => Err(refusal),
        })
    }
}
