//! Lists hold what their reader may read (ENT-30, CON-73). Who that is, is one question to the authorizer; no
//! entity is asked anything for it, whatever their number. Those of a page of descriptions are asked for theirs, until the
//! page has its bytes.

use std::sync::Arc;

use super::{Access, question};
use crate::broker::{Broker, Update};
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::grant::Entitlement;
use crate::path::PathKey;

/// Descriptions of one page take no more bytes than this, unless the first alone does.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// What a description says whatever its texts are, about as it is written for clients.
const DESCRIPTION_BYTES: u64 = 1_024;

/// Entities of one kind that a principal may read, as it was judged.
pub(super) struct Listing {
    kind: EntityKind,
    readable: Readable,
}

/// Which entities may be read.
enum Readable {
    /// All whose keys begin so.
    All(Box<str>),
    /// These, in their order, as long as they are there.
    These(Vec<Arc<str>>),
}

impl Listing {
    /// No entities, for requests that list none.
    pub(super) const fn empty() -> Self {
        Self { kind: EntityKind::Queue, readable: Readable::These(Vec::new()) }
    }

    /// The paths of those that are there, `top` of them after `skip`.
    pub(super) fn paths(&self, broker: &Broker, skip: usize, top: usize) -> Vec<Arc<str>> {
        match &self.readable {
            Readable::All(prefix) => broker.paths_of(self.kind, prefix, skip, top),
            Readable::These(paths) => {
                let there = paths.iter().filter(|path| is_there(broker, path));
                there.skip(skip).take(top).cloned().collect()
            }
        }
    }

    /// A page of descriptions and counts: of `top` entities after `skip`, of fewer where those are more than a page takes
    /// ([`PAGE_BYTES_MAX`]), of none only behind the last.
    pub(super) async fn page<U: Update>(
        &self,
        broker: &Broker,
        skip: usize,
        top: usize,
    ) -> Result<Vec<U::Described>, BrokerError> {
        let mut page = Vec::new();
        let mut bytes = 0;
        // What is listed still while it is being deleted.
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
            // Others take the places of those that were deleted meanwhile: a short page is a full one, or the last.
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
    /// Subscriptions of a topic that may be read.
    pub(super) async fn subscription_listing(&self, topic: &str) -> Result<Listing, BrokerError> {
        let resource = super::canonical(topic);
        // Looked up behind the refusal: it is the same whether there is such a topic or not.
        self.broker.formed(&resource).await;
        match self.broker.subscription_prefix(&resource) {
            Ok(prefix) => {
                self.listing_of(EntityKind::Subscription, prefix.as_str(), &resource).await
            }
            Err(absent) => {
                if let Some(door) = &self.door {
                    let held = self.held(door, &resource).await;
                    let checked = held.and_then(|held| self.reads_all(&held));
                    checked.map_err(|rejection| self.broker.refuse(rejection, &resource))?;
                }
                Err(absent)
            }
        }
    }

    /// Queues or topics of the namespace that may be read.
    pub(super) async fn listing(&self, kind: EntityKind) -> Result<Listing, BrokerError> {
        self.listing_of(kind, "", "").await
    }

    /// Entities of a kind that may be read. `container` is the namespace or a topic: the right there covers what is in it
    /// (SEC-12), so that nothing else is asked for.
    async fn listing_of(
        &self,
        kind: EntityKind,
        prefix: &str,
        container: &str,
    ) -> Result<Listing, BrokerError> {
        let of = |readable| Listing { kind, readable };
        let all = || of(Readable::All(prefix.into()));
        let Some(door) = &self.door else { return Ok(all()) };
        let held = self.held(door, container).await;
        let held = held.map_err(|rejection| self.broker.refuse(rejection, container))?;
        let Err(refusal) = self.reads_all(&held) else { return Ok(all()) };
        let mut paths = self.broker.paths_of(kind, prefix, 0, usize::MAX);
        let now = || self.broker.now();
        let principal = Arc::clone(&door.lock().principal);
        let grants = question::ask_all(&self.broker, &principal, &paths).await;
        let mut granted = grants.iter().map(|grant| {
            door.actions(grant).contains(Action::Describe)
                && grant.until.is_none_or(|until| now() < until)
        });
        paths.retain(|_| granted.next().unwrap_or(false));
        if paths.is_empty() {
            return Err(self.broker.refuse(refusal, container));
        }
        paths.shrink_to_fit();
        Ok(of(Readable::These(paths)))
    }

    /// Refuses who may not read all that is in a container.
    fn reads_all(&self, held: &Entitlement) -> Result<(), Rejection> {
        let may = |action| held.check(action, || self.broker.now());
        may(Action::Describe).or_else(|_| may(Action::List))
    }
}
