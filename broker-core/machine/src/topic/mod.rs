//! The topic: a machine that publishes each message to its subscriptions.
//!
//! ```text
//!              publish            Matcher: rules of all subscriptions
//!  sender ───────────────► one change: content once, a numbered copy for each that selects it
//!     │ scheduled             │             ▲
//!     ▼                       │             │ instant reached, content loaded
//!  Scheduled ─────────────────┼─────────────┘
//!                             ▼
//!                 the family's boxes of arrivals ──► subscriptions, each a queue of its own
//! ```
//!
//! A topic holds only scheduled messages; a published message is in the subscriptions at once
//! (DLQ-32). Messages that are sent to another entity via the topic wait in an inner queue
//! (`outbox.rs`, VIA-01). Only the topic numbers and writes the messages of its subscriptions, so
//! that the acceptance of a publish and all its copies are one change (TOP-07). It also has the
//! rules, since it evaluates them.
//!
//! A topic deliberately cannot receive. The other files of this folder are its operations;
//! `records` converts changes to records and back.

mod act;
mod ahead;
mod arrive;
mod copies;
mod enact;
mod idle;
mod inspect;
mod invariant;
mod outbox;
mod peer;
mod publish;
mod records;
mod rules;
mod schedule;
mod subscriptions;
#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that goes wrong may panic"
)]
mod tests;
mod transaction;
mod update;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use peeklock_model::inspect::Readings;
use siphasher::sip128::SipHasher24;

use super::act::{ActOnMessages as _, Receipts};
use super::due::DueIndex;
use super::duplicate_history::DuplicateHistory;
use super::excerpt::answer;
use super::family::{CopySettings, Family};
use super::idle::IdleDetection as _;
use super::intake::Intake;
use super::peers::Peers;
use super::queue::{Queue, QueueConfig};
use super::slot::{Mark, SlotState, SlotTable};
use super::usage::Usage;
use super::{
    CorruptRecord, Ctx, Machine, MemoryUse, MoveLimit, Preparation, StageNumber, StepOutput,
};
use crate::change::{Change, Durability};
use crate::command::{Command, Counts, DescribedTopic, OperatorCommand, Outcome, TopicCommand};
use crate::description::TopicDescription;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber, Ticket};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::record::{Batch, Key};
use crate::rule::{Matcher, RulePlace};
use crate::time::Timestamp;
use crate::transaction::Part;

/// State of a topic.
pub struct Topic {
    id: EntityId,
    description: Arc<TopicDescription>,
    config: QueueConfig,
    /// Scheduled messages.
    slots: SlotTable,
    /// The entity in which a scheduled message was dead-lettered, if it comes from a dead-letter
    /// queue (FWD-26).
    sources: BTreeMap<SequenceNumber, Arc<str>>,
    /// Sum of the sizes of scheduled messages.
    scheduled_bytes: u64,
    /// The highest number that was given, and the highest number in the store.
    last_sequence: SequenceNumber,
    stored_sequence: SequenceNumber,
    /// Scheduled messages, by the instant of the next attempt to publish them.
    schedule: DueIndex,
    /// Instants of the next attempts with messages that could not be published when they were due.
    retries: BTreeMap<SequenceNumber, Timestamp>,
    /// Due messages whose contents were requested and have not arrived.
    loading: VecDeque<SequenceNumber>,
    duplicates: Option<Box<DuplicateHistory>>,
    /// Messages that other brokers forwarded here recently.
    peers: Peers,
    /// Last steps of operators' jobs, without those on messages of the outbox, which has its own.
    receipts: Receipts,
    /// Messages sent via the topic; created with the first one.
    outbox: Option<Box<Queue>>,
    /// Messages with a synced change that is not yet durable, by its stage.
    in_flight: VecDeque<(StageNumber, SequenceNumber)>,
    matcher: Matcher,
    /// Results of judging ahead for the next command.
    ahead: Option<Box<ahead::JudgedAhead>>,
    /// Without such results: the maximum bytes that rules can set on the copies of the next
    /// command.
    set_bytes: u64,
    /// Steps spent on judging, or estimated for light commands, since the last
    /// [`Machine::take_evaluation_steps`].
    judged_steps: u64,
    /// Maximum number of messages of the outbox that time moves in a step.
    move_limit: MoveLimit,
    subscriptions: BTreeMap<EntityId, Subscription>,
    /// Number of subscriptions that require sessions.
    session_subscription_count: usize,
    usage: Usage,
    /// Data from the subscriptions: their last use, whether one is permanently in use, and the
    /// bytes of the whole tree.
    family_summary: FamilySummary,
}

/// Data of a subscription that the topic needs.
#[derive(Debug)]
struct Subscription {
    /// Name as given at creation, for explanations of a catch-all that was not evaluated (TOP-30).
    name: Box<str>,
    /// The highest number that was given there.
    last_sequence: SequenceNumber,
    settings: CopySettings,
}

/// Returns 1 if the subscription counts for [`Topic::session_subscription_count`], else 0.
fn sessions_of(subscription: Option<&Subscription>) -> usize {
    subscription.map_or(0, |one| usize::from(one.settings.rules.requires_session))
}

#[derive(Clone, Copy, Debug, Default)]
struct FamilySummary {
    used_at: Timestamp,
    is_in_use: bool,
    receiver_count: usize,
    /// Bytes at the last list of commands, with the changes of the current list.
    size_bytes: u64,
}

impl Topic {
    /// Returns a topic without subscriptions.
    #[must_use]
    pub fn new(
        id: EntityId,
        description: TopicDescription,
        config: QueueConfig,
        now: Timestamp,
    ) -> Self {
        let duplicates = description.requires_duplicate_detection.then(Box::default);
        Self {
            id,
            description: Arc::new(description),
            config,
            slots: SlotTable::default(),
            sources: BTreeMap::new(),
            scheduled_bytes: 0,
            last_sequence: SequenceNumber(0),
            stored_sequence: SequenceNumber(0),
            schedule: DueIndex::default(),
            retries: BTreeMap::new(),
            loading: VecDeque::new(),
            duplicates,
            peers: Peers::default(),
            receipts: Receipts::default(),
            outbox: None,
            in_flight: VecDeque::new(),
            matcher: Matcher::new(),
            ahead: None,
            set_bytes: 0,
            judged_steps: 0,
            move_limit: MoveLimit::default(),
            subscriptions: BTreeMap::new(),
            session_subscription_count: 0,
            usage: Usage::starting(now),
            family_summary: FamilySummary::default(),
        }
    }

    /// Id of the topic.
    #[must_use]
    pub const fn id(&self) -> EntityId {
        self.id
    }

    /// The settable properties, shared with the subscriptions.
    #[must_use]
    pub const fn description(&self) -> &Arc<TopicDescription> {
        &self.description
    }

    /// Message counts: scheduled messages, and the messages of the outbox (CNT-04, VIA-06).
    #[must_use]
    pub fn counts(&self) -> Counts {
        let sent_on = self.outbox.as_ref().map(|outbox| outbox.counts()).unwrap_or_default();
        Counts { scheduled: self.slots.len() as u64, ..sent_on }
    }

    /// Sum of the stored sizes of its own messages, without its subscriptions.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.scheduled_bytes + self.outbox.as_ref().map_or(0, |outbox| outbox.size_bytes())
    }

    /// Live figures, in constant time (CON-04).
    #[must_use]
    pub fn readings(&self) -> Readings {
        let outbox = self.outbox.as_ref().map(|outbox| outbox.readings()).unwrap_or_default();
        Readings {
            counts: self.counts(),
            size_bytes: self.size_bytes(),
            oldest_at: None,
            last_sequence: self.last_sequence,
            receivers: outbox.receivers,
            locks: outbox.locks,
            size_bytes_max: self.description.size_bytes_max(),
            status: self.description.status,
        }
    }

    /// Whether a message of its transfer dead-letter queue is locked. Subscriptions have locks of
    /// their own.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.has_locks())
    }

    /// Rules of all subscriptions.
    #[must_use]
    pub const fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    fn path(&self) -> &str {
        &self.description.path
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

    /// Keyed hash that identifies the record of a rule.
    fn rule_hash(&self, name: &str) -> u128 {
        let name = name.to_ascii_lowercase();
        SipHasher24::new_with_key(&self.config.duplicate_key).hash(name.as_bytes()).as_u128()
    }

    fn describe(&self) -> DescribedTopic {
        let counts = self.counts();
        let correlation_rules = self.matcher.correlation_rule_count();
        let sql_rules = self.matcher.rule_count().saturating_sub(correlation_rules);
        DescribedTopic {
            description: (*self.description).clone(),
            subscription_count: self.subscriptions.len() as u64,
            sql_rule_count: sql_rules as u64,
            correlation_rule_count: correlation_rules as u64,
            scheduled: counts.scheduled,
            transfer: counts.transfer,
            transfer_dead_letter: counts.transfer_dead_letter,
            size_bytes: self.family_summary.size_bytes,
            last_sequence: self.last_sequence,
            created_at: self.usage.created_at,
            updated_at: self.usage.updated_at,
            accessed_at: self.usage.last_at.max(self.family_summary.used_at),
        }
    }

    /// Refuses the dead-letter queue, which a topic does not have (ADR-14, DLQ-32). The outbox has
    /// the transfer dead-letter queue.
    fn refuse_sub_queue(&self, sub_queue: SubQueue) -> Result<(), Rejection> {
        match sub_queue {
            SubQueue::Main | SubQueue::TransferDeadLetter => Ok(()),
            SubQueue::DeadLetter => {
                let path = format!("{}{}", self.path(), sub_queue.suffix());
                Err(Rejection::entity_not_found(&path))
            }
        }
    }

    /// Returns the rejection of a receive or peek: a topic holds no messages for receivers (RCV-30,
    /// PEK-11). Types cannot express this, since the transfer dead-letter queue of a topic accepts
    /// the same commands over the same handle and inlet ([`Topic::is_for_outbox`]).
    fn refuse_receiving(&self) -> Rejection {
        Rejection::invalid_operation(format!(
            "`{}` is a topic: receive its messages from a subscription",
            self.path()
        ))
    }
}

impl Machine for Topic {
    fn apply(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        command: Command,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if let Err(refused) = self.refuse_sub_queue(sub_queue) {
            self.ahead = None;
            return Err(refused);
        }
        if self.is_for_outbox(sub_queue, &command) {
            self.ahead = None;
            return self.with_outbox(ctx.now, |outbox| {
                outbox.apply(ticket, sub_queue, command, ctx, step)
            });
        }
        let result = match command {
            Command::Send { message } => self.send(message, ctx, step),
            Command::SendBatch { messages } => self.send_batch(messages, ctx, step),
            Command::CancelScheduled { sequences } => self.cancel_scheduled(&sequences, ctx, step),
            Command::OfTopic(command) => self.apply_own(ticket, command, ctx, step),
            Command::Describe => {
                Ok(Answer::after_commit(Outcome::TopicDescribed(Box::new(self.describe()))))
            }
            // Without an outbox the topic has no receivers and no waiting calls.
            Command::Detach { .. } => Ok(Answer::after_commit(Outcome::Done)),
            Command::CancelReceive { .. } => Ok(Answer::Now(Outcome::Done, Gate::Open)),
            Command::TransferFromPeer { source, messages } => {
                Ok(self.transfer_from_peer(source, messages, ctx, step))
            }
            Command::TransferIn { messages, when_full } => {
                Ok(self.transfer_in(messages, when_full, ctx, step))
            }
            Command::Check { operation } => self.check(operation, ctx, step),
            Command::Commit { parts } => self.commit(parts, ctx, step),
            Command::Inspect(inquiry) => self.inspect(sub_queue, &inquiry, ctx.now).map(answer),
            Command::OfOperator(OperatorCommand::Act(act)) => self.act(sub_queue, &act, ctx, step),
            Command::OfOperator(OperatorCommand::ForgetJob(job)) => {
                Ok(self.forget_job(job, ctx, step))
            }
            Command::Update { .. } | Command::UpdateSubscription { .. } => {
                Err(Rejection::invalid_operation(format!(
                    "`{}` is a topic, which has other properties",
                    self.path()
                )))
            }
            Command::Receive { .. }
            | Command::ReceiveDeferred { .. }
            | Command::Attach { .. }
            | Command::SetCredit { .. }
            | Command::Settle { .. }
            | Command::RenewLock { .. }
            | Command::AcceptSession { .. }
            | Command::InSession { .. }
            | Command::PeekSession { .. }
            | Command::ListSessions { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::Peek { .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteDeferred { .. }
            | Command::OfOperator(_)
            // The outbox handles these two in any sub-queue.
            | Command::SendVia { .. }
            | Command::EndTransfer { .. } => Err(self.refuse_receiving()),
        };
        self.ahead = None;
        result
    }

    fn prepare(&mut self, ahead: Preparation<'_>, ctx: &mut Ctx<'_>) -> bool {
        self.judge_ahead(ahead, ctx)
    }

    fn is_long(&self, ahead: Preparation<'_>, now: Timestamp, limits: &Limits) -> bool {
        if let Preparation::Command { command, .. } = ahead
            && crate::is_long(self.work_of(command, now, limits))
        {
            return true;
        }
        self.is_long_to_judge(ahead, now)
    }

    fn work_of(&self, command: &Command, now: Timestamp, limits: &Limits) -> u64 {
        self.work_of_command(command, now, limits)
    }

    fn overlays_of_settled(&self, part: &Part) -> u64 {
        match (&self.outbox, part.member) {
            (Some(outbox), None) => outbox.overlays_of_settled(part),
            // A subscription counts the overlays of its own messages.
            _ => 0,
        }
    }

    fn rule_name(&self, rule: RulePlace) -> Option<&str> {
        self.matcher.name_at(rule)
    }

    fn take_evaluation_steps(&mut self) -> u64 {
        std::mem::take(&mut self.judged_steps)
    }

    fn set_move_limit(&mut self, limit: MoveLimit) {
        self.move_limit = limit;
        if let Some(outbox) = &mut self.outbox {
            outbox.set_move_limit(limit);
        }
    }

    fn is_behind(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_behind())
    }

    fn advance(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        self.advance_outbox(ctx, step);
        self.ask_for_due(ctx, step);
        self.forget_ids(ctx, step);
    }

    fn serve(&mut self, ctx: &mut Ctx<'_>, step: &mut StepOutput) {
        self.serve_outbox(ctx, step);
        self.report_idle(ctx, step);
    }

    fn committed(&mut self, stage: StageNumber) {
        if let Some(outbox) = &mut self.outbox {
            outbox.committed(stage);
        }
        while let Some((carried_by, sequence)) = self.in_flight.front().copied() {
            if carried_by > stage {
                break;
            }
            self.in_flight.pop_front();
            if let Some(slot) = self.slots.get_mut(sequence) {
                slot.marks.clear(Mark::InFlight);
                let at = slot.enqueued_at;
                self.watch_schedule(sequence, at);
            }
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let schedule = if self.loading.is_empty() { self.schedule.next_deadline() } else { None };
        let window = self.description.duplicate_detection_history_time_window;
        let history = self.duplicates.as_ref().and_then(|history| history.next_deadline(window));
        let outbox = self.outbox.as_ref().and_then(|outbox| outbox.next_deadline());
        [schedule, history, outbox, self.idle_deadline()].into_iter().flatten().min()
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
        let waiting: Vec<(SequenceNumber, Timestamp)> =
            self.slots.iter().map(|(sequence, slot)| (sequence, slot.enqueued_at)).collect();
        for (sequence, at) in waiting {
            self.schedule.insert(at, sequence);
        }
        if let Some(outbox) = &mut self.outbox {
            outbox.restored(now);
        }
        self.usage.restart(now);
    }

    fn take_from_family(&mut self, family: &mut Family, now: Timestamp) {
        for (id, settings) in family.altered() {
            if let Some(subscription) = self.subscriptions.get_mut(&id) {
                subscription.settings = settings;
                self.matcher.restore_subscription(id, settings.rules);
            }
        }
        // A subscription that is permanently in use is in use now (TMP-15).
        let used_at = if family.is_in_use() { now } else { family.used_at() };
        self.family_summary = FamilySummary {
            used_at: self.family_summary.used_at.max(used_at),
            is_in_use: family.is_in_use(),
            receiver_count: family.subscription_receiver_count(),
            size_bytes: family.size_bytes,
        };
    }

    fn report_to_family(&self, family: &mut Family) {
        let receivers = self.outbox.as_ref().map_or(0, |outbox| outbox.receiver_count());
        family.note_topic_receivers(receivers);
    }

    fn loaded(
        &mut self,
        contents: Vec<(SequenceNumber, Option<Bytes>)>,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) {
        self.publish_due(contents, ctx, step);
        self.ahead = None;
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse {
            messages: self.slots.len() as u64,
            duplicate_ids: self.duplicates.as_ref().map_or(0, |history| history.len() as u64)
                + (self.peers.len() + self.receipts.len()) as u64
                + self.outbox.as_ref().map_or(0, |outbox| outbox.receipt_count()) as u64,
            delayed: self.slots.len() as u64,
            rules: self.matcher.rule_count() as u64,
            sessions: 0,
            described_bytes: self.description.text_bytes() + self.matcher.memory_bytes(),
            judged_bytes: self.ahead.as_ref().map_or(0, |ahead| ahead.kept_bytes()),
        }
    }

    fn send_overhead(&self) -> u64 {
        self.overhead_bytes()
    }

    fn rule_bytes_max(&self) -> u64 {
        self.set_bytes
    }

    fn judged_bytes(&self) -> Option<u64> {
        self.ahead.as_ref().map(|ahead| ahead.staged_bytes(self.session_subscription_count > 0))
    }

    fn content_key(&self, sequence: SequenceNumber) -> Key {
        crate::change::codec::slot_key(self.id, sequence)
    }

    fn overlay_key(&self, sequence: SequenceNumber, index: u16) -> Key {
        crate::change::codec::overlay_key(self.id, sequence, index)
    }
}

impl Topic {
    fn apply_own(
        &mut self,
        ticket: Ticket,
        command: TopicCommand,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        match command {
            TopicCommand::Update { description, read_at } => {
                self.update(description, read_at, ctx, step)
            }
            TopicCommand::CreateSubscription { id, description, rules } => {
                self.create_subscription(ticket, id, description, rules, ctx, step)
            }
            TopicCommand::RemoveSubscription { id } => self.remove_subscription(id, ctx, step),
            TopicCommand::InSubscription { subscription, command } => {
                self.in_subscription(ticket, subscription, command, ctx, step)
            }
        }
    }

    /// Whether a scheduled message exists and can be cancelled.
    fn is_durably_scheduled(&self, sequence: SequenceNumber) -> bool {
        self.slots
            .get(sequence)
            .is_some_and(|slot| slot.state == SlotState::Scheduled && !slot.is_in_flight())
    }
}
