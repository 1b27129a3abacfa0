//! One open transaction: the operations issued until now, within its bounds. `book.rs` keeps it.
//! Operations that exceed its bounds are refused when they are issued.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peeklock_model::transaction::{Operation, Part};

use crate::admission::Permit;
use crate::contract::Action;
use crate::error::Rejection;
use crate::grant::{Pass, ViaGrant};
use crate::ids::{EntityId, LockToken, SequenceNumber};
use crate::limits::Limits;
use crate::time::Timestamp;

/// Start of the error for an operation or link that cannot be part of a transaction; programs
/// search for this text.
pub const SPANS_SEVERAL: &str =
    "Local transactions cannot span multiple top-level entities such as queue or topic";

/// Operations that are issued but not committed.
#[derive(Default)]
pub(super) struct OpenTransaction {
    /// Covered entities, once it has a part (TXN-08).
    covers: Option<Scope>,
    /// Time at which it times out; set by its first operation (TXN-06).
    deadline: Option<Timestamp>,
    /// Parts by place; places ascend in the order of issue.
    parts: BTreeMap<u64, HeldPart>,
    last_place: u64,
    /// Number of parts that the entity has not answered.
    unanswered: usize,
    /// Locks that it settles; each can be settled once (SET-13).
    settled: BTreeSet<LockToken>,
    message_count: usize,
}

/// Entity of an operation: a queue, a topic, or a subscription of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// The queue or topic.
    pub(super) root: EntityId,
    /// The subscription.
    pub(super) subscription: Option<EntityId>,
}

/// One part with its room.
struct HeldPart {
    scope: Scope,
    part: Part,
    granted: PartGrants,
    bytes: u64,
    room: Permit,
}

/// Grants for a part: on its entity, and on the destination of messages that are sent through it.
pub(super) struct PartGrants {
    pub(super) pass: Option<Arc<Pass>>,
    pub(super) onward: Option<ViaGrant>,
}

impl Scope {
    /// Returns the scope that covers both, if one transaction can.
    fn with(self, other: Self) -> Option<Self> {
        let subscription = match (self.subscription, other.subscription) {
            (Some(one), Some(two)) if one != two => return None,
            (one, two) => one.or(two),
        };
        (self.root == other.root).then_some(Self { root: self.root, subscription })
    }
}

impl OpenTransaction {
    /// Time at which it times out; none before its first operation.
    pub(super) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Whether it has timed out (TXN-06).
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether answers for its parts are missing.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// Number of its operations.
    pub(super) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Bytes held by its parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.values().map(|kept| kept.bytes).sum()
    }

    /// Refuses operations that cannot be added, independent of the entity's answer.
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

    /// Adds an admitted part; returns its place.
    pub(super) fn add(
        &mut self,
        scope: Scope,
        part: Part,
        granted: PartGrants,
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
        self.parts.insert(self.last_place, HeldPart { scope, part, granted, bytes, room });
        self.last_place
    }

    /// Records that the entity has agreed to a part, with the numbers reserved for its messages.
    pub(super) fn confirm(&mut self, place: u64, numbers: Vec<SequenceNumber>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(kept) = self.parts.get_mut(&place) {
            kept.part.numbers = numbers;
        }
    }

    /// Removes a part that the entity would not carry out; returns the bytes that it held.
    pub(super) fn leave_out(&mut self, place: u64) -> u64 {
        let Some(HeldPart { part, bytes, .. }) = self.parts.remove(&place) else { return 0 };
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

    /// Checks the right to each operation again, by current grants. If a grant has ended and no
    /// newer token has renewed it, the transaction is rolled back (TXN-07).
    pub(super) fn check_rights(&self, now: Timestamp) -> Result<(), Rejection> {
        for HeldPart { part, granted: PartGrants { pass, onward }, .. } in self.parts.values() {
            if let Some(pass) = pass {
                pass.entitlement.check(Action::of_operation(&part.operation), || now)?;
                ViaGrant::check_operation(onward.as_ref(), &part.operation, || now)?;
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

    /// Returns all parts in order with their room. If some are for the topic itself, it commits all
    /// of them, and the others name their subscription.
    pub(super) fn into_parts(self) -> (Vec<Part>, Vec<Permit>) {
        let by_root = self.is_for_root();
        let name = |kept: HeldPart| {
            let member = kept.scope.subscription.filter(|_| by_root);
            (Part { member, ..kept.part }, kept.room)
        };
        self.parts.into_values().map(name).unzip()
    }
}
