//! The stop of a broker: waits end, and after a grace every entity is retired.

use std::time::Duration;

use actix::{AsyncContext, Handler, Message};
use tokio::sync::oneshot;

use super::{NamespaceActor, Retired, State};
use crate::actor::entity::{EndWaits, Retire, RetireWhen};
use crate::error::Rejection;

/// Ends all waits, then, after `grace`, retires every entity.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Stop {
    pub(crate) grace: Duration,
    pub(crate) answer: oneshot::Sender<()>,
}

impl NamespaceActor {
    pub(super) fn end_if_retired(&mut self) {
        let busy = self.entities.values().any(|entity| {
            entity.actor.is_some() || matches!(entity.state, State::Creating | State::Opening)
        });
        if !busy && let Some(stopped) = self.stopped.take() {
            stopped.send(()).ok();
        }
    }
}

impl Handler<Stop> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Stop { grace, answer }: Stop, context: &mut Self::Context) {
        self.stopping = true;
        self.stopped = Some(answer);
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(EndWaits);
        }
        let itself = context.address();
        context.run_later(grace, move |namespace, _| {
            let reason = Rejection::cancelled("the broker is stopping");
            let open = namespace.entities.iter().filter(|(_, one)| one.state == State::Open);
            for (id, entity) in open {
                let Some(actor) = &entity.actor else { continue };
                let (id, itself) = (*id, itself.clone());
                let done = Box::new(move || itself.do_send(Retired(id)));
                actor.do_send(Retire { when: RetireWhen::Now, reason: reason.clone(), done });
            }
            namespace.end_if_retired();
        });
    }
}
