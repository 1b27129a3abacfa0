//! The open transactions of a connection. Handles of the connection issue operations into it, and
//! the namespace or queue applies them at commit. Each transaction counts in the shared budget, and
//! dropping the book rolls all back (TXN-12).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use peeklock_model::transaction::{Operation, Part};

use super::TransactionId;
use super::budget::{EvictionTime, RoomRequest, TransactionOwner};
use super::open::{OpenTransaction, PartGrants, Scope};
use super::registration::BudgetRegistration;
use crate::admission::Permit;
use crate::broker::{Broker, Entity};
use crate::command::{Command, InboundMessage};
use crate::condition::Condition;
use crate::error::Rejection;
use crate::grant::ViaGrant;
use crate::ids::LockToken;
use crate::limits::Tier;
use crate::request::Outcome;
use crate::time::Timestamp;

/// Approximate bytes of a part without its messages and properties.
const PART_OVERHEAD_BYTES: u64 = 256;
/// Approximate bytes of an open transaction without parts: here, in the shared budget, and in the
/// transport.
const BEGUN_BYTES: u64 = 1_024;

/// Transactions of a connection, or of an in-process client. Dropping the last clone rolls all
/// of them back (TXN-12). Usable from any thread.
#[derive(Clone)]
pub struct Transactions(Arc<Book>);

/// Shared state of the clones.
struct Book {
    broker: Broker,
    state: Mutex<State>,
}

struct State {
    open: BTreeMap<TransactionId, TransactionEntry>,
    /// Their order of eviction, and their registration at the shared budget.
    registration: BudgetRegistration,
    /// Transactions that were rolled back because they timed out, in that order; at most as many as
    /// may be open.
    timed_out: VecDeque<TransactionId>,
    /// Bytes held by the parts of the open transactions.
    bytes: u64,
}

/// An open transaction with handles on the entities that it covers.
struct TransactionEntry {
    transaction: OpenTransaction,
    reach: Reach,
    /// The queue or topic that it must cover, if its client has fixed it.
    anchor: Option<Entity>,
    /// The covered queue or topic.
    root: Option<Entity>,
    /// The covered subscription.
    subscription: Option<Entity>,
    /// Time from which it may be evicted if it has no part by then.
    empty_until: Timestamp,
    _room: Permit,
}

/// Entities that a transaction may use (TXN-08, TXN-09).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// One queue, or one topic with one of its subscriptions.
    #[default]
    OneEntity,
    /// Also sends to other entities, transferred through the first entity used.
    CrossEntity,
}

/// The command that checks an operation before it becomes part of a transaction.
pub struct PartCheck {
    /// Entity that must get the command.
    pub entity: Entity,
    /// Command to submit.
    pub command: Command,
    /// Receiver of the entity's answer.
    pub issued: PendingPart,
}

/// A part that is being checked. Dropping it without [`PendingPart::confirm`] removes it from the
/// transaction.
#[must_use = "unconfirmed operations are left out"]
pub struct PendingPart {
    book: Arc<Book>,
    id: TransactionId,
    place: u64,
    is_confirmed: bool,
}

/// A transaction that is being committed.
pub struct PendingCommit {
    /// Entity that must get the commit.
    pub entity: Entity,
    /// Command to submit.
    pub command: Command,
    /// Room of its messages; hold it until the commit is answered.
    pub room: Vec<Permit>,
}

impl Transactions {
    /// Creates the transactions of a new connection to this broker.
    #[must_use]
    pub fn new(broker: &Broker) -> Self {
        Self(Arc::new_cyclic(|book: &Weak<Book>| {
            let registration = BudgetRegistration::enter(&broker.shared.transactions, book.clone());
            let state = Mutex::new(State::new(registration));
            Book { broker: broker.clone(), state }
        }))
    }

    /// Begins a transaction (TXN-01). Its time runs from its first operation (TXN-06).
    ///
    /// # Errors
    /// `QuotaExceeded` at the maximum number of open transactions (TXN-17); `ServerBusy` when the
    /// open transactions of the broker use all their memory; `ArgumentError` in the Basic tier
    /// (ENT-02).
    pub fn begin(&self, reach: Reach) -> Result<TransactionId, Rejection> {
        let limits = &self.0.broker.settings().limits;
        if limits.tier == Tier::Basic {
            return Err(Rejection::argument("transactions are not part of the Basic tier"));
        }
        let count_max = limits.transaction_open_count_max;
        let now = self.0.broker.now();
        let request = {
            let mut state = self.0.lock();
            state.make_place(now, count_max)?;
            state.room_request(None)
        };
        let room = self.0.broker.shared.transactions.take(request, BEGUN_BYTES, now)?;
        let mut state = self.0.lock();
        // Another thread may have begun one meanwhile.
        state.make_place(now, count_max)?;
        let id = loop {
            // Ids are random and unique across connections: a client that lost its connection
            // cannot hit a transaction of another one.
            let id = TransactionId(TransactionId::of_bits(self.0.broker.random_bits()));
            if !state.open.contains_key(&id) && !state.timed_out.contains(&id) {
                break id;
            }
        };
        let begun = TransactionEntry {
            transaction: OpenTransaction::default(),
            reach,
            anchor: None,
            root: None,
            subscription: None,
            empty_until: now.plus(limits.transaction_duration_max),
            _room: room,
        };
        let end = begun.eviction_time();
        state.open.insert(id, begun);
        state.note(id, (None, Some(end)));
        drop(state);
        Ok(id)
    }

    /// Fixes the queue or topic that a transaction covers: sends to other entities go through it,
    /// in any order of the operations (AMQP-98). Has no effect once the transaction has an
    /// operation.
    ///
    /// # Errors
    /// `TransactionUnknown`, `TransactionTimedOut`.
    pub fn anchor(&self, id: TransactionId, root: Entity) -> Result<(), Rejection> {
        let broker = &self.0.broker;
        let count_max = broker.settings().limits.transaction_open_count_max;
        let mut state = self.0.lock();
        let begun = state.find(id, broker.now(), count_max)?;
        if begun.transaction.part_count() == 0 {
            begun.anchor = Some(root);
        }
        Ok(())
    }

    /// Whether an open transaction settles a lock.
    #[must_use]
    pub fn has_settled(&self, id: TransactionId, token: LockToken) -> bool {
        self.0.lock().open.get(&id).is_some_and(|begun| begun.transaction.has_settled(token))
    }

    /// Adds an operation to a transaction, provided that its entity would carry it out. The caller
    /// must submit the returned command to the returned entity, and pass the answer to the
    /// [`PendingPart`].
    ///
    /// # Errors
    /// `TransactionUnknown`, `TransactionTimedOut` (TXN-06); `InvalidOperation` for an operation
    /// that cannot be transactional (TXN-02) or is for another entity (TXN-08); `QuotaExceeded` for
    /// more than the maximum of messages, operations or bytes (TXN-05); `MessageLockLost` for a
    /// lock that the transaction already settles (SET-13); `ServerBusy` when the open transactions
    /// of the broker use all their memory; `Unauthorized`.
    pub async fn issue(
        &self,
        id: TransactionId,
        entity: &Entity,
        command: Command,
    ) -> Result<PartCheck, Rejection> {
        let operation = Operation::of(command)?;
        let root = entity.root().await?;
        let bytes = operation.bytes() + PART_OVERHEAD_BYTES;
        let broker = &self.0.broker;
        let (limits, now) = (&broker.settings().limits, broker.now());
        // The lock is released before `take`, which may lock this or other books to evict
        // transactions.
        let request = {
            let mut state = self.0.lock();
            state.find(id, now, limits.transaction_open_count_max)?;
            state.room_request(Some(id))
        };
        let room = broker.shared.transactions.take(request, bytes, now)?;
        let mut state = self.0.lock();
        let held = state.bytes;
        let begun = state.find(id, now, limits.transaction_open_count_max)?;
        let (entity, root, operation) = begun.route(entity, root, operation)?;
        let scope = Scope {
            root: root.id(),
            subscription: (entity.id() != root.id()).then_some(entity.id()),
        };
        let anchor = begun.anchor.as_ref().map(Entity::id);
        begun.transaction.admit(anchor, scope, &operation, limits)?;
        let bytes_max = limits.transaction_open_bytes_max;
        if held > 0 && held.saturating_add(bytes) > bytes_max {
            return Err(Rejection::quota_exceeded(format!(
                "the open transactions of the connection hold {held} bytes, the limit is \
                 {bytes_max}; commit or roll back first"
            )));
        }
        let command = Command::Check { operation: operation.clone() };
        let numbers = Vec::new();
        let part = Part { member: None, sub_queue: entity.sub_queue(), operation, numbers };
        let granted =
            PartGrants { pass: entity.pass().cloned(), onward: entity.via_grant().cloned() };
        let timeout_at = now.plus(limits.transaction_duration_max);
        let was = begun.eviction_time();
        let place = begun.transaction.add(scope, part, granted, (bytes, room), timeout_at);
        if scope.subscription.is_some() {
            begun.subscription = Some(entity.with_session_entrance(None));
        }
        begun.root = Some(root);
        let is = begun.eviction_time();
        state.bytes += bytes;
        state.note(id, (Some(was), Some(is)));
        drop(state);
        let book = Arc::clone(&self.0);
        Ok(PartCheck {
            entity,
            command,
            issued: PendingPart { book, id, place, is_confirmed: false },
        })
    }

    /// Whether answers for operations of a transaction are missing. It can be committed only
    /// without missing answers.
    #[must_use]
    pub fn has_unanswered(&self, id: TransactionId) -> bool {
        self.0.lock().open.get(&id).is_some_and(|begun| begun.transaction.is_unanswered())
    }

    /// Number of operations of an open transaction.
    #[must_use]
    pub fn part_count(&self, id: TransactionId) -> Option<usize> {
        self.0.lock().open.get(&id).map(|begun| begun.transaction.part_count())
    }

    /// Ends a transaction. Returns the command that makes it take effect, and its entity;
    /// none if the transaction is empty.
    ///
    /// # Errors
    /// `TransactionUnknown`, `TransactionTimedOut`; `InvalidOperation` while an answer is missing;
    /// `Unauthorized`, with everything rolled back, if an operation is no longer granted (TXN-07).
    pub fn commit(&self, id: TransactionId) -> Result<Option<PendingCommit>, Rejection> {
        let broker = &self.0.broker;
        let count_max = broker.settings().limits.transaction_open_count_max;
        let mut state = self.0.lock();
        let begun = state.find(id, broker.now(), count_max)?;
        if begun.transaction.is_unanswered() {
            return Err(Rejection::invalid_operation(format!(
                "transaction {id} has unanswered operations; wait for their answers before you \
                 commit it"
            )));
        }
        let Some(begun) = state.remove(id) else { return Err(unknown(id)) };
        drop(state);
        begun.transaction.check_rights(broker.now())?;
        let TransactionEntry { transaction, root, subscription, .. } = begun;
        let entity = if transaction.is_for_root() { root } else { subscription };
        let (parts, room) = transaction.into_parts();
        Ok(entity.filter(|_| !parts.is_empty()).map(|entity| PendingCommit {
            // The rights of each part were checked above, at its own entity.
            entity: entity.as_broker(),
            command: Command::Commit { parts },
            room,
        }))
    }

    /// Rolls a transaction back without any effect (TXN-04).
    ///
    /// # Errors
    /// `TransactionUnknown`, `TransactionTimedOut`.
    pub fn roll_back(&self, id: TransactionId) -> Result<(), Rejection> {
        let broker = &self.0.broker;
        let mut state = self.0.lock();
        state.find(id, broker.now(), broker.settings().limits.transaction_open_count_max)?;
        state.remove(id);
        drop(state);
        Ok(())
    }

    /// Forgets a transaction in any state.
    pub fn forget(&self, id: TransactionId) {
        let mut state = self.0.lock();
        state.remove(id);
        state.timed_out.retain(|timed_out| *timed_out != id);
    }

    /// Rolls back transactions that timed out (TXN-06). This only frees memory: a later use is
    /// refused anyway.
    pub fn expire(&self) {
        self.0.expire(self.0.broker.now());
    }

    /// Number of open transactions.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.0.lock().open.len()
    }

    /// Whether an open transaction has an operation, which would be lost with it.
    #[must_use]
    pub fn has_operations(&self) -> bool {
        // Every operation holds bytes.
        self.0.lock().bytes > 0
    }
}

impl Book {
    /// Rolls back transactions that timed out.
    fn expire(&self, now: Timestamp) {
        self.lock().expire(now, self.open_count_max());
    }

    fn open_count_max(&self) -> usize {
        self.broker.settings().limits.transaction_open_count_max
    }

    /// Locks the state, which no panic can leave inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TransactionOwner for Book {
    fn roll_back_if_evictable(&self, id: TransactionId, now: Timestamp) {
        let mut state = self.lock();
        if state.open.get(&id).is_some_and(|begun| begun.eviction_time().is_evictable(now)) {
            state.time_out(id, self.open_count_max());
        }
    }

    fn roll_back_oldest(&self, bytes: u64) {
        let mut state = self.lock();
        if state.held_bytes() / 2 > bytes
            && let Some(oldest) = state.registration.first()
        {
            state.time_out(oldest, self.open_count_max());
        }
    }
}

impl State {
    const fn new(registration: BudgetRegistration) -> Self {
        Self { open: BTreeMap::new(), registration, timed_out: VecDeque::new(), bytes: 0 }
    }

    /// Bytes held by the open transactions.
    fn held_bytes(&self) -> u64 {
        self.bytes + BEGUN_BYTES * self.open.len() as u64
    }

    /// Returns the request for room of an operation of this transaction, or of a new transaction.
    fn room_request(&self, transaction: Option<TransactionId>) -> RoomRequest {
        self.registration.room_request(transaction, self.held_bytes())
    }

    /// Records a change of a transaction's end or of the held bytes.
    fn note(&mut self, id: TransactionId, ends: (Option<EvictionTime>, Option<EvictionTime>)) {
        let held_bytes = self.held_bytes();
        self.registration.note(held_bytes, id, ends);
    }

    /// Makes place for another transaction if the maximum is reached: evicts transactions that
    /// timed out, else one that has been empty for the maximum duration.
    fn make_place(&mut self, now: Timestamp, count_max: usize) -> Result<(), Rejection> {
        if self.open.len() < count_max {
            return Ok(());
        }
        self.expire(now, count_max);
        if self.open.len() >= count_max
            && let Some(empty) = self.registration.long_empty(now)
        {
            self.time_out(empty, count_max);
        }
        if self.open.len() < count_max {
            return Ok(());
        }
        Err(Rejection::quota_exceeded(format!(
            "the connection already has {count_max} open transactions, the limit; commit or roll \
             back one first"
        )))
    }

    /// Returns an open transaction that has not timed out.
    fn find(
        &mut self,
        id: TransactionId,
        now: Timestamp,
        count_max: usize,
    ) -> Result<&mut TransactionEntry, Rejection> {
        if self.open.get(&id).is_some_and(|begun| begun.transaction.is_over(now)) {
            self.time_out(id, count_max);
        }
        if !self.open.contains_key(&id) && self.timed_out.contains(&id) {
            return Err(Rejection::new(
                Condition::TransactionTimedOut,
                format!(
                    "transaction {id} took too long, or held memory that others needed, and was \
                     rolled back; repeat it"
                ),
            ));
        }
        self.open.get_mut(&id).ok_or_else(|| unknown(id))
    }

    fn remove(&mut self, id: TransactionId) -> Option<TransactionEntry> {
        let removed = self.open.remove(&id)?;
        self.bytes -= removed.transaction.bytes();
        self.note(id, (Some(removed.eviction_time()), None));
        Some(removed)
    }

    fn time_out(&mut self, id: TransactionId, count_max: usize) {
        self.remove(id);
        self.timed_out.push_back(id);
        // For older ones, the cause of their end is forgotten.
        while self.timed_out.len() > count_max {
            self.timed_out.pop_front();
        }
    }

    fn expire(&mut self, now: Timestamp, count_max: usize) {
        while let Some(over) = self.registration.timed_out(now) {
            self.time_out(over, count_max);
        }
    }
}

impl TransactionEntry {
    /// Time until which it keeps its room for certain.
    fn eviction_time(&self) -> EvictionTime {
        self.transaction
            .deadline()
            .map_or(EvictionTime::Empty(self.empty_until), EvictionTime::Timeout)
    }

    /// Returns the entity that carries out an operation. In a transaction across entities, a
    /// message for another entity goes through the root: the fixed one, or else the first entity
    /// used (TXN-09, VIA-05).
    fn route(
        &self,
        entity: &Entity,
        root: Entity,
        operation: Operation,
    ) -> Result<(Entity, Entity, Operation), Rejection> {
        let covered = self.transaction.root();
        let first = self.root.as_ref().filter(|via| covered == Some(via.id()));
        let via = self.anchor.as_ref().or(first);
        match (via, operation) {
            (Some(via), Operation::Send { message })
                if self.reach == Reach::CrossEntity && via.id() != entity.id() =>
            {
                let (via_handle, operation) = via_operation(via, entity, vec![message])?;
                Ok((via_handle, via.clone(), operation))
            }
            (Some(via), Operation::SendBatch { messages })
                if self.reach == Reach::CrossEntity && via.id() != entity.id() =>
            {
                let (via_handle, operation) = via_operation(via, entity, messages)?;
                Ok((via_handle, via.clone(), operation))
            }
            (_, operation) => Ok((entity.clone(), root, operation)),
        }
    }
}

/// Converts a send to another entity into a send through the covered one, with the grant of the
/// handle on the other.
fn via_operation(
    via: &Entity,
    entity: &Entity,
    messages: Vec<InboundMessage>,
) -> Result<(Entity, Operation), Rejection> {
    let destination = via.broker().find_destination(entity.path(), via)?;
    let entitlement = entity.pass().map(|pass| Arc::clone(&pass.entitlement));
    let via_handle =
        via.clone().with_via_grant(ViaGrant::new(Arc::clone(&destination), entitlement));
    Ok((via_handle, Operation::SendVia { destination, messages }))
}

impl PendingPart {
    /// Keeps the operation in the transaction, after the entity has agreed and reserved numbers for
    /// its messages.
    pub fn confirm(mut self, outcome: &Outcome) {
        self.is_confirmed = true;
        let numbers = match outcome {
            Outcome::NumbersReserved { numbers, .. } => numbers.clone(),
            _ => Vec::new(),
        };
        if let Some(begun) = self.book.lock().open.get_mut(&self.id) {
            begun.transaction.confirm(self.place, numbers);
        }
    }
}

impl Drop for PendingPart {
    fn drop(&mut self) {
        if self.is_confirmed {
            return;
        }
        let mut state = self.book.lock();
        if let Some(begun) = state.open.get_mut(&self.id) {
            let bytes = begun.transaction.leave_out(self.place);
            let end = Some(begun.eviction_time());
            state.bytes -= bytes;
            state.note(self.id, (end, end));
        }
    }
}

fn unknown(id: TransactionId) -> Rejection {
    Rejection::new(Condition::TransactionUnknown, format!("there is no open transaction {id}"))
}

#[cfg(test)]
mod tests;
