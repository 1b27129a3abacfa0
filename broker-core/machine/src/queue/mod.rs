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
//! The dead-letter and the transfer dead-letter queue are sub-queues of the same machine: a move
//! changes one slot. The other files of this folder are the operations of the protocol, and the
//! modules that they share: `location` keeps the location of each message, `enact` carries
//! changes out, `records` converts changes to records and back, `tally` counts, `demand` has the
//! waiting receivers, `describe` reports counts and sizes.
//!
//! In a queue that requires sessions, each session has its own available messages, lock and demand
//! (`session/`). Numbers, slots, schedules and the dead-letter queues belong to the queue.
//!
//! A subscription of a topic is the same machine in another role (`subscription.rs`): clients
//! cannot send to it, and its topic numbers and stores its messages. Messages sent via a topic wait
//! in a third role (`outbox.rs`).
//!
//! A transaction reaches the queue only at its end, when one command carries all its operations
//! out.
//!
//! Transfers move messages to and from other entities (`transfer/`). A message is frozen while it
//! is on its way.

mod act;
mod browse;
mod dead_letter;
mod defer;
mod demand;
mod describe;
mod enact;
mod expire;
mod facts;
mod idle;
mod inspect;
mod invariant;
mod location;
mod lock;
mod operator;
mod outbox;
mod overlay_histogram;
mod put_back;
mod receive;
mod records;
mod retry;
mod schedule;
mod send;
mod session;
mod settle;
mod subscription;
mod tally;
#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that goes wrong may panic"
)]
mod tests;
mod transaction;
mod transfer;
mod update;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::demand::{Calls, Lane, LinkLimits, ReceiveCall, ReceiverLink, Ring};
use self::expire::Expiry;
use self::facts::MessageView;
use self::outbox::OutboxRole;
use self::retry::Delays;
use self::session::{Accept, ListRequest, Sessions};
use self::subscription::SubscriptionRole;
use self::tally::Tally;
use self::transfer::Transfers;
use super::act::Receipts;
use super::due::DueIndex;
use super::duplicate_history::DuplicateHistory;
use super::excerpt::answer;
use super::family::Family;
use super::idle::IdleDetection as _;
use super::intake::Intake;
use super::lock_table::LockTable;
use super::peers::Peers;
use super::sequence_set::SequenceSet;
use super::slot::{Mark, SlotTable};
use super::usage::Usage;
use super::{
    AcceptedMessages, CorruptRecord, Ctx, Machine, MemoryUse, MoveLimit, Preparation, StageNumber,
    StepOutput,
};
use crate::change::{Change, Durability};
use crate::command::{Command, LinkEnd, Outcome, ReceiveMode};
use crate::description::QueueDescription;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::{EntityId, ReceiverId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::record::{Batch, Key};
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::Part;

pub(crate) use self::act::{expiry_at, refuse_endless};
pub use self::invariant::BrokenInvariant;
pub(crate) use self::transaction::PlannedOperation;
pub use crate::config::{ForwardingConfig, QueueConfig};

/// Maximum number of messages that one command moves in addition to the messages that it names. The
/// passage of time has a bound of its own, [`Queue::move_limit`].
const COMMAND_MOVES_MAX: usize = MoveLimit::Many.max();

/// Maximum number of messages that one step hands out, and of sessions that it grants. The last
/// receive call of a step is still served completely. The next step continues at once.
const SERVED_PER_STEP: usize = 1_024;

/// The state of a queue.
pub struct Queue {
    id: EntityId,
    description: Box<QueueDescription>,
    config: QueueConfig,
    slots: SlotTable,
    /// The highest number that was given, and the highest number in the store.
    last_sequence: SequenceNumber,
    stored_sequence: SequenceNumber,
    main: SubQueueState,
    dead_letter: SubQueueState,
    transfer_dead_letter: SubQueueState,
    /// Locks on messages outside sessions.
    locks: LockTable,
    /// Holders that are gone with locks that are not ended yet, and how their links ended.
    detached: BTreeMap<ReceiverId, LinkEnd>,
    /// Sessions, in a queue that requires them.
    sessions: Option<Box<Sessions>>,
    schedule: DueIndex,
    expiry: Expiry,
    delays: Delays,
    duplicates: Option<Box<DuplicateHistory>>,
    /// Messages that other brokers forwarded here recently.
    peers: Peers,
    /// Last steps of operators' jobs.
    receipts: Receipts,
    /// Messages with a synced change that is not yet durable, by its stage.
    in_flight: VecDeque<(StageNumber, SequenceNumber)>,
    /// Links to sub-queues. The link and the calls of a session's holder are in the held session.
    links: BTreeMap<ReceiverId, ReceiverLink>,
    /// Links whose drain is answered at the end of the list of commands.
    draining: Vec<ReceiverId>,
    calls: Calls,
    /// Limit on the messages that time moves in a step, and whether the last step reached it.
    move_limit: MoveLimit,
    is_behind: bool,
    /// Whether unmatched demand and messages may exist, because a step serves a limited number.
    is_demand_behind: bool,
    /// Messages that leave for other entities.
    transfers: Transfers,
    tally: Tally,
    usage: Usage,
    /// Its role as a subscription of a topic.
    subscription: Option<Box<SubscriptionRole>>,
    /// Its role as the outbox of a topic.
    outbox: Option<OutboxRole>,
}

/// State of a sub-queue. An empty one allocates nothing.
#[derive(Default)]
struct SubQueueState {
    /// All its messages.
    members: SequenceSet,
    /// Messages for receivers: active, unlocked, durable.
    available: SequenceSet,
    /// Waiting receivers.
    ring: Ring,
    /// Links with credit, including links whose connections have no room.
    credited: BTreeSet<ReceiverId>,
}

impl Queue {
    /// Returns an empty queue.
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
            detached: BTreeMap::new(),
            sessions,
            schedule: DueIndex::default(),
            expiry: Expiry::default(),
            delays: Delays::default(),
            duplicates,
            peers: Peers::default(),
            receipts: Receipts::default(),
            in_flight: VecDeque::new(),
            links: BTreeMap::new(),
            draining: Vec::new(),
            calls: Calls::default(),
            move_limit: MoveLimit::default(),
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

    /// Id of the entity.
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

    /// Refuses to manage a sub-queue, which is managed with its parent only (DLQ-02).
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

    /// Carries a change out and adds it to the step.
    #[inline]
    fn change(
        &mut self,
        change: Change,
        durability: Durability,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        // The change is built in its final place: it is large, and most copying of the machine is
        // here.
        step.changes.push(change);
        if let Some(change) = step.changes.last() {
            self.enact(change, ctx.stage);
        }
        step.require(durability);
    }
}

/// Gate for the answer to a receive. A message under a lock is durable and stays; a removed message
/// leaves after its removal is durable.
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
        step: &mut StepOutput,
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
            Command::EndTransfer { list, departures } => {
                Ok(self.transfer_out(list, departures, ctx, step))
            }
            Command::TransferFromPeer { source, messages } => {
                self.transfer_from_peer(sub_queue, source, messages, ctx, step)
            }
            Command::CancelScheduled { sequences } => {
                self.cancel_scheduled(sub_queue, &sequences, ctx, step)
            }
            Command::Receive { mode, count_max, bytes_max, wait, holder } => {
                let call = ReceiveCall {
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
            Command::SetCredit { receiver, delivery_limit, byte_limit, drain } => {
                let limits = LinkLimits { delivery_limit, byte_limit, drain };
                self.grant(ticket, receiver, limits, ctx, step)
            }
            Command::Detach { receiver, end } => self.detach(receiver, end, ctx, step),
            Command::Settle { token, settlement } => {
                self.settle(sub_queue, token, settlement, ctx, step)
            }
            Command::RenewLock { token } => self.renew_lock(sub_queue, token, ctx, step),
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
            Command::ListSessions { which, after, skip, top } => {
                let request = ListRequest { which, after: after.as_deref(), skip, top };
                self.list_sessions(ticket, sub_queue, request, ctx)
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
            Command::OfOperator(command) => self.operate(sub_queue, command, ctx, step),
            Command::Check { operation } => self.check(sub_queue, operation, ctx, step),
            Command::Commit { parts } => self.commit(parts, ctx, step),
            Command::Inspect(inquiry) => self.inspect(sub_queue, &inquiry, ctx.now).map(answer),
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

    fn prepare(&mut self, ahead: Preparation<'_>, ctx: &mut Ctx<'_>) -> bool {
        let Preparation::Command { ticket, command } = ahead else { return true };
        let Command::ListSessions { which, after, skip, top } = command else {
            return true;
        };
        let request =
            ListRequest { which: *which, after: after.as_deref(), skip: *skip, top: *top };
        self.list_ahead(ticket, request, ctx)
    }

    fn is_long(&self, ahead: Preparation<'_>, now: Timestamp, limits: &Limits) -> bool {
        match ahead {
            Preparation::Command { command, .. } => self.is_long_command(command, now, limits),
            Preparation::Loaded { .. } => false,
        }
    }

    fn work_of(&self, command: &Command, now: Timestamp, limits: &Limits) -> u64 {
        self.work_of_command(command, now, limits)
    }

    fn set_move_limit(&mut self, limit: MoveLimit) {
        self.move_limit = limit;
    }

    fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        // All of these except `forget_ids` share one budget of moves. If it is used up, the rest is
        // due at once: the next deadline is then in the past.
        let mut moves = self.move_limit.max();
        self.reoffer_messages(&mut moves);
        self.reorder_delayed(&mut moves);
        self.end_detached_locks(&mut moves, ctx, step);
        self.end_locks(&mut moves, ctx, step);
        self.end_session_locks(&mut moves, ctx, step);
        self.enqueue_due(&mut moves, ctx, step);
        self.end_delays(&mut moves, ctx);
        self.forget_ids(ctx, step);
        self.expire(&mut moves, ctx, step);
        step.moves += (self.move_limit.max() - moves) as u64;
        self.is_behind = moves == 0;
    }

    fn prolong_locks(&mut self, span: TimeSpan) {
        self.prolong_all_locks(span);
    }

    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        let mut moves = self.move_limit.max();
        self.expire(&mut moves, ctx, step);
        self.is_behind |= moves == 0;
        // Messages that this step does not hand over to other entities do not set `is_behind`: the
        // next step takes them, and other commands go on meanwhile.
        self.hand_over(&mut moves, ctx, step);
        step.moves += (self.move_limit.max() - moves) as u64;
        let mut left = SERVED_PER_STEP;
        self.match_accepts(&mut left, ctx, step);
        self.match_sessions(&mut left, ctx, step);
        for which in SubQueue::ALL {
            self.match_demand(Lane::SubQueue(which), &mut left, ctx, step);
        }
        self.is_demand_behind = left == 0;
        // Waiting calls and drains end without messages only if all receivers were served, and if
        // no due messages are left for a long turn. Otherwise there may still be messages for them.
        if !(self.is_demand_behind || self.is_behind && self.move_limit == MoveLimit::Few) {
            self.end_calls(ctx, step);
            self.end_accepts(ctx, step);
            self.end_drains(step);
        }
        // Last, so that every command of the list counts as use.
        self.report_idle(ctx, step);
    }

    fn accepted_after(&self, seen: SequenceNumber) -> Option<AcceptedMessages> {
        Some(self.accepted_above(seen))
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
        let of_sessions = self.sessions.as_ref().and_then(|sessions| sessions.first_due());
        self.own_deadline().into_iter().chain(of_sessions).min()
    }

    fn deadline_of(&self, holder: ReceiverId) -> Option<Timestamp> {
        Some(self.sessions.as_ref()?.hold_of(holder)?.deadline())
    }

    fn own_deadline(&self) -> Option<Timestamp> {
        [
            self.locks.first().map(|lock| lock.until),
            self.detached_deadline(),
            (self.is_demand_behind || self.is_behind).then_some(Timestamp::NONE),
            self.cleanup_deadline(),
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
            self.reoffer_deadline(),
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
        self.send_messages_of_receipts();
        self.usage.restart(now);
    }

    fn take_from_family(&mut self, family: &mut Family, now: Timestamp) {
        self.take_arrivals(family, now);
    }

    fn report_to_family(&self, family: &mut Family) {
        self.report_to_family(family);
    }

    fn check_parts(&self, parts: Vec<Part>, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        self.check_all(parts, ctx)
    }

    fn overlays_of_settled(&self, part: &Part) -> u64 {
        self.overlays_settled_by(&part.operation)
    }

    fn memory_use(&self) -> MemoryUse {
        self.kept_in_memory()
    }

    fn content_key(&self, sequence: SequenceNumber) -> Key {
        crate::change::codec::slot_key(self.id, sequence)
    }

    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key {
        crate::change::codec::overlay_key(self.id, sequence, index)
    }
}
