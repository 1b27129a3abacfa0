//! Duplicate detection: file 12.

use peeklock_core::time::Timestamp;

use super::{Incoming, Oracle, WINDOW};
use crate::image::Bare;

/// When an id was accepted.
#[derive(Clone, Debug)]
pub struct Acceptance {
    pub at: Timestamp,
    /// The number of a scheduled message, else 0.
    pub scheduled: u64,
    /// The command that sent it.
    pub ticket: u64,
    /// Whether it is certainly durable.
    pub is_told: bool,
}

impl Bare {
    /// The id from its sender (DUP-14).
    pub fn own_id(&self) -> Option<&str> {
        self.id.starts_with("id").then_some(&*self.id)
    }
}

impl Oracle {
    /// DUP-02, DUP-05, DUP-12: the number in the answer to a duplicate.
    pub fn find_duplicate(&self, id: u64, message_id: Option<&str>) -> Option<u64> {
        let entity = &self.entities[&id];
        if !entity.nature.detects {
            return None;
        }
        let found = entity.ids.get(message_id?).filter(|one| one.at.plus(WINDOW) > self.now)?;
        let is_it = |one: &Incoming| matches!(one, Incoming::New { sequence, .. } if *sequence == found.scheduled);
        let waits = entity.cards.get(&found.scheduled).is_some_and(|card| card.doing.is_none())
            || entity.incoming.iter().any(is_it);
        Some(if waits { found.scheduled } else { 0 })
    }

    /// DUP-01
    pub fn remember(
        &mut self,
        id: u64,
        message_id: Option<&str>,
        sequence: u64,
        is_scheduled: bool,
    ) {
        let (at, ticket) = (self.now, self.ticket);
        let entity = self.of(id);
        if let (true, Some(message_id)) = (entity.nature.detects, message_id) {
            let scheduled = if is_scheduled { sequence } else { 0 };
            let acceptance = Acceptance { at, scheduled, ticket, is_told: false };
            entity.ids.insert(message_id.to_owned(), acceptance);
        }
    }
}
