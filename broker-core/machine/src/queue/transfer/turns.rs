//! Whose turn it is among the destinations that senders named. There may be as many of them as there are messages, so no
//! step looks at all of them: each that something can leave for stands in one of two rows.
//!
//! ```text
//!   something can leave ──┬─ at once ──────────────────► in turn ──► a list is under way
//!                         └─ not before an instant ─► later ──▲
//!                                                       that has come
//! ```
//!
//! Turns are given in order, so that nobody waits for ever behind those that have much.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Backlog;
use crate::time::Timestamp;

/// Where a destination stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It has this turn.
    InTurn(u64),
    /// It gets one at this instant.
    Later(Timestamp),
}

/// The destinations that something can leave for.
#[derive(Debug, Default)]
pub(super) struct Turns {
    in_turn: BTreeMap<u64, Arc<str>>,
    last_turn: u64,
    later: BTreeSet<(Timestamp, Arc<str>)>,
}

impl Turns {
    /// Has a destination stand where its backlog belongs, which may have been altered; one that has a turn keeps it as
    /// long as something can leave at once.
    pub(super) fn see_to(&mut self, destination: &Arc<str>, backlog: &mut Backlog) {
        let at = backlog.can_have_list().then_some(backlog.not_before);
        match (backlog.standing, at) {
            (None, None) => return,
            (Some(Standing::InTurn(_)), Some(Timestamp::NONE)) => return,
            (Some(Standing::Later(since)), Some(at)) if since == at => return,
            (Some(Standing::InTurn(turn)), _) => {
                self.in_turn.remove(&turn);
            }
            (Some(Standing::Later(since)), _) => {
                self.later.remove(&(since, Arc::clone(destination)));
            }
            (None, Some(_)) => {}
        }
        backlog.standing = at.map(|at| {
            if at > Timestamp::NONE {
                self.later.insert((at, Arc::clone(destination)));
                return Standing::Later(at);
            }
            self.last_turn += 1;
            self.in_turn.insert(self.last_turn, Arc::clone(destination));
            Standing::InTurn(self.last_turn)
        });
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<&Arc<str>> {
        self.in_turn.first_key_value().map(|(_, destination)| destination)
    }

    /// Whose instant has come first, of those that have no turn yet.
    pub(super) fn first_due(&self, now: Timestamp) -> Option<&Arc<str>> {
        self.later.first().filter(|(at, _)| *at <= now).map(|(_, destination)| destination)
    }

    /// When something can leave.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if !self.in_turn.is_empty() {
            return Some(Timestamp::NONE);
        }
        self.later.first().map(|(at, _)| *at)
    }

    /// Whether those stand here, and where they belong, that something can leave for, and nobody else.
    pub(super) fn check(&self, pending: &BTreeMap<Arc<str>, Backlog>) -> Result<(), String> {
        let mut count = 0;
        for (destination, backlog) in pending {
            let stands = match backlog.standing {
                Some(Standing::InTurn(turn)) => {
                    backlog.not_before == Timestamp::NONE
                        && self.in_turn.get(&turn) == Some(destination)
                }
                Some(Standing::Later(at)) => {
                    backlog.not_before == at && self.later.contains(&(at, Arc::clone(destination)))
                }
                None => false,
            };
            if stands != backlog.can_have_list() || stands != backlog.standing.is_some() {
                return Err(format!("`{destination}` stands at {:?}", backlog.standing));
            }
            count += usize::from(stands);
        }
        if count != self.in_turn.len() + self.later.len() {
            return Err("a turn belongs to a destination without messages".to_owned());
        }
        Ok(())
    }
}
