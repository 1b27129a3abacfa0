//! One open transaction: what was issued so far, within its bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peeklock_model::transaction::{Operation, Part};

use crate::admission::Permit;
use crate::contract::Action;
use crate::error::Rejection;
use crate::grant::{Onward, Pass};
use crate::ids::{EntityId, LockToken, SequenceNumber};
use crate::limits::Limits;
use crate::time::Timestamp;

/// Why an operation or a link cannot be part of a transaction, in the words that programs look for.
pub const SPANS_SEVERAL: &str =
    "Local transactions cannot span multiple top-level entities such as queue or topic";

/// What was issued and is not yet committed.
#[derive(Default)]
pub(super) struct Open {
    /// What it covers, once it has a part (TXN-08).
    covers: Option<Scope>,
    /// When it times out; known from its first operation on (TXN-06).
    deadline: Option<Timestamp>,
    /// By place, which is the order in which they were issued.
    parts: BTreeMap<u64, Kept>,
    last_place: u64,
    /// Parts that the entity has not said anything of.
    unanswered: usize,
    /// Locks that it settles; each can be settled once (SET-13).
    settled: BTreeSet<LockToken>,
    message_count: usize,
}

/// What an operation is for: a queue, a topic, or a subscription of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// The queue or topic.
    pub(super) root: EntityId,
    /// The subscription.
    pub(super) subscription: Option<EntityId>,
}

/// One part, and the room that it takes.
struct Kept {
    scope: Scope,
    part: Part,
    granted: Granted,
    bytes: u64,
    room: Permit,
}

/// What is granted to who issued a part: at its entity, and where its messages go by way of that.
pub(super) struct Granted {
    pub(super) pass: Option<Arc<Pass>>,
    pub(super) onward: Option<Onward>,
}

impl Scope {
    /// What covers both, if one transaction can.
    fn with(self, other: Self) -> Option<Self> {
        let subscription = match (self.subscription, other.subscription) {
            (Some(one), Some(two)) if one != two => return None,
            (one, two) => one.or(two),
        };
        (self.root == other.root).then_some(Self { root: self.root, subscription })
    }
}

impl Open {
    /// When its time is over; none before its first operation.
    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Whether it is too old (TXN-06).
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether the entity has not answered for each of its parts.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// How many operations it has.
    pub(super) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The bytes that its parts hold.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.values().map(|kept| kept.bytes).sum()
    }

    /// Refuses what cannot be one of its parts, whatever the entity would say.
    pub(super) fn admit(
        &self,
        anchor: Option<EntityId>,
        scope: Scope,
        operation: &Operation,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let is_covered = self.covers.is_none_or(|covered| covered.with(scope).is_some());
        if !is_covered || anchor.is_some_and(|root| root != scope.root) {
            return Err(Rejection::invalid_operation(format!(
                "{SPANS_SEVERAL}: a transaction covers one queue, or one topic with one of its subscriptions; this \
                 operation is on another entity, so use another transaction for it",
            )));
        }
        let count_max = limits.transaction_message_count_max;
        if self.message_count + operation.messages().len() > count_max {
            return Err(Rejection::quota_exceeded(format!(
                "a transaction sends at most {count_max} messages, this one has {} already",
                self.message_count
            )));
        }
        let count_max = limits.transaction_operation_count_max;
        if self.parts.len() >= count_max {
            return Err(Rejection::quota_exceeded(format!(
                "a transaction has at most {count_max} operations"
            )));
        }
        match operation {
            Operation::Settle { token, .. } | Operation::RenewLock { token }
                if self.settled.contains(token) =>
            {
                Err(Rejection::message_lock_lost(*token))
            }
            _ => Ok(()),
        }
    }

    /// Takes an admitted part; returns its place.
    pub(super) fn add(
        &mut self,
        scope: Scope,
        part: Part,
        granted: Granted,
        (bytes, room): (u64, Permit),
        timeout_at: Timestamp,
    ) -> u64 {
        self.covers = self.covers.map_or(Some(scope), |covered| covered.with(scope));
        self.deadline.get_or_insert(timeout_at);
        self.message_count += part.operation.messages().len();
        if let Operation::Settle { token, .. } = part.operation {
            self.settled.insert(token);
        }
        self.last_place += 1;
        self.unanswered += 1;
        self.parts.insert(self.last_place, Kept { scope, part, granted, bytes, room });
        self.last_place
    }

    /// Records that the entity has agreed to a part, with the numbers reserved for its messages.
    pub(super) fn confirm(&mut self, place: u64, numbers: Vec<SequenceNumber>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(kept) = self.parts.get_mut(&place) {
            kept.part.numbers = numbers;
        }
    }

    /// Leaves out a part that the entity would not carry out; returns the bytes that it held.
    pub(super) fn leave_out(&mut self, place: u64) -> u64 {
        let Some(Kept { part, bytes, .. }) = self.parts.remove(&place) else { return 0 };
        self.unanswered = self.unanswered.saturating_sub(1);
        self.message_count -= part.operation.messages().len();
        if let Operation::Settle { token, .. } = part.operation {
            self.settled.remove(&token);
        }
        let scopes = self.parts.values().map(|kept| kept.scope);
        self.covers = scopes.reduce(|covered, scope| covered.with(scope).unwrap_or(covered));
        bytes
    }

    /// Whether it settles a lock.
    pub(super) fn has_settled(&self, token: LockToken) -> bool {
        self.settled.contains(&token)
    }

    /// Asks again for the right to each operation, as it is granted now: an end that has come since, and was
    /// not put off by a newer token, rolls all of them back (TXN-07).
    pub(super) fn check_rights(&self, now: Timestamp) -> Result<(), Rejection> {
        for Kept { part, granted: Granted { pass, onward }, .. } in self.parts.values() {
            if let Some(pass) = pass {
                pass.held.check(Action::of_operation(&part.operation), || now)?;
                Onward::check_operation(onward.as_ref(), &part.operation, || now)?;
            }
        }
        Ok(())
    }

    /// The queue or topic that it covers, once it has a part.
    pub(super) fn root(&self) -> Option<EntityId> {
        self.covers.map(|covered| covered.root)
    }

    /// Whether a part is for the queue or topic itself.
    pub(super) fn is_for_root(&self) -> bool {
        self.parts.values().any(|kept| kept.scope.subscription.is_none())
    }

    /// All parts in their order, and the room they take. If some are for the topic itself, it commits
    /// all of them, and the others name their subscription.
    pub(super) fn into_parts(self) -> (Vec<Part>, Vec<Permit>) {
        let by_root = self.is_for_root();
        let name = |kept: Kept| {
            let member = kept.scope.subscription.filter(|_| by_root);
            (Part { member, ..kept.part }, kept.room)
        };
        self.parts.into_values().map(name).unzip()
    }
}
