//! Outcomes of deliveries that were settled after their link was detached. Their client did not see
//! the answer, and settles again by lock token (AMQP-62). The same outcome is then a success again.
//! If the link still exists, the client has its answer, and a second settlement is refused as in
//! the cloud.

use std::collections::{HashMap, VecDeque};

use peeklock_core::command::Settlement;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;

/// Maximum number of outcomes that a listener remembers.
const COUNT_MAX: usize = 8_192;

/// Outcome of a message, without its properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutcomeKind {
    Completed,
    Abandoned,
    Deferred,
    DeadLettered,
    Released,
}

impl OutcomeKind {
    pub(super) const fn of(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Complete => Self::Completed,
            Settlement::Abandon { .. } => Self::Abandoned,
            Settlement::Defer { .. } => Self::Deferred,
            Settlement::DeadLetter { .. } => Self::DeadLettered,
            Settlement::Release => Self::Released,
        }
    }
}

/// The last outcomes, by lock token.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    by_token: HashMap<LockToken, OutcomeKind>,
    /// Oldest first.
    order: VecDeque<LockToken>,
}

impl Outcomes {
    /// Remembers an outcome; above the maximum, the oldest is forgotten.
    pub(super) fn remember(&mut self, token: LockToken, kind: OutcomeKind) {
        if self.by_token.insert(token, kind).is_some() {
            return;
        }
        self.order.push_back(token);
        if self.order.len() > COUNT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_token.remove(&oldest);
        }
    }

    /// Returns whether a delivery had this outcome.
    pub(super) fn has(&self, token: LockToken, kind: OutcomeKind) -> bool {
        self.by_token.get(&token) == Some(&kind)
    }
}

/// Returns whether a settlement was refused because its lock is lost.
pub(super) fn is_lock_lost(rejection: &Rejection) -> bool {
    matches!(rejection.condition(), Condition::MessageLockLost | Condition::SessionLockLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-62: the last outcomes are remembered, up to the maximum.
    #[test]
    fn the_last_outcomes_are_remembered() {
        let mut outcomes = Outcomes::default();
        let tokens = 0..=COUNT_MAX as u128;
        for token in tokens.clone().map(LockToken) {
            outcomes.remember(token, OutcomeKind::Abandoned);
            outcomes.remember(token, OutcomeKind::Completed);
        }
        let found = tokens.filter(|token| outcomes.has(LockToken(*token), OutcomeKind::Completed));
        assert_eq!(found.min(), Some(1));
        assert_eq!(outcomes.order.len(), COUNT_MAX);
        assert!(!outcomes.has(LockToken(1), OutcomeKind::Abandoned));
    }
}
