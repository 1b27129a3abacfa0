//! Whether anybody in the namespace has something to do.

use std::sync::Arc;

use actix::{Context, Handler};

use super::{NamespaceActor, State};
use crate::actor::look::{Counts, Look};

impl Handler<Look> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Look(round): Look, _: &mut Context<Self>) {
        let are_settled = self
            .entities
            .values()
            .all(|entity| matches!(entity.state, State::Open | State::Closed));
        let is_quiet = self.opening == 0
            && self.waiting.is_empty()
            && self.policies_in_flight.is_empty()
            && are_settled;
        round.says(is_quiet || round.counts == Counts::AllButStore);
        for actor in self.entities.values().filter_map(|entity| entity.actor.as_ref()) {
            actor.do_send(Look(Arc::clone(&round)));
        }
    }
}
