//! Outcomes of deliveries that were settled when their link was gone: the client does not see the answer, and settles once
//! more by the token of the lock (AMQP-62). The same outcome is then a success, as it was. Where the link is there, the
//! client has its answer, and a second settlement is refused as in the cloud.

use std::collections::{HashMap, VecDeque};

use peeklock_core::command::Settlement;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;

/// Outcomes that a listener remembers.
const COUNT_MAX: usize = 8_192;

/// What became of a message, whatever was set on it.
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

/// The last outcomes, by the tokens of their locks.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    by_token: HashMap<LockToken, OutcomeKind>,
    /// The oldest first.
    order: VecDeque<LockToken>,
}

impl Outcomes {
    /// Remembers an outcome; beyond the most, the oldest is forgotten.
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

    /// Whether a delivery had this outcome.
    pub(super) fn has(&self, token: LockToken, kind: OutcomeKind) -> bool {
        self.by_token.get(&token) == Some(&kind)
    }
}

/// Whether a settlement was refused because its lock is gone.
pub(super) fn is_lock_lost(rejection: &Rejection) -> bool {
    matches!(rejection.condition(), Condition::MessageLockLost | Condition::SessionLockLost)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-62: the last outcomes are remembered, and no more than may be.
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
