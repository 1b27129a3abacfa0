//! Deletion: retires the actor, then removes the records when nothing of the entity is on its way.
//! The namespace actor calls it for delete requests and idle entities.

use actix::{Addr, AsyncContext, Handler, Message};

use super::recovery::AfterRecovery;
use super::transfer_end::AfterTransfers;
use super::{AnswerTo, NamespaceActor, NamespaceEntity, State, refuse};
use crate::actor::messages::{IdleElapsed, Retire, RetireWhen};
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;

/// Deletes an entity.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeleteEntity {
    /// Its path.
    pub key: PathKey,
    /// Answered when the deletion is durable.
    pub answer: AnswerTo,
}

/// The work of a retired actor is durable; its records can be deleted.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ActorRetired(pub(super) EntityId);

impl NamespaceActor {
    /// Retires an open entity, and with a topic its subscriptions, for deletion when no batch or
    /// transfer is on its way. Creations and deletions in progress within it are finished first.
    fn delete(&mut self, mail: DeleteEntity, itself: Addr<Self>) {
        let Some(id) = self.paths.get(&mail.key).copied() else {
            refuse(Some(mail.answer), Rejection::entity_not_found(mail.key.as_str()));
            return;
        };
        let passing = self.family_of(id).into_iter().find_map(|member| {
            let entity = self.entities.get(&member)?;
            // A subscription that is being deleted is removed with its topic.
            let is_waited_for = match entity.state {
                State::Creating | State::Opening => true,
                State::Retiring | State::Deleting | State::Undoing => member == id,
                State::Open | State::Closed => false,
            };
            is_waited_for.then(|| entity.key.clone())
        });
        match passing {
            Some(_) if self.stopping => {
                refuse(Some(mail.answer), Rejection::cancelled("the broker is stopping"));
            }
            Some(key) => self.park(key, mail, itself),
            None => {
                if let Some(entity) = self.entities.get_mut(&id) {
                    entity.answer = Some(mail.answer);
                }
                self.retire_family(id, itself);
            }
        }
    }

    /// Retires an entity and all below it, unless they are already retired.
    pub(super) fn retire_family(&mut self, id: EntityId, itself: Addr<Self>) {
        for id in self.family_of(id) {
            let Some(entity) = self.entities.get_mut(&id) else { continue };
            if !matches!(entity.state, State::Open | State::Closed) {
                continue;
            }
            entity.state = State::Retiring;
            self.shared.directory.remove(&entity.key);
            let itself = itself.clone();
            match &entity.actor {
                Some(actor) => {
                    let reason = Rejection::entity_not_found(&entity.path);
                    let done = Box::new(move || itself.do_send(ActorRetired(id)));
                    actor.do_send(Retire { when: RetireWhen::Now, reason, done });
                }
                None => itself.do_send(ActorRetired(id)),
            }
        }
    }

    /// Writes the deletion of a tree once all its actors are retired.
    pub(super) fn delete_if_retired(&mut self, root: EntityId, itself: Addr<Self>) {
        let goes = |root: &&NamespaceEntity| root.state == State::Retiring;
        let Some(owner) = self.entities.get(&root).filter(goes) else { return };
        let is_retired = |id: &EntityId| {
            self.entities.get(id).is_some_and(|entity| {
                entity.actor.is_none() && matches!(entity.state, State::Retiring | State::Deleting)
            })
        };
        // The actors got their requests to retire in this order, and usually end in it. So a search
        // from the end usually stops at the first one while any actor is left.
        if !owner.subscriptions.iter().rev().chain([&root]).all(is_retired) {
            return;
        }
        for id in self.family_of(root) {
            if let Some(entity) = self.entities.get_mut(&id) {
                entity.state = State::Deleting;
            }
        }
        // If the tree failed while it was retired, the shard must be taken over again.
        let then = AfterRecovery::Transfers(AfterTransfers::Delete);
        self.when_recovered(root, then, itself);
    }
}

impl Handler<DeleteEntity> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: DeleteEntity, context: &mut Self::Context) {
        self.delete(mail, context.address());
    }
}

impl Handler<IdleElapsed> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, IdleElapsed(id): IdleElapsed, context: &mut Self::Context) {
        let open = self.entities.get(&id).filter(|entity| entity.state == State::Open);
        if let Some((entity, actor)) =
            open.and_then(|entity| Some((entity, entity.actor.as_ref()?)))
        {
            // The actor checks again: it may have been used since its report.
            let itself = context.address();
            let done = Box::new(move || itself.do_send(ActorRetired(id)));
            let reason = Rejection::entity_not_found(&entity.path);
            actor.do_send(Retire { when: RetireWhen::Idle, reason, done });
        }
    }
}

impl Handler<ActorRetired> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, ActorRetired(id): ActorRetired, context: &mut Self::Context) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        entity.actor = None;
        let (key, topic) = (entity.key.clone(), entity.topic);
        // A deletion requested before the stop is still carried out.
        if self.stopping && entity.state != State::Retiring {
            self.end_if_retired();
            return;
        }
        entity.state = State::Retiring;
        self.directory().remove(&key);
        let topic_goes = topic.is_some_and(|topic| {
            self.entities.get(&topic).is_none_or(|topic| topic.state == State::Retiring)
        });
        match topic {
            Some(topic) if topic_goes => self.delete_if_retired(topic, context.address()),
            Some(_) => {
                if let Some(entity) = self.entities.get_mut(&id) {
                    entity.state = State::Deleting;
                }
                self.when_transfers_ended(
                    id,
                    AfterTransfers::RemoveSubscription,
                    context.address(),
                );
            }
            None => {
                // An idle topic takes its subscriptions along (TMP-19).
                self.retire_family(id, context.address());
                self.delete_if_retired(id, context.address());
            }
        }
        if self.stopping {
            self.end_if_retired();
        }
    }
}
