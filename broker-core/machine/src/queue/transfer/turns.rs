//! Turns of the named destinations. There may be as many destinations as messages, so no step
//! examines them all: each destination with work is in one of two rows.
//!
//! ```text
//!  something can leave ──┬─ at once ─────────────────────────────► in turn ──► a list is under way
//!                        └─ not yet ─► later ─ the instant comes ─────▲
//! ```
//!
//! Turns are taken in order, so that no destination waits forever for others with many messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Backlog;
use crate::time::Timestamp;

/// Row and place of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    /// In the row of turns.
    InTurn(u64),
    /// In the row of delayed destinations, until this instant.
    Delayed(Timestamp),
}

/// The destinations with work.
#[derive(Debug, Default)]
pub(super) struct Turns {
    in_turn: BTreeMap<u64, Arc<str>>,
    last_turn: u64,
    later: BTreeSet<(Timestamp, Arc<str>)>,
}

impl Turns {
    /// Updates the row of a destination after a change of its backlog. A destination with a turn
    /// keeps it while a list can be handed over at once.
    pub(super) fn update(&mut self, destination: &Arc<str>, backlog: &mut Backlog) {
        let at = backlog.can_have_list().then_some(backlog.not_before);
        match (backlog.position, at) {
            (None, None) => return,
            (Some(Position::InTurn(_)), Some(Timestamp::NONE)) => return,
            (Some(Position::Delayed(since)), Some(at)) if since == at => return,
            (Some(Position::InTurn(turn)), _) => {
                self.in_turn.remove(&turn);
            }
            (Some(Position::Delayed(since)), _) => {
                self.later.remove(&(since, Arc::clone(destination)));
            }
            (None, Some(_)) => {}
        }
        backlog.position = at.map(|at| {
            if at > Timestamp::NONE {
                self.later.insert((at, Arc::clone(destination)));
                return Position::Delayed(at);
            }
            self.last_turn += 1;
            self.in_turn.insert(self.last_turn, Arc::clone(destination));
            Position::InTurn(self.last_turn)
        });
    }

    /// The destination whose turn it is.
    pub(super) fn first(&self) -> Option<&Arc<str>> {
        self.in_turn.first_key_value().map(|(_, destination)| destination)
    }

    /// The delayed destination whose instant has passed first.
    pub(super) fn first_due(&self, now: Timestamp) -> Option<&Arc<str>> {
        self.later.first().filter(|(at, _)| *at <= now).map(|(_, destination)| destination)
    }

    /// Next instant at which a list can be handed over.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if !self.in_turn.is_empty() {
            return Some(Timestamp::NONE);
        }
        self.later.first().map(|(at, _)| *at)
    }

    /// Whether exactly the destinations with work are in the rows, each in its place.
    pub(super) fn check(&self, pending: &BTreeMap<Arc<str>, Backlog>) -> Result<(), String> {
        let mut count = 0;
        for (destination, backlog) in pending {
            let stands = match backlog.position {
                Some(Position::InTurn(turn)) => {
                    backlog.not_before == Timestamp::NONE
                        && self.in_turn.get(&turn) == Some(destination)
                }
                Some(Position::Delayed(at)) => {
                    backlog.not_before == at && self.later.contains(&(at, Arc::clone(destination)))
                }
                None => false,
            };
            if stands != backlog.can_have_list() || stands != backlog.position.is_some() {
                return Err(format!("`{destination}` stands at {:?}", backlog.position));
            }
            count += usize::from(stands);
        }
        if count != self.in_turn.len() + self.later.len() {
            return Err("a turn belongs to a destination without messages".to_owned());
        }
        Ok(())
    }
}
