//! Stop of a broker: ends waiting calls at once, and retires every entity as soon as no client
//! holds a lock and no command waits anywhere, or when the grace period is over.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::sync::oneshot;

use super::{ActorRetired, NamespaceActor, State};
use crate::actor::messages::{EndWaits, Retire, RetireWhen, Round, RoundQuestion, RoundScope};
use crate::error::Rejection;
use crate::ids::EntityId;

/// Ends all waiting calls. Retires every entity when no client holds a lock and no command waits
/// anywhere, at the latest after `grace`.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StopNamespace {
    pub(crate) grace: Duration,
    pub(crate) answer: oneshot::Sender<()>,
}

impl NamespaceActor {
    /// Ends the stop when every entity has ended. The full check runs only when all entities found
    /// by the previous check have ended, not for each one of possibly tens of thousands.
    pub(super) fn end_if_retired(&mut self) {
        while let Some(id) = self.not_ended.last().copied() {
            if self.has_not_ended(id) {
                return;
            }
            self.not_ended.pop();
        }
        let unended = self.entities.keys().copied().filter(|id| self.has_not_ended(*id)).collect();
        self.not_ended = unended;
        if self.not_ended.is_empty()
            && let Some(stopped) = self.stopped.take()
        {
            self.directory().end_all_creations();
            stopped.send(()).ok();
        }
    }

    fn has_not_ended(&self, id: EntityId) -> bool {
        self.entities.get(&id).is_some_and(|entity| {
            entity.actor.is_some() || matches!(entity.state, State::Creating | State::Opening)
        })
    }

    /// Asks all entities, in rounds, whether a client holds a lock or a command waits there. An
    /// entity answers as soon as neither is the case, so no timer is needed. A round without a turn
    /// of any entity in between is the last one.
    fn retire_when_nothing_is_held(&self, context: &mut Context<Self>) {
        let turns = self.shared.pulses.turns();
        let (round, result) = Round::begin(RoundScope::Held);
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(RoundQuestion(Arc::clone(&round)));
        }
        drop(round);
        let look = result.into_actor(self).map(move |result, namespace, context| {
            // The grace period may have ended.
            let Some(grace) = namespace.grace else { return };
            // An entity that answered early may have received mail from another one since. Taking
            // that mail was a turn, so the number of turns has changed and another round follows.
            if result.unwrap_or(true) && namespace.shared.pulses.turns() == turns {
                context.cancel_future(grace);
                namespace.retire_all(context);
            } else {
                namespace.retire_when_nothing_is_held(context);
            }
        });
        context.spawn(look);
    }

    /// Retires all entities at once; until then they can still send to each other.
    fn retire_all(&mut self, context: &Context<Self>) {
        self.grace = None;
        let reason = Rejection::cancelled("the broker is stopping");
        let open = self.entities.iter().filter(|(_, one)| one.state == State::Open);
        for (id, entity) in open {
            let Some(actor) = &entity.actor else { continue };
            let (id, itself) = (*id, context.address());
            let done = Box::new(move || itself.do_send(ActorRetired(id)));
            actor.do_send(Retire { when: RetireWhen::Now, reason: reason.clone(), done });
        }
        self.end_if_retired();
    }
}

impl Handler<StopNamespace> for NamespaceActor {
    type Result = ();

    fn handle(
        &mut self,
        StopNamespace { grace, answer }: StopNamespace,
        context: &mut Self::Context,
    ) {
        self.stopping = true;
        self.shared.is_stopping.send_replace(true);
        self.stopped = Some(answer);
        self.release_parked();
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(EndWaits);
        }
        let over = context.run_later(grace, |namespace, context| namespace.retire_all(context));
        self.grace = Some(over);
        self.retire_when_nothing_is_held(context);
    }
}
