//! Machine of either kind, so that one actor type drives queues, subscriptions and topics. The
//! shell drives it; each call is dispatched to the machine inside.

use bytes::Bytes;
use peeklock_model::inspect::{EntitySetup, Readings};

use super::family::Family;
use super::idle::IdleDetection as _;
use super::queue::Queue;
use super::topic::Topic;
use super::{
    AcceptedMessages, CorruptRecord, Ctx, Machine, MemoryUse, MoveLimit, Preparation, StageNumber,
    StepOutput,
};
use crate::change::{Change, Durability};
use crate::command::{Command, Counts};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::{ReceiverId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::record::{Batch, Key};
use crate::rule::RulePlace;
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::Part;

/// A queue, also in the role of a subscription, or a topic.
pub enum AnyMachine {
    /// Holds messages for receivers.
    Queue(Box<Queue>),
    /// Publishes messages to its subscriptions.
    Topic(Box<Topic>),
}

/// Dispatches to the queue or the topic.
macro_rules! either {
    ($self:expr, $machine:ident => $do:expr) => {
        match $self {
            Self::Queue($machine) => $do,
            Self::Topic($machine) => $do,
        }
    };
}

impl AnyMachine {
    /// Message counts, in constant time (CNT-07).
    #[must_use]
    pub fn counts(&self) -> Counts {
        either!(self, machine => machine.counts())
    }

    /// Sum of the stored sizes of its own messages (CNT-08).
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        either!(self, machine => machine.size_bytes())
    }

    /// Instant at which the oldest message was enqueued that waits for a receiver; `None` for a
    /// topic.
    #[must_use]
    pub fn oldest_available_at(&self) -> Option<Timestamp> {
        match self {
            Self::Queue(queue) => queue.oldest_available_at(),
            Self::Topic(_) => None,
        }
    }

    /// Live figures, in constant time (CON-04).
    #[must_use]
    pub fn readings(&self) -> Readings {
        either!(self, machine => machine.readings())
    }

    /// Whether published properties are still in force (CON-38).
    #[must_use]
    pub fn has_setup(&self, setup: &EntitySetup) -> bool {
        either!(self, machine => machine.has_setup(setup))
    }

    /// Properties to publish (CON-38).
    #[must_use]
    pub fn setup(&self) -> EntitySetup {
        either!(self, machine => machine.setup())
    }

    /// Whether a message or a session is locked.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        either!(self, machine => machine.has_locks())
    }

    /// Whether the entity is due for deletion: it was reported idle and not used since.
    #[must_use]
    pub fn is_idle(&self, now: Timestamp) -> bool {
        either!(self, machine => machine.is_idle(now))
    }
}

impl Machine for AnyMachine {
    fn apply(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        command: Command,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        either!(self, machine => machine.apply(ticket, sub_queue, command, ctx, step))
    }

    fn prepare(&mut self, ahead: Preparation<'_>, ctx: &mut Ctx<'_>) -> bool {
        either!(self, machine => machine.prepare(ahead, ctx))
    }

    fn is_long(&self, ahead: Preparation<'_>, now: Timestamp, limits: &Limits) -> bool {
        either!(self, machine => machine.is_long(ahead, now, limits))
    }

    fn work_of(&self, command: &Command, now: Timestamp, limits: &Limits) -> u64 {
        either!(self, machine => machine.work_of(command, now, limits))
    }

    fn rule_name(&self, rule: RulePlace) -> Option<&str> {
        either!(self, machine => machine.rule_name(rule))
    }

    fn take_evaluation_steps(&mut self) -> u64 {
        either!(self, machine => machine.take_evaluation_steps())
    }

    fn set_move_limit(&mut self, limit: MoveLimit) {
        either!(self, machine => machine.set_move_limit(limit));
    }

    fn is_behind(&self) -> bool {
        either!(self, machine => machine.is_behind())
    }

    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        either!(self, machine => machine.advance(ctx, step));
    }

    fn prolong_locks(&mut self, span: TimeSpan) {
        either!(self, machine => machine.prolong_locks(span));
    }

    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        either!(self, machine => machine.serve(ctx, step));
    }

    fn committed(&mut self, stage: StageNumber) {
        either!(self, machine => machine.committed(stage));
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        either!(self, machine => machine.next_deadline())
    }

    fn own_deadline(&self) -> Option<Timestamp> {
        either!(self, machine => machine.own_deadline())
    }

    fn deadline_of(&self, holder: ReceiverId) -> Option<Timestamp> {
        either!(self, machine => machine.deadline_of(holder))
    }

    fn enact(&mut self, change: &Change, stage: StageNumber) {
        either!(self, machine => machine.enact(change, stage));
    }

    fn records(&self, change: &Change, batch: &mut Batch) {
        either!(self, machine => machine.records(change, batch));
    }

    fn checkpoint(&mut self, now: Timestamp, batch: &mut Batch) -> Option<Durability> {
        either!(self, machine => machine.checkpoint(now, batch))
    }

    fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), CorruptRecord> {
        either!(self, machine => machine.restore(key, value))
    }

    fn restored(&mut self, now: Timestamp) {
        either!(self, machine => machine.restored(now));
    }

    fn take_from_family(&mut self, family: &mut Family, now: Timestamp) {
        either!(self, machine => machine.take_from_family(family, now));
    }

    fn report_to_family(&self, family: &mut Family) {
        either!(self, machine => machine.report_to_family(family));
    }

    fn loaded(
        &mut self,
        contents: Vec<(SequenceNumber, Option<Bytes>)>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        either!(self, machine => machine.loaded(contents, ctx, step));
    }

    fn check_parts(&self, parts: Vec<Part>, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        either!(self, machine => machine.check_parts(parts, ctx))
    }

    fn overlays_of_settled(&self, part: &Part) -> u64 {
        either!(self, machine => machine.overlays_of_settled(part))
    }

    fn memory_use(&self) -> MemoryUse {
        either!(self, machine => machine.memory_use())
    }

    fn send_overhead(&self) -> u64 {
        either!(self, machine => machine.send_overhead())
    }

    fn rule_bytes_max(&self) -> u64 {
        either!(self, machine => machine.rule_bytes_max())
    }

    fn judged_bytes(&self) -> Option<u64> {
        either!(self, machine => machine.judged_bytes())
    }

    fn accepted_after(&self, seen: SequenceNumber) -> Option<AcceptedMessages> {
        either!(self, machine => machine.accepted_after(seen))
    }

    fn content_key(&self, sequence: SequenceNumber) -> Key {
        either!(self, machine => machine.content_key(sequence))
    }

    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key {
        either!(self, machine => machine.overlay_key(sequence, index))
    }
}
