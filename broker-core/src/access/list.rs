//! Lists hold what their reader may read (ENT-30, CON-73). Who that is, is one question to the authorizer; no
//! entity is asked anything for it, whatever their number. Those of a page of descriptions are asked for theirs, until the
//! page has its bytes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Access, question};
use crate::broker::{Broker, Update};
use crate::command::{Described, DescribedSubscription, DescribedTopic};
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::{BrokerError, Rejection};
use crate::grant::Entitlement;
use crate::path::PathKey;

/// Descriptions of one page take no more bytes than this, unless the first alone does.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// What a description says whatever its texts are, about as it is written for clients.
const DESCRIPTION_BYTES: u64 = 1_024;

/// What of one kind of entity somebody may read, as it was judged.
pub struct Listing<U> {
    broker: Broker,
    what: Readable,
    kind: PhantomData<fn() -> U>,
}

/// Which entities may be read.
enum Readable {
    /// All whose keys begin so.
    All(Box<str>),
    /// These, in their order, as long as they are there.
    These(Vec<Arc<str>>),
}

impl<U: Update> Listing<U> {
    /// The paths of those that are there, `top` of them after `skip`.
    fn paths(&self, skip: usize, top: usize) -> Vec<Arc<str>> {
        match &self.what {
            Readable::All(prefix) => self.broker.paths_of(U::KIND, prefix, skip, top),
            Readable::These(paths) => {
                let there = paths.iter().filter(|path| self.is_there(path));
                there.skip(skip).take(top).cloned().collect()
            }
        }
    }

    fn is_there(&self, path: &str) -> bool {
        self.broker.shared.directory.get(&PathKey::fold(path)).is_some()
    }

    /// A page of descriptions and counts: of `top` entities after `skip`, of fewer where those are more than a page takes
    /// ([`PAGE_BYTES_MAX`]), of none only behind the last.
    pub(super) async fn page(
        &self,
        skip: usize,
        top: usize,
    ) -> Result<Vec<U::Described>, BrokerError> {
        let mut page = Vec::new();
        let mut bytes = 0;
        // What is listed still while it is being deleted.
        let mut passed = 0;
        loop {
            let skip = skip.saturating_add(page.len() + passed);
            let paths = self.paths(skip, top - page.len());
            let mut is_whole = true;
            for path in paths {
                match self.broker.describe::<U>(&path).await {
                    Ok(described) => {
                        let described_bytes = path.len() as u64 + weight::<U>(&described);
                        if !page.is_empty() && bytes + described_bytes > PAGE_BYTES_MAX {
                            return Ok(page);
                        }
                        bytes += described_bytes;
                        page.push(described);
                    }
                    Err(error) if error.condition() == Condition::EntityNotFound => {
                        passed += usize::from(self.is_there(&path));
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

fn weight<U: Update>(described: &U::Described) -> u64 {
    DESCRIPTION_BYTES + U::text_bytes(U::current(described).0)
}

impl<U: Update> fmt::Debug for Listing<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("kind", &U::KIND).finish_non_exhaustive()
    }
}

impl Access {
    /// The paths of queues in case-insensitive order, `top` of them after `skip` (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized` for who may read none.
    pub async fn queue_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        Ok(self.listing::<QueueUpdate>("").await?.paths(skip, top))
    }

    /// The paths of topics; as [`Access::queue_paths`].
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topic_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        Ok(self.listing::<TopicUpdate>("").await?.paths(skip, top))
    }

    /// The paths of a topic's subscriptions; as [`Access::queue_paths`].
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` without the topic.
    pub async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        Ok(self.subscription_listing(topic).await?.paths(skip, top))
    }

    /// Queues with descriptions and counts; as [`Access::queue_paths`]. A page is of at most 1 MiB, with fewer than `top`
    /// where they are larger, and with none only behind the last.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queues(&self, skip: usize, top: usize) -> Result<Vec<Described>, BrokerError> {
        self.listing::<QueueUpdate>("").await?.page(skip, top).await
    }

    /// Topics with descriptions and counts; as [`Access::queues`].
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topics(
        &self,
        skip: usize,
        top: usize,
    ) -> Result<Vec<DescribedTopic>, BrokerError> {
        self.listing::<TopicUpdate>("").await?.page(skip, top).await
    }

    /// The subscriptions of a topic with descriptions and counts; as [`Access::queues`].
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`.
    pub async fn subscriptions(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<DescribedSubscription>, BrokerError> {
        self.subscription_listing(topic).await?.page(skip, top).await
    }

    /// What may be read of a topic's subscriptions.
    pub(super) async fn subscription_listing(
        &self,
        topic: &str,
    ) -> Result<Listing<SubscriptionUpdate>, BrokerError> {
        let resource = super::canonical(topic);
        // Looked up behind the refusal: it is the same whether there is such a topic or not.
        self.broker.formed(&resource).await;
        match self.broker.subscription_prefix(&resource) {
            Ok(prefix) => self.listing_of(prefix.as_str(), &resource).await,
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

    /// What may be read of the queues or topics of the namespace.
    pub(super) async fn listing<U: Update>(
        &self,
        container: &str,
    ) -> Result<Listing<U>, BrokerError> {
        self.listing_of("", container).await
    }

    /// What of a kind may be read. `container` is the namespace or a topic: the right there covers what is in it (SEC-12), so
    /// that nothing else is asked for.
    async fn listing_of<U: Update>(
        &self,
        prefix: &str,
        container: &str,
    ) -> Result<Listing<U>, BrokerError> {
        let of = |what| Listing { broker: self.broker.clone(), what, kind: PhantomData };
        let all = || of(Readable::All(prefix.into()));
        let Some(door) = &self.door else { return Ok(all()) };
        let held = self.held(door, container).await;
        let held = held.map_err(|rejection| self.broker.refuse(rejection, container))?;
        let Err(refusal) = self.reads_all(&held) else { return Ok(all()) };
        let mut paths = self.broker.paths_of(U::KIND, prefix, 0, usize::MAX);
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
