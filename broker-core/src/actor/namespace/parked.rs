//! Operations on an entity whose creation or deletion is being stored. They wait for its outcome,
//! since an answer such as "exists" could be followed by "not found" (ENT-32). Each holds its
//! management room meanwhile, which bounds their number.

use std::collections::HashMap;

use actix::dev::ToEnvelope;
use actix::{Addr, Handler, Message};

use super::{NamespaceActor, State};
use crate::ids::EntityId;
use crate::path::PathKey;

/// Operations by the path on whose outcome they wait. They are then sent to the namespace again, in
/// order.
#[derive(Default)]
pub(super) struct ParkedOperations(HashMap<PathKey, Vec<Box<dyn FnOnce() + Send>>>);

impl State {
    /// Whether a creation, deletion or opening is in progress.
    pub(super) const fn is_changing(self) -> bool {
        match self {
            Self::Creating | Self::Opening | Self::Retiring | Self::Deleting | Self::Undoing => {
                true
            }
            Self::Open | Self::Closed => false,
        }
    }
}

impl NamespaceActor {
    /// Returns the entity at a path if a creation or deletion is in progress.
    pub(super) fn entity_in_change(&self, key: &PathKey) -> Option<EntityId> {
        let id = self.paths.get(key).copied()?;
        self.entities.get(&id).is_some_and(|entity| entity.state.is_changing()).then_some(id)
    }

    /// Sends an operation to the namespace again when the outcome at a path is known.
    pub(super) fn park<M>(&mut self, key: PathKey, mail: M, itself: Addr<Self>)
    where
        M: Message<Result = ()> + Send + 'static,
        Self: Handler<M>,
        actix::Context<Self>: ToEnvelope<Self, M>,
    {
        let again = Box::new(move || itself.do_send(mail));
        self.parked.0.entry(key).or_default().push(again);
    }

    /// Continues waiting operations after the end of a creation or deletion at a path.
    pub(super) fn continue_parked(&mut self, key: &PathKey) {
        self.directory().end_creation(key);
        for again in self.parked.0.remove(key).into_iter().flatten() {
            again();
        }
    }

    /// Continues all waiting operations, for a stop.
    pub(super) fn release_parked(&mut self) {
        for again in std::mem::take(&mut self.parked.0).into_values().flatten() {
            again();
        }
    }
}
