//! Lists hold what their reader may read (ENT-30, CON-73). Who that is, is one question to the authorizer; no
//! entity is asked anything for it, whatever their number. Those of a page of descriptions are asked for theirs.

use std::sync::Arc;

use super::entitlement::Entitlement;
use super::{Access, question};
use crate::broker::Update;
use crate::command::{Described, DescribedSubscription, DescribedTopic};
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::{BrokerError, Rejection};
use crate::permits::{Large, Turn};

/// What is listed or explained, for who may read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of<'a> {
    /// Queues and topics, or the subscriptions of the topic at this path; empty for the namespace.
    Entities(&'a str),
    /// The rules of the subscription at this path.
    Rules(&'a str),
    /// Whatever is named in a declaration.
    Declared,
}

impl Access {
    /// Waits for a turn at something that may be large when it is made, to be kept until there is room for it. Who
    /// may not read it is refused before: a refusal may wait, and has no turn meanwhile (SEC-26).
    ///
    /// # Errors
    /// `Unauthorized`; `ServerBusy` if many wait.
    pub async fn turn(&self, large: Large, of: Of<'_>) -> Result<Turn, BrokerError> {
        let path = match of {
            Of::Entities(path) | Of::Rules(path) => path,
            Of::Declared => "",
        };
        match (of, &self.door) {
            (_, None) => {}
            (Of::Rules(path), Some(_)) => drop(self.allow(Action::ReadRules, path).await?),
            (Of::Entities(_) | Of::Declared, Some(door)) => {
                let resource = super::canonical(path);
                let held = self.held(door, &resource).await;
                held.map_err(|rejection| self.broker.refuse(rejection, &resource))?;
            }
        }
        let peer = self.principal().and_then(|principal| principal.peer);
        let turn = self.broker.shared.turns.take(large, peer).await;
        turn.map_err(|rejection| self.broker.refuse(rejection, path))
    }

    /// Makes what it is the turn of, as long as others may be let wait for that: not while an entity is busy for long.
    ///
    /// # Errors
    /// `ServerBusy` if it takes too long; as what is made.
    pub async fn make<T>(
        &self,
        large: Large,
        making: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let made = self.broker.shared.turns.make(large, making).await;
        made.map_err(|rejection| self.broker.refuse(rejection, ""))?
    }

    /// The paths of queues in case-insensitive order, `top` of them after `skip` (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized` for who may read none.
    pub async fn queue_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        self.readable(EntityKind::Queue, "", "", (skip, top)).await
    }

    /// The paths of topics; as [`Access::queue_paths`].
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topic_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        self.readable(EntityKind::Topic, "", "", (skip, top)).await
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
        let resource = super::canonical(topic);
        // Looked up behind the refusal: it is the same whether there is such a topic or not.
        let prefix = self.broker.subscription_prefix(&resource);
        let paths = match &prefix {
            Ok(prefix) => {
                let kind = EntityKind::Subscription;
                self.readable(kind, prefix.as_str(), &resource, (skip, top)).await?
            }
            Err(_) => {
                if let Some(door) = &self.door {
                    let held = self.held(door, &resource).await;
                    let checked = held.and_then(|held| self.reads_all(&held));
                    checked.map_err(|rejection| self.broker.refuse(rejection, &resource))?;
                }
                Vec::new()
            }
        };
        prefix?;
        Ok(paths)
    }

    /// Queues with descriptions and counts; as [`Access::queue_paths`].
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queues(&self, skip: usize, top: usize) -> Result<Vec<Described>, BrokerError> {
        self.described::<QueueUpdate>(self.queue_paths(skip, top).await?).await
    }

    /// Topics with descriptions and counts; as [`Access::queue_paths`].
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn topics(
        &self,
        skip: usize,
        top: usize,
    ) -> Result<Vec<DescribedTopic>, BrokerError> {
        self.described::<TopicUpdate>(self.topic_paths(skip, top).await?).await
    }

    /// The subscriptions of a topic with descriptions and counts; as [`Access::subscription_paths`].
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`.
    pub async fn subscriptions(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Result<Vec<DescribedSubscription>, BrokerError> {
        self.described::<SubscriptionUpdate>(self.subscription_paths(topic, skip, top).await?).await
    }

    /// Descriptions and counts, of those that were not deleted meanwhile.
    async fn described<U: Update>(
        &self,
        paths: Vec<Arc<str>>,
    ) -> Result<Vec<U::Described>, BrokerError> {
        let mut found = Vec::with_capacity(paths.len());
        for path in paths {
            match self.broker.describe::<U>(&path).await {
                Ok(described) => found.push(described),
                Err(error) if error.condition() == Condition::EntityNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// What of a kind may be read, in order, a page of it. `container` is the namespace or a topic: the right
    /// there covers what is in it (SEC-12), so that nothing but the page is looked at.
    async fn readable(
        &self,
        kind: EntityKind,
        prefix: &str,
        container: &str,
        (skip, top): (usize, usize),
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        let Some(door) = &self.door else {
            return Ok(self.broker.paths_of(kind, prefix, skip, top));
        };
        let held = self.held(door, container).await;
        let held = held.map_err(|rejection| self.broker.refuse(rejection, container))?;
        let Err(refusal) = self.reads_all(&held) else {
            return Ok(self.broker.paths_of(kind, prefix, skip, top));
        };
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
        Ok(paths.into_iter().skip(skip).take(top).collect())
    }

    /// Refuses who may not read all that is in a container.
    fn reads_all(&self, held: &Entitlement) -> Result<(), Rejection> {
        let may = |action| held.check(action, || self.broker.now());
        may(Action::Describe).or_else(|_| may(Action::List))
    }
}
