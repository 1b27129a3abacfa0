//! The queue: a machine that owns its messages, locks, timers and demand.
//!
//! ```text
//!              send                      receive (lock)                complete
//!  sender ──────────────► Active ─────────────────────────► (locked) ───────────► gone
//!     │ scheduled          ▲ ▲ │ expired                       │ │ │
//!     ▼                    │ │ └──────────────► dead-letter    │ │ └─ dead-letter ─► dead-letter
//!  Scheduled ──────────────┘ │                  or gone        │ └─ defer ─► Deferred ─► by number
//!            instant reached └─────────────────────────────────┘            (locked) ...
//!                              abandon, lock end: count + 1, at MaxDeliveryCount to dead-letter,
//!                              with a delay or a retry policy Active later (`retry.rs`)
//! ```
//!
//! Dead-letter and transfer dead-letter queue are sub-queues of the same machine: moving there
//! changes one slot. The files beside this one are the operations of the protocol, and what they stand on:
//! `place` says where a message is, `enact` carries changes out with it, `records` makes records of them and
//! back, `tally` counts, `demand` has who waits, `describe` what is told of it all.
//!
//! In a queue that requires sessions, each session has what it offers, its lock and its demand of its
//! own (`session/`); numbers, slots, schedules and the dead-letter queues are those of the queue.
//!
//! A subscription of a topic is the same machine in another role (`subscription.rs`): nobody sends to it,
//! its topic numbers and stores what arrives. What is sent by way of a topic waits in a third role
//! (`outbox.rs`).
//!
//! A transaction meets the queue at its end only: one command carries all its operations out.
//!
//! Messages leave for another entity, and come from one, by transfers (`transfer/`): while it is under
//! way, a message is frozen.

mod browse;
mod dead_letter;
mod defer;
mod demand;
mod describe;
mod duplicate;
mod enact;
mod expire;
mod facts;
mod idle;
mod invariant;
mod laden;
mod lock;
mod outbox;
mod place;
mod receive;
mod records;
mod retry;
mod schedule;
mod send;
mod session;
mod settle;
#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that goes wrong may panic"
)]
mod slices;
mod steps;
mod subscription;
mod tally;
mod transaction;
mod transfer;
mod update;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::demand::{Call, Calls, Grant, Lane, Link, Ring};
use self::expire::Expiry;
use self::facts::Shown;
use self::outbox::OutboxRole;
use self::retry::Delays;
use self::session::{Accept, Sessions, Wanted};
use self::subscription::SubscriptionRole;
use self::tally::Tally;
use self::transfer::Transfers;
use super::due::DueIndex;
use super::duplicate_history::DuplicateHistory;
use super::family::Family;
use super::idle::Idles as _;
use super::intake::Intake;
use super::lock_table::LockTable;
use super::peers::Peers;
use super::sequence_set::SequenceSet;
use super::slot::{Mark, SlotTable};
use super::usage::Usage;
use super::{Ahead, CorruptRecord, Ctx, Kept, Machine, Moves, StageNumber, Step};
use crate::change::{Change, Durability};
use crate::command::{Command, LinkEnd, Outcome, ReceiveMode};
use crate::description::QueueDescription;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::{EntityId, ReceiverId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::store::{Batch, Key};
use crate::time::Timestamp;
use crate::transaction::Part;

pub use self::invariant::BrokenInvariant;
pub(crate) use self::transaction::Planned;
pub use crate::config::{ForwardingConfig, QueueConfig};

/// How many messages a command moves at most beside those that it names.
const MOVES_PER_STEP: usize = Moves::Many.max();

/// How many messages one step hands out, but for the last receive call that it serves, which gets all that it
/// asks for; and how many sessions it grants. The next step goes on at once.
const SERVED_PER_STEP: usize = 1_024;

/// The state of one queue.
pub struct Queue {
    id: EntityId,
    description: Box<QueueDescription>,
    config: QueueConfig,
    slots: SlotTable,
    /// The highest number given so far, and what the store has of it.
    last_sequence: SequenceNumber,
    stored_sequence: SequenceNumber,
    main: SubQueueState,
    dead_letter: SubQueueState,
    transfer_dead_letter: SubQueueState,
    /// Locks on messages that are in no session.
    locks: LockTable,
    /// Holders that are gone, with locks that are still to be ended, and how their links ended.
    parting: BTreeMap<ReceiverId, LinkEnd>,
    /// What there is of sessions, in a queue that requires them.
    sessions: Option<Box<Sessions>>,
    schedule: DueIndex,
    expiry: Expiry,
    delays: Delays,
    duplicates: Option<Box<DuplicateHistory>>,
    /// What other brokers have forwarded here of late.
    peers: Peers,
    /// Messages with a synced change that is not yet durable, by the stage that carries it.
    in_flight: VecDeque<(StageNumber, SequenceNumber)>,
    /// Links to sub-queues; that of a session is with its holder's lock, and so are its calls.
    links: BTreeMap<ReceiverId, Link>,
    /// Links whose drain is to be answered at the end of the list.
    draining: Vec<ReceiverId>,
    calls: Calls,
    /// How many messages time moves in one step, and whether that was too few for what was due.
    moves: Moves,
    is_behind: bool,
    /// Whether there may be demand and supply that have not met, because one step serves only so many.
    is_demand_behind: bool,
    /// What leaves for another entity.
    transfers: Transfers,
    tally: Tally,
    usage: Usage,
    /// What it is beside a queue, as a subscription of a topic.
    subscription: Option<Box<SubscriptionRole>>,
    /// What it is beside a queue, as the outbox of a topic.
    outbox: Option<OutboxRole>,
}

/// What a queue keeps of each of its sub-queues; an empty one allocates nothing.
#[derive(Default)]
struct SubQueueState {
    /// All its messages.
    members: SequenceSet,
    /// Those a receiver can get: active, unlocked, durable.
    available: SequenceSet,
    /// Who waits.
    ring: Ring,
    /// Links that have credit, those too whose connections have no room.
    credited: BTreeSet<ReceiverId>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(
        id: EntityId,
        description: QueueDescription,
        config: QueueConfig,
        now: Timestamp,
    ) -> Self {
        let duplicates = description.requires_duplicate_detection.then(Box::default);
        let sessions = description.requires_session.then(Box::default);
        Self {
            id,
            description: Box::new(description),
            config,
            slots: SlotTable::default(),
            last_sequence: SequenceNumber(0),
            stored_sequence: SequenceNumber(0),
            main: SubQueueState::default(),
            dead_letter: SubQueueState::default(),
            transfer_dead_letter: SubQueueState::default(),
            locks: LockTable::default(),
            parting: BTreeMap::new(),
            sessions,
            schedule: DueIndex::default(),
            expiry: Expiry::default(),
            delays: Delays::default(),
            duplicates,
            peers: Peers::default(),
            in_flight: VecDeque::new(),
            links: BTreeMap::new(),
            draining: Vec::new(),
            calls: Calls::default(),
            moves: Moves::default(),
            is_behind: false,
            is_demand_behind: false,
            transfers: Transfers::default(),
            tally: Tally::default(),
            usage: Usage::starting(now),
            subscription: None,
            outbox: None,
        }
    }

    /// The settable properties.
    #[must_use]
    pub fn description(&self) -> &QueueDescription {
        &self.description
    }

    /// The identity.
    #[must_use]
    pub const fn id(&self) -> EntityId {
        self.id
    }

    fn path(&self) -> &str {
        &self.description.path
    }

    const fn sub_queue(&self, which: SubQueue) -> &SubQueueState {
        match which {
            SubQueue::Main => &self.main,
            SubQueue::DeadLetter => &self.dead_letter,
            SubQueue::TransferDeadLetter => &self.transfer_dead_letter,
        }
    }

    const fn sub_queue_mut(&mut self, which: SubQueue) -> &mut SubQueueState {
        match which {
            SubQueue::Main => &mut self.main,
            SubQueue::DeadLetter => &mut self.dead_letter,
            SubQueue::TransferDeadLetter => &mut self.transfer_dead_letter,
        }
    }

    /// A sub-queue is managed with its parent only (DLQ-02).
    fn refuse_management(&self, sub_queue: SubQueue) -> Result<(), Rejection> {
        match sub_queue {
            SubQueue::Main => Ok(()),
            SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {
                Err(Rejection::invalid_operation(format!(
                    "`{}{}` is a sub-queue; manage its parent instead",
                    self.path(),
                    sub_queue.suffix()
                )))
            }
        }
    }

    /// Carries a change out and puts it into the step.
    #[inline]
    fn change(&mut self, change: Change, durability: Durability, ctx: &Ctx<'_>, step: &mut Step) {
        // Made where it stays: a change is large, and this is most of what the machine copies.
        step.changes.push(change);
        if let Some(change) = step.changes.last() {
            self.enact(change, ctx.stage);
        }
        step.require(durability);
    }

    /// A session that has expired and is not emptied yet, or whose hold has ended and that is not given back,
    /// is due at once.
    fn doom_deadline(&self) -> Option<Timestamp> {
        let is_behind = self
            .sessions
            .as_ref()
            .is_some_and(|sessions| !sessions.doomed.is_empty() || sessions.is_ending());
        is_behind.then_some(Timestamp::NONE)
    }
}

/// When the answer to a receive may leave: a message under a lock is durable and stays; a removed
/// one must first be gone for good.
const fn gate_of(mode: ReceiveMode) -> Gate {
    match mode {
        ReceiveMode::PeekLock => Gate::Open,
        ReceiveMode::ReceiveAndDelete => Gate::Commit,
    }
}

impl Machine for Queue {
    fn apply(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        command: Command,
        ctx: &mut Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        match command {
            Command::Send { .. }
            | Command::SendBatch { .. }
            | Command::TransferFromPeer { .. }
            | Command::CancelScheduled { .. }
                if self.subscription.is_some() =>
            {
                Err(self.refuse_sending(sub_queue))
            }
            Command::Send { message } => self.send(sub_queue, message, ctx, step),
            Command::SendBatch { messages } => self.send_batch(sub_queue, messages, ctx, step),
            Command::SendVia { destination, messages } => {
                self.send_via(sub_queue, &destination, messages, ctx, step)
            }
            Command::TransferIn { messages, when_full } => {
                Ok(self.transfer_in(messages, when_full, ctx, step))
            }
            Command::TransferOut { list, departures } => {
                Ok(self.transfer_out(list, departures, ctx, step))
            }
            Command::TransferFromPeer { source, messages } => {
                self.transfer_from_peer(sub_queue, source, messages, ctx, step)
            }
            Command::CancelScheduled { sequences } => {
                self.cancel_scheduled(sub_queue, &sequences, ctx, step)
            }
            Command::Receive { mode, count_max, bytes_max, wait, holder } => {
                let call = Call {
                    lane: Lane::SubQueue(sub_queue),
                    mode,
                    count_max,
                    bytes_max,
                    holder,
                    turn: 0,
                    deadline: ctx.now,
                };
                self.receive(ticket, call, wait, ctx)
            }
            Command::CancelReceive { call } => self.cancel_receive(call, ctx, step),
            Command::ReceiveDeferred { mode, sequences, holder } => {
                self.receive_deferred(sub_queue, mode, &sequences, holder, ctx, step)
            }
            Command::Attach { receiver, mode } => self.attach(sub_queue, receiver, mode, ctx),
            Command::Grant { receiver, delivery_limit, byte_limit, drain } => {
                let grant = Grant { delivery_limit, byte_limit, drain };
                self.grant(ticket, receiver, grant, ctx, step)
            }
            Command::Detach { receiver, end } => self.detach(receiver, end, ctx, step),
            Command::Settle { token, settlement } => {
                self.settle(sub_queue, token, settlement, ctx, step)
            }
            Command::RenewLock { token } => self.renew_lock(sub_queue, token, ctx),
            Command::AcceptSession { session, receiver, mode, wait } => {
                let accept = Accept { ticket, receiver, mode, deadline: ctx.now };
                self.accept_session(sub_queue, session.as_deref(), accept, wait, ctx, step)
            }
            Command::InSession { receiver, command } => {
                self.in_session(ticket, sub_queue, receiver, command, ctx, step)
            }
            Command::PeekSession { session, from, count_max } => {
                self.peek_session(sub_queue, &session, from, count_max, ctx)
            }
            Command::ListSessions { which, behind, skip, top } => {
                let wanted = Wanted { which, behind: behind.as_deref(), skip, top };
                self.list_sessions(ticket, sub_queue, wanted, ctx)
            }
            Command::DeleteBatchUnlocked { count_max, enqueued_before } => {
                self.delete_batch_unlocked(sub_queue, count_max, enqueued_before, ctx, step)
            }
            Command::Peek { from, count_max } => self.peek(sub_queue, from, count_max, ctx),
            Command::DeleteBatch { count_max, enqueued_before } => {
                self.delete_batch(sub_queue, count_max, enqueued_before, ctx, step)
            }
            Command::DeleteDeferred { sequence } => {
                self.delete_deferred(sub_queue, sequence, ctx, step)
            }
            Command::UpdateSubscription { description, read_at } => {
                self.refuse_management(sub_queue)?;
                self.update_subscription(description, read_at, ctx, step)
            }
            Command::OfTopic(_) => {
                self.refuse_management(sub_queue)?;
                Err(self.refuse_as_topic())
            }
            Command::Update { description, read_at } => {
                self.refuse_management(sub_queue)?;
                self.refuse_as_queue()?;
                self.update(description, read_at, ctx, step)
            }
            Command::Check { operation } => self.check(sub_queue, operation, ctx, step),
            Command::Commit { parts } => self.commit(parts, ctx, step),
            Command::Describe => {
                self.refuse_management(sub_queue)?;
                if let Some(described) = self.describe_subscription() {
                    let described = Box::new(described);
                    return Ok(Answer::after_commit(Outcome::SubscriptionDescribed(described)));
                }
                Ok(Answer::after_commit(Outcome::Described(Box::new(self.describe()))))
            }
        }
    }

    fn go_ahead(&mut self, ahead: Ahead<'_>, ctx: &mut Ctx<'_>) -> bool {
        let Ahead::Command { ticket, command } = ahead else { return true };
        let Command::ListSessions { which, behind, skip, top } = command else { return true };
        let wanted = Wanted { which: *which, behind: behind.as_deref(), skip: *skip, top: *top };
        self.list_ahead(ticket, wanted, ctx)
    }

    fn is_long(&self, ahead: Ahead<'_>, now: Timestamp, limits: &Limits) -> bool {
        match ahead {
            Ahead::Command { command, .. } => self.is_long_command(command, now, limits),
            Ahead::Loaded { .. } => false,
        }
    }

    fn steps_of(&self, command: &Command, now: Timestamp, limits: &Limits) -> u64 {
        self.steps_of_command(command, now, limits)
    }

    fn pace(&mut self, moves: Moves) {
        self.moves = moves;
    }

    fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut Step) {
        // One budget for all of it; what is left over is due at once.
        let mut moves = self.moves.max();
        self.sort_anew(&mut moves);
        self.reorder_delayed(&mut moves);
        self.end_parted(&mut moves, ctx, step);
        self.end_locks(&mut moves, ctx, step);
        self.end_session_locks(&mut moves, ctx, step);
        self.materialise(&mut moves, ctx, step);
        self.end_delays(&mut moves, ctx);
        self.forget_ids(ctx, step);
        self.expire(&mut moves, ctx, step);
        step.moves += (self.moves.max() - moves) as u64;
        self.is_behind = moves == 0;
    }

    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut Step) {
        let mut moves = self.moves.max();
        self.expire(&mut moves, ctx, step);
        self.is_behind |= moves == 0;
        // What is left for the next step does not hold up who asks something meanwhile.
        self.hand_over(&mut moves, ctx, step);
        step.moves += (self.moves.max() - moves) as u64;
        let mut left = SERVED_PER_STEP;
        self.match_accepts(&mut left, ctx, step);
        self.match_sessions(&mut left, ctx, step);
        for which in SubQueue::ALL {
            self.match_demand(Lane::SubQueue(which), &mut left, ctx, step);
        }
        self.is_demand_behind = left == 0;
        // Whose turn has not come is told nothing yet, nor is who waits for what a long turn moves.
        if !(self.is_demand_behind || self.is_behind && self.moves == Moves::Few) {
            self.end_calls(ctx, step);
            self.end_accepts(ctx, step);
            self.end_drains(step);
        }
        // Last, so that every command of the list counts as use.
        self.report_idle(ctx, step);
    }

    fn committed(&mut self, stage: StageNumber) {
        while let Some((carried_by, sequence)) = self.in_flight.front().copied() {
            if carried_by > stage {
                break;
            }
            self.in_flight.pop_front();
            if let Some(slot) = self.slots.get_mut(sequence) {
                slot.marks.clear(Mark::InFlight);
                self.offer(sequence);
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.committed(stage);
        }
        self.transfers.committed(stage);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let held = self.sessions.as_ref().and_then(|sessions| sessions.first_due());
        self.own_deadline().into_iter().chain(held).min()
    }

    fn deadline_of(&self, holder: ReceiverId) -> Option<Timestamp> {
        Some(self.sessions.as_ref()?.held_of(holder)?.deadline())
    }

    fn own_deadline(&self) -> Option<Timestamp> {
        [
            self.locks.first().map(|lock| lock.until),
            self.parting_deadline(),
            (self.is_demand_behind || self.is_behind).then_some(Timestamp::NONE),
            self.doom_deadline(),
            self.accept_deadline(),
            self.schedule.next_deadline(),
            self.delays.next_deadline(),
            self.expiry_deadline(),
            self.calls.first_deadline().map(|(at, _)| at),
            self.duplicates.as_ref().and_then(|history| {
                history.next_deadline(self.description.duplicate_detection_history_time_window)
            }),
            self.idle_deadline(),
            self.transfer_deadline(),
            self.sort_deadline(),
            self.reorder_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn enact(&mut self, change: &Change, stage: StageNumber) {
        self.enact_change(change, stage);
    }

    fn records(&self, change: &Change, batch: &mut Batch) {
        self.write_records(change, batch);
    }

    fn checkpoint(&mut self, now: Timestamp, batch: &mut Batch) -> Option<Durability> {
        self.write_counters(now, batch)
    }

    fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord> {
        self.read_record(key, value)
    }

    fn restored(&mut self, now: Timestamp) {
        self.forget_past_delays(now);
        let sequences: Vec<SequenceNumber> =
            self.slots.iter().map(|(sequence, _)| sequence).collect();
        for sequence in sequences {
            self.offer(sequence);
        }
        self.usage.restart(now);
    }

    fn take_in(&mut self, family: &mut Family, now: Timestamp) {
        self.take_arrivals(family, now);
    }

    fn give_out(&self, family: &mut Family) {
        self.tell_family(family);
    }

    fn check_parts(&self, parts: Vec<Part>, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        self.check_all(parts, ctx)
    }

    fn set_on_settled(&self, part: &Part) -> u64 {
        self.set_on_message_of(&part.operation)
    }

    fn kept(&self) -> Kept {
        self.kept_in_memory()
    }

    fn content_key(&self, sequence: SequenceNumber) -> Key {
        crate::change::codec::slot_key(self.id, sequence)
    }

    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key {
        crate::change::codec::overlay_key(self.id, sequence, index)
    }
}
