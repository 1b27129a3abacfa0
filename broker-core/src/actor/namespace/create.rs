//! Creation: reserves the path, writes the records, then opens the entity. The namespace actor
//! calls it for create requests. A path has at most one creation at a time, and no entity is
//! visible before its records are stored.

use std::ops::Range;
use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::{
    AnswerTo, CreateSubscription, NamespaceActor, PendingCreation, State, records, refuse,
};
use crate::change::codec;
use crate::description::{EntityKind, QueueDescription, TopicDescription};
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::machine::queue::Queue;
use crate::machine::topic::Topic;
use crate::path::PathKey;
use crate::store::{Batch, StoreError};

/// Entity to create: a queue or a topic.
pub enum NewRoot {
    /// A queue.
    Queue(QueueDescription),
    /// A topic.
    Topic(TopicDescription),
}

/// Creates a queue or a topic.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Create {
    /// Already validated description.
    pub root: NewRoot,
    /// Answered when the entity is durable and open.
    pub answer: AnswerTo,
}

/// A refused creation and its reason.
pub(super) type RefusedCreation = (AnswerTo, Rejection);

/// Result of reserving a block of ids.
#[derive(Message)]
#[rtype(result = "()")]
struct IdBlockResult(Result<Range<u64>, StoreError>);

impl NewRoot {
    fn path(&self) -> &str {
        match self {
            Self::Queue(description) => &description.path,
            Self::Topic(description) => &description.path,
        }
    }

    const fn kind(&self) -> EntityKind {
        match self {
            Self::Queue(_) => EntityKind::Queue,
            Self::Topic(_) => EntityKind::Topic,
        }
    }
}

impl NamespaceActor {
    /// Reserves a block of ids in the store. Waiting creations continue when it is durable.
    fn take_id_block(&self, itself: Addr<Self>) {
        let ids = (self.id_limit, self.stored_id_limit);
        let (facts, duplicate_key) = (self.facts.clone(), self.duplicate_key);
        let store = Arc::clone(&self.shared.store);
        actix_rt::spawn(async move {
            let reserved = records::reserve_ids(&*store, ids, &facts, &duplicate_key).await;
            itself.do_send(IdBlockResult(reserved));
        });
    }

    /// Returns an id for a new entity if a reserved one is left.
    pub(super) const fn next_id(&mut self) -> Option<EntityId> {
        if self.next_id == self.id_limit {
            return None;
        }
        let id = EntityId(self.next_id);
        self.next_id += 1;
        Some(id)
    }

    /// Lets a creation wait for the next block of ids.
    pub(super) fn wait_for_id(&mut self, waits: PendingCreation, itself: Addr<Self>) {
        self.directory().begin_creation(&waits.key());
        self.waiting.push(waits);
        if self.waiting.len() == 1 {
            self.take_id_block(itself);
        }
    }

    fn create(&mut self, mail: Create, itself: Addr<Self>) -> Result<(), RefusedCreation> {
        let path = mail.root.path();
        if self.stopping {
            return Err((mail.answer, Rejection::cancelled("the broker is stopping")));
        }
        let key = PathKey::fold(path);
        if self.entity_in_change(&key).is_some() {
            self.park(key, mail, itself);
            return Ok(());
        }
        if self.paths.contains_key(&key) {
            let reason = Rejection::entity_already_exists(path);
            return Err((mail.answer, reason));
        }
        let count_max = self.shared.settings.limits.entity_count_max;
        if self.root_count >= count_max {
            let name = &self.shared.settings.name;
            return Err((mail.answer, Rejection::too_many("queues and topics", name, count_max)));
        }
        let bytes = match &mail.root {
            NewRoot::Queue(description) => description.text_bytes(),
            NewRoot::Topic(description) => description.text_bytes(),
        };
        let limits = &self.shared.settings.limits;
        if bytes > self.shared.census.left(limits).described_bytes {
            return Err((mail.answer, Rejection::too_many_descriptions(limits)));
        }
        let Some(id) = self.next_id() else {
            self.wait_for_id(PendingCreation::Root(mail), itself);
            return Ok(());
        };
        let Create { root, answer } = mail;
        let mut batch = Batch::default();
        let (path, kind) = (Box::<str>::from(root.path()), root.kind());
        let now = self.shared.clock.now();
        let key = match root {
            NewRoot::Queue(description) => {
                let queue = Queue::new(id, description, self.config(), now);
                queue.write_creation(&mut batch);
                codec::queue_entry_key(id)
            }
            NewRoot::Topic(description) => {
                let topic = Topic::new(id, description, self.config(), now);
                topic.write_creation(&mut batch);
                codec::topic_entry_key(id)
            }
        };
        batch.put(&key, |value| value.extend_from_slice(path.as_bytes()));
        self.enter(id, kind, &path, State::Creating);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.answer = Some(answer);
        }
        self.write(id, batch, itself);
        Ok(())
    }
}

impl Handler<Create> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: Create, context: &mut Self::Context) {
        if let Err((answer, reason)) = self.create(mail, context.address()) {
            refuse(Some(answer), reason);
        }
    }
}

impl Handler<IdBlockResult> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, IdBlockResult(reserved): IdBlockResult, context: &mut Self::Context) {
        let waiting = std::mem::take(&mut self.waiting);
        let keys: Vec<PathKey> = waiting.iter().map(PendingCreation::key).collect();
        match reserved {
            Ok(block) => {
                self.next_id = block.start;
                self.id_limit = block.end;
                self.stored_id_limit = Some(block.end);
            }
            Err(error) => {
                tracing::error!(%error, "could not reserve ids for new entities");
                let reason = match error.is_unavailable() {
                    true => {
                        Rejection::server_busy("the store is not available; wait 10 s and retry")
                    }
                    false => Rejection::internal("the store failed"),
                };
                let lost = waiting.into_iter().map(|waits| {
                    let (PendingCreation::Root(Create { answer, .. })
                    | PendingCreation::Subscription(CreateSubscription { answer, .. })) = waits;
                    (answer, reason.clone())
                });
                self.refuse_creations(keys, lost.collect());
                return;
            }
        }
        let mut refused = Vec::new();
        for waits in waiting {
            let created = match waits {
                PendingCreation::Root(mail) => self.create(mail, context.address()),
                PendingCreation::Subscription(mail) => {
                    self.create_subscription(mail, context.address())
                }
            };
            refused.extend(created.err());
        }
        self.refuse_creations(keys, refused);
    }
}

impl NamespaceActor {
    /// Ends the waits at paths without a creation in progress, then answers the refused creations:
    /// their clients may look the entity up at once, without waiting (ENT-32).
    fn refuse_creations(&mut self, keys: Vec<PathKey>, refused: Vec<RefusedCreation>) {
        for key in keys {
            if self.entity_in_change(&key).is_none() {
                self.continue_parked(&key);
            }
        }
        for (answer, reason) in refused {
            refuse(Some(answer), reason);
        }
    }
}

impl PendingCreation {
    /// Path to create.
    fn key(&self) -> PathKey {
        match self {
            Self::Root(mail) => PathKey::fold(mail.root.path()),
            Self::Subscription(mail) => PathKey::fold(&mail.description.path()),
        }
    }
}
