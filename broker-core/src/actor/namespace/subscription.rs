//! Subscriptions: the topic writes their creation and removal, since it evaluates their rules and
//! numbers their messages (TOP-17). The namespace actor calls it.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Handler, Message};

use super::create::RefusedCreation;
use super::{AnswerTo, NamespaceActor, PendingCreation, State, refuse};
use crate::command::{Command, Outcome, TopicCommand};
use crate::condition::Condition;
use crate::description::{EntityKind, SubscriptionDescription};
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::{EntityName, PathKey, SubQueue};
use crate::request::{Outlet, Released, Reply, Request, release_all};
use crate::rule::RuleDescription;

/// Creates a subscription.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CreateSubscription {
    /// Already validated description.
    pub description: Box<SubscriptionDescription>,
    /// Rules, checked by the topic; `$Default` if empty (TOP-12).
    pub rules: Vec<RuleDescription>,
    /// Answered when the subscription is durable and accepts receivers.
    pub answer: AnswerTo,
}

/// Answer of a topic to a creation or removal.
#[derive(Message)]
#[rtype(result = "()")]
struct TopicAnswer {
    id: EntityId,
    result: Result<(), Rejection>,
}

/// Forwards the answer of a topic to the namespace.
struct ToNamespace {
    id: EntityId,
    namespace: Addr<NamespaceActor>,
}

impl Outlet for ToNamespace {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            let Released::Answer { result, .. } = item else { continue };
            let result = result.map(|_: Outcome| ());
            self.namespace.do_send(TopicAnswer { id: self.id, result });
        }
    }
}

impl NamespaceActor {
    pub(super) fn create_subscription(
        &mut self,
        mail: CreateSubscription,
        itself: Addr<Self>,
    ) -> Result<(), RefusedCreation> {
        if self.stopping {
            return Err((mail.answer, Rejection::cancelled("the broker is stopping")));
        }
        let topic = PathKey::fold(&mail.description.topic);
        let key = PathKey::fold(&mail.description.path());
        if let Some(key) = [topic, key].into_iter().find(|key| self.entity_in_change(key).is_some())
        {
            self.park(key, mail, itself);
            return Ok(());
        }
        let owner = match self.owner_of(&mail.description) {
            Ok(owner) => owner,
            Err(reason) => return Err((mail.answer, reason)),
        };
        let Some(id) = self.next_id() else {
            self.wait_for_id(PendingCreation::Subscription(mail), itself);
            return Ok(());
        };
        let CreateSubscription { mut description, rules, answer } = mail;
        let (topic, path) = owner;
        description.topic = (*path).into();
        self.enter_subscription(id, topic, &description.name, State::Creating);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.answer = Some(answer);
        }
        self.ask_topic(
            id,
            Command::OfTopic(TopicCommand::CreateSubscription { id, description, rules }),
            itself,
        );
        Ok(())
    }

    /// Returns the topic of a new subscription, or the reason for refusing it.
    fn owner_of(
        &self,
        description: &SubscriptionDescription,
    ) -> Result<(EntityId, Arc<str>), Rejection> {
        let absent = || Rejection::entity_not_found(&description.topic);
        let id = self.paths.get(&PathKey::fold(&description.topic)).copied().ok_or_else(absent)?;
        let owner = self.entities.get(&id).ok_or_else(absent)?;
        if owner.kind != EntityKind::Topic {
            return Err(Rejection::wrong_entity_kind(EntityKind::Topic, &owner.path, owner.kind));
        }
        if owner.state != State::Open {
            return Err(Rejection::update_conflict(&owner.path));
        }
        let name = EntityName::Subscription {
            topic: (*owner.path).into(),
            name: description.name.clone(),
        };
        if self.paths.contains_key(&name.key()) {
            return Err(Rejection::entity_already_exists(&name.path()));
        }
        let count_max = self.shared.settings.limits.broker_subscription_count_max;
        if self.subscription_count >= count_max {
            return Err(Rejection::quota_exceeded(format!(
                "the broker already has {count_max} subscriptions, the limit \
                 `broker_subscription_count_max`; delete some"
            )));
        }
        Ok((id, Arc::clone(&owner.path)))
    }

    /// Asks the topic to write the removal of a retired subscription.
    pub(super) fn remove_subscription(&mut self, id: EntityId, itself: Addr<Self>) {
        self.ask_topic(id, Command::OfTopic(TopicCommand::RemoveSubscription { id }), itself);
    }

    fn ask_topic(&mut self, id: EntityId, command: Command, itself: Addr<Self>) {
        let topic = self.root_of(id);
        if let Some(entity) = self.entities.get_mut(&id) {
            entity.is_outcome_unknown = false;
        }
        let Some(topic) = self.entities.get(&topic) else { return };
        let outlet: Arc<dyn Outlet> = Arc::new(ToNamespace { id, namespace: itself });
        let request = Request {
            ticket: self.shared.ticket(),
            sub_queue: SubQueue::Main,
            command,
            reply: Reply::new(outlet, 0, None),
        };
        if let Err((refused, reason)) = topic.inlet.submit(vec![request], self.shared.clock.now()) {
            let answers =
                refused.into_iter().filter_map(|one| one.reply.answer(Err(reason.clone())));
            release_all(&mut answers.collect());
        }
    }
}

impl Handler<CreateSubscription> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, mail: CreateSubscription, context: &mut Self::Context) {
        if let Err((answer, reason)) = self.create_subscription(mail, context.address()) {
            refuse(Some(answer), reason);
        }
    }
}

impl Handler<TopicAnswer> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, TopicAnswer { id, result }: TopicAnswer, context: &mut Self::Context) {
        let topic = self.entities.get(&self.root_of(id));
        let is_of_closed = topic.is_some_and(|topic| topic.state == State::Closed);
        let Some(entity) = self.entities.get_mut(&id) else { return };
        match (entity.state, result) {
            (State::Creating, Ok(())) => self.adopt(id, context.address()),
            (State::Deleting, Ok(())) => {
                if let Some(answer) = self.forget(id).and_then(|entity| entity.answer) {
                    answer.send(Ok(()));
                }
            }
            // The effect of the request is unknown until the tree is rebuilt.
            (State::Creating | State::Deleting, Err(reason))
                if is_of_closed || reason.condition() == Condition::InternalError =>
            {
                entity.is_outcome_unknown = true;
                if self.is_closed(self.root_of(id)) {
                    self.close(id, reason.detail());
                }
            }
            (State::Creating, Err(reason)) => {
                let topic = self.root_of(id);
                if let Some(entity) = self.forget(id) {
                    refuse(entity.answer, reason);
                }
                self.delete_if_retired(topic, context.address());
            }
            // The topic is being deleted together with it; or the stop of the broker refused the
            // request.
            (State::Deleting, Err(_)) => {}
            _ => {}
        }
        if self.stopping {
            self.end_if_retired();
        }
    }
}

impl NamespaceActor {
    fn is_closed(&self, id: EntityId) -> bool {
        self.entities.get(&id).is_none_or(|entity| entity.state == State::Closed)
    }

    /// Resolves an unknown result after the tree was rebuilt.
    pub(super) fn resolve_unknown_outcome(
        &mut self,
        id: EntityId,
        is_there: bool,
        itself: Addr<Self>,
    ) {
        let Some(entity) = self.entities.get_mut(&id) else { return };
        let was_unsure = std::mem::take(&mut entity.is_outcome_unknown);
        match (entity.state, is_there) {
            (State::Deleting, true) if was_unsure => self.remove_subscription(id, itself),
            (State::Deleting, false) if was_unsure => {
                if let Some(answer) = self.forget(id).and_then(|entity| entity.answer) {
                    answer.send(Ok(()));
                }
            }
            (State::Opening, false) => {
                if let Some(entity) = self.forget(id) {
                    let reason = Rejection::internal("the store failed; nothing was created");
                    refuse(entity.answer, reason);
                }
            }
            _ => {}
        }
    }
}
