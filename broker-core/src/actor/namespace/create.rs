//! Creation: a path is taken, its records are written, and then the entity is opened.

use actix::{Addr, AsyncContext, Handler, Message};

use super::records::{NAMESPACE_SPACE, TABLE_IDS, TABLE_SECRETS, entity_key};
use super::{Answer, NamespaceActor, State, refuse};
use crate::description::QueueDescription;
use crate::entity::queue::Queue;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::store::{Batch, Key, StoreError};

/// Ids are taken from the store in blocks, so that creating an entity writes no counter of its own.
const ID_BLOCK: u64 = 1_000;

/// Creates a queue.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CreateQueue {
    /// Validated before.
    pub description: QueueDescription,
    /// Answered when it is durable and open.
    pub answer: Answer<()>,
}

/// A block of ids is durable, or not.
#[derive(Message)]
#[rtype(result = "()")]
struct IdBlockTaken {
    limit: u64,
    result: Result<(), StoreError>,
}

impl NamespaceActor {
    /// Takes a block of ids from the store; what waits for one is created when it is durable, so that
    /// no id is ever given twice (DESIGN D4). The key of the message id hashes goes with it.
    fn take_id_block(&mut self, itself: Addr<Self>) {
        let limit = self.id_limit + ID_BLOCK;
        let mut batch = Batch::default();
        let space = Key::of_space(NAMESPACE_SPACE);
        batch.put(&space.then(&[TABLE_IDS]), |value| {
            value.extend_from_slice(&limit.to_be_bytes());
        });
        batch.put(&space.then(&[TABLE_SECRETS]), |value| {
            value.extend_from_slice(&self.duplicate_key);
        });
        batch.require_sync();
        if let Some(writer) = self.writers.first() {
            let done = move |result| itself.do_send(IdBlockTaken { limit, result });
            writer.submit(batch, Box::new(done));
        }
    }

    fn create(&mut self, mail: CreateQueue, itself: Addr<Self>) {
        let CreateQueue { description, answer } = mail;
        if self.stopping {
            refuse(Some(answer), Rejection::cancelled("the broker is stopping"));
            return;
        }
        let key = PathKey::fold(&description.path);
        if self.paths.contains_key(&key) {
            refuse(Some(answer), Rejection::entity_already_exists(&description.path));
            return;
        }
        let count_max = self.shared.settings.limits.entity_count_max;
        if self.entities.len() >= count_max {
            let name = &self.shared.settings.name;
            refuse(Some(answer), Rejection::too_many("queues and topics", name, count_max));
            return;
        }
        if self.next_id == self.id_limit {
            self.waiting.push(CreateQueue { description, answer });
            if self.waiting.len() == 1 {
                self.take_id_block(itself);
            }
            return;
        }
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let mut batch = Batch::default();
        let queue = Queue::new(id, description.clone(), self.config(), self.shared.clock.now());
        batch.put(&entity_key(id), |value| value.extend_from_slice(description.path.as_bytes()));
        queue.write_creation(&mut batch);
        self.enter(id, &description.path, State::Creating);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.description = Some(description);
            entity.answer = Some(answer);
        }
        self.write(id, batch, itself);
    }
}

impl Handler<CreateQueue> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: CreateQueue, context: &mut Self::Context) {
        self.create(mail, context.address());
    }
}

impl Handler<IdBlockTaken> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: IdBlockTaken, context: &mut Self::Context) {
        let IdBlockTaken { limit, result } = mail;
        let waiting = std::mem::take(&mut self.waiting);
        // Whether or not it landed, the next block begins behind it.
        self.next_id = self.id_limit;
        self.id_limit = limit;
        if let Err(error) = result {
            tracing::error!(%error, "no ids could be taken for new entities");
            self.next_id = limit;
            if let Some(Err(error)) = self.writers.first().map(|writer| writer.recover()) {
                self.shared.health.fail(&error.to_string());
            }
            for mail in waiting {
                refuse(Some(mail.answer), Rejection::internal("the store failed"));
            }
            return;
        }
        for mail in waiting {
            self.create(mail, context.address());
        }
    }
}
