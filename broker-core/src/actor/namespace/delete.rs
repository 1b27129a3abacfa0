//! Deletion: the actor is retired, and when nothing of it is on its way its records are removed.

use actix::{Addr, AsyncContext, Handler, Message};

use super::{Answer, NamespaceActor, State, refuse};
use crate::actor::entity::{Retire, RetireWhen};
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;

/// Deletes an entity.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeleteEntity {
    /// Its path.
    pub key: PathKey,
    /// Answered when it is durably gone.
    pub answer: Answer<()>,
}

/// An entity has been idle for its AutoDeleteOnIdle.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actor) struct IdleElapsed(pub(in crate::actor) EntityId);

/// What the actor of an entity was doing is durable; its records can be deleted.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Retired(pub(super) EntityId);

impl NamespaceActor {
    /// Retires an open entity, to delete it when nothing of it is on its way.
    fn delete(&mut self, id: EntityId, answer: Option<Answer<()>>, itself: Addr<Self>) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        let reason = Rejection::entity_not_found(&entity.path);
        match (entity.state, &entity.actor) {
            (State::Open, Some(actor)) => {
                entity.state = State::Retiring;
                entity.answer = answer;
                self.shared.directory.remove(&entity.key);
                let done = Box::new(move || itself.do_send(Retired(id)));
                actor.do_send(Retire { when: RetireWhen::Now, reason, done });
            }
            (State::Closed, _) => {
                entity.state = State::Retiring;
                entity.answer = answer;
                self.shared.directory.remove(&entity.key);
                itself.do_send(Retired(id));
            }
            (State::Creating | State::Opening | State::Open, _) => {
                refuse(answer, Rejection::update_conflict(&entity.path));
            }
            (State::Retiring | State::Deleting | State::Undoing, _) => refuse(answer, reason),
        }
    }
}

impl Handler<DeleteEntity> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: DeleteEntity, context: &mut Self::Context) {
        match self.paths.get(&mail.key).copied() {
            Some(id) => self.delete(id, Some(mail.answer), context.address()),
            None => refuse(Some(mail.answer), Rejection::entity_not_found(mail.key.as_str())),
        }
    }
}

impl Handler<IdleElapsed> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, IdleElapsed(id): IdleElapsed, context: &mut Self::Context) {
        let open = self.entities.get(&id).filter(|entity| entity.state == State::Open);
        if let Some((entity, actor)) =
            open.and_then(|entity| Some((entity, entity.actor.as_ref()?)))
        {
            // The actor looks again: it may have been used since it said so.
            let itself = context.address();
            let done = Box::new(move || itself.do_send(Retired(id)));
            let reason = Rejection::entity_not_found(&entity.path);
            actor.do_send(Retire { when: RetireWhen::Idle, reason, done });
        }
    }
}

impl Handler<Retired> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Retired(id): Retired, context: &mut Self::Context) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        entity.actor = None;
        let key = entity.key.clone();
        // A deletion that was asked for before the stop is still carried out.
        if self.stopping && entity.state != State::Retiring {
            self.end_if_retired();
            return;
        }
        entity.state = State::Deleting;
        self.directory().remove(&key);
        // A failure while it was retired has left the shard to be taken over.
        self.recover_writer(id);
        self.settle(id, context.address());
        if self.stopping {
            self.end_if_retired();
        }
    }
}
