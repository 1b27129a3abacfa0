//! Transfers: messages that leave for another entity, and messages that come from one (file 10).
//!
//! ```text
//!            ForwardTo, ForwardDeadLetteredMessagesTo: durable and unlocked      Taken
//!  Active ──────────────────► waiting ──hand over──► transferring ────────────────────► gone
//!  Pending (send-via) ──────────┘  ▲                   │       │ Refused
//!                     │            └── not taken yet ──┘       └──────► transfer dead-letter queue
//!                     └── hops used up ──────────────────────────────────► transfer dead-letter queue
//! ```
//!
//! After a list, these messages wait again (`depart.rs`): not tried, not admitted for a reason that
//! may pass, postponed, failed below MaxDeliveryCount, or of unknown outcome.
//!
//! Messages that a job sends leave in the same way, but are frozen while they wait, and return to
//! receivers if they are refused (`job.rs`).
//!
//! Each exit has a backlog, with at most one list in transit. So messages from one source arrive at
//! one destination in their order (FWD-10), for any result of a list. A list takes all messages
//! that wait meanwhile, up to 256 messages or 4 MiB, and costs one append. After a list that was
//! cut short by a refusal, lists start with 16 messages and double in length. All lists of a step
//! share one budget of moves; the next step continues (`turns.rs`).

mod arrive;
mod depart;
mod dispatch;
mod job;
mod peer;
mod pending;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::turns::{Position, Turns};
use super::{COMMAND_MOVES_MAX, Queue};
use crate::StageNumber;
use crate::error::Rejection;
use crate::ids::{JobId, SequenceNumber};
use crate::path::SubQueue;
use crate::sequence_set::SequenceSet;
#[cfg(test)]
use crate::slot::looks;
use crate::slot::{Mark, Slot, SlotState};
use crate::time::Timestamp;
use crate::transfer::ListNumber;

/// The sub-queues that can be forwarded; the transfer dead-letter queue cannot (FWD-29).
pub(super) const FORWARDED: [SubQueue; 2] = [SubQueue::Main, SubQueue::DeadLetter];

/// A way out of the queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Exit {
    /// By ForwardTo.
    Messages,
    /// By ForwardDeadLetteredMessagesTo.
    DeadLetters,
    /// To the destination that a sender named.
    Pending(Arc<str>),
    /// By the step of a job.
    Job(JobId),
}

/// Messages that wait at one exit. The backlog of a named destination is created with its first
/// waiting message, and removed when it has no more data ([`Transfers::forget_idle`]).
#[derive(Debug, Default)]
struct Backlog {
    /// Durable, unlocked messages that are not on any list.
    waiting: SequenceSet,
    /// The list in transit.
    list: Option<List>,
    /// Instant before which nothing is handed over.
    not_before: Timestamp,
    /// Number of failures of the forwarder in a row.
    failures: u32,
    /// Number of halvings of the next list, after the destination refused a message of an earlier
    /// list and did not examine the messages after it.
    halvings: u32,
    /// Stage with the results of a forwarder's last list, or with a dead-lettered message, until it
    /// is durable. Until then nothing leaves. So at most one list can be offered again after its
    /// delivery, which another broker can recognise, and a failed or dead-lettered message is in
    /// its place before later messages leave (FWD-10).
    blocked_until: Option<StageNumber>,
    /// Place of a named destination among the destinations with work.
    position: Option<Position>,
}

impl Backlog {
    /// Whether a list can be handed over once its delay has passed.
    fn can_have_list(&self) -> bool {
        self.list.is_none() && !self.waiting.is_empty() && self.blocked_until.is_none()
    }

    /// Marks all stages up to `stage` durable.
    fn stored(&mut self, stage: StageNumber) {
        if self.blocked_until.is_some_and(|carried_by| carried_by <= stage) {
            self.blocked_until = None;
        }
    }

    /// Whether the backlog has no data to keep.
    fn is_idle(&self) -> bool {
        self.list.is_none() && self.waiting.is_empty() && self.blocked_until.is_none()
    }
}

#[derive(Debug)]
struct List {
    number: ListNumber,
    sequences: Vec<SequenceNumber>,
}

/// Messages of a queue that leave for other entities.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    messages: Backlog,
    dead_letters: Backlog,
    pending: BTreeMap<Arc<str>, Backlog>,
    /// Messages of jobs whose receipts say that they are leaving. They are frozen while they wait.
    jobs: BTreeMap<JobId, Backlog>,
    /// Named destinations with work.
    turns: Turns,
    /// Named destinations that wait for a stage ([`Backlog::blocked_until`]), in the order of
    /// stages.
    blocked: VecDeque<(StageNumber, Arc<str>)>,
    /// Exits of all lists in transit.
    lists: BTreeMap<ListNumber, Exit>,
    /// Destination of each pending message.
    destinations: BTreeMap<SequenceNumber, Arc<str>>,
    last_list: ListNumber,
    /// Messages that were available, or waited at an exit, when a new description changed whether
    /// they are forwarded. They are offered again within the budget of each step; until then no
    /// receiver and no list gets them.
    to_reoffer: VecDeque<SequenceSet>,
    /// Stage of a new description that makes messages leave, until it is durable. Until then none
    /// leaves.
    description_stage: Option<StageNumber>,
    /// For a subscription: the highest number that the store knows, and the number that it will
    /// know with a stage in flight.
    stored_last: SequenceNumber,
    storing_last: Option<(StageNumber, SequenceNumber)>,
}

impl Transfers {
    fn backlog(&self, exit: &Exit) -> Option<&Backlog> {
        match exit {
            Exit::Messages => Some(&self.messages),
            Exit::DeadLetters => Some(&self.dead_letters),
            Exit::Pending(destination) => {
                #[cfg(test)]
                looks::count();
                self.pending.get(destination)
            }
            Exit::Job(job) => self.jobs.get(job),
        }
    }

    /// Changes the backlog of an exit, and updates its turn.
    fn alter<T>(&mut self, exit: &Exit, alter: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        match exit {
            Exit::Messages => Some(alter(&mut self.messages)),
            Exit::DeadLetters => Some(alter(&mut self.dead_letters)),
            Exit::Pending(destination) => self.alter_pending(destination, alter),
            Exit::Job(job) => self.jobs.get_mut(job).map(alter),
        }
    }

    /// Records a list in transit. The backlog may be gone by now: later messages may have been
    /// dead-lettered since the messages of the list were taken out, and the last of these removes
    /// the backlog ([`Self::forget_idle`]). Without its backlog the list would stay frozen
    /// permanently.
    fn begin_list(&mut self, exit: &Exit, list: List) {
        match exit {
            Exit::Messages | Exit::DeadLetters => {}
            Exit::Pending(destination) => {
                self.pending.entry(Arc::clone(destination)).or_default();
            }
            Exit::Job(job) => {
                self.jobs.entry(*job).or_default();
            }
        }
        self.alter(exit, |backlog| backlog.list = Some(list));
    }

    fn alter_pending<T>(
        &mut self,
        destination: &Arc<str>,
        alter: impl FnOnce(&mut Backlog) -> T,
    ) -> Option<T> {
        #[cfg(test)]
        looks::count();
        let backlog = self.pending.get_mut(destination)?;
        let altered = alter(backlog);
        self.turns.update(destination, backlog);
        Some(altered)
    }

    fn backlog_of_mut(&mut self, which: SubQueue) -> Option<&mut Backlog> {
        match which {
            SubQueue::Main => Some(&mut self.messages),
            SubQueue::DeadLetter => Some(&mut self.dead_letters),
            SubQueue::TransferDeadLetter => None,
        }
    }

    fn backlogs(&self) -> impl Iterator<Item = &Backlog> {
        let named = self.pending.values();
        #[cfg(test)]
        let named = named.inspect(|_| looks::count());
        [&self.messages, &self.dead_letters].into_iter().chain(named).chain(self.jobs.values())
    }

    /// Gives turns to destinations whose delay has passed. Each is a move.
    fn give_due_turns(&mut self, now: Timestamp, moves: &mut usize) {
        while *moves > 0
            && let Some(destination) = self.turns.first_due(now).cloned()
        {
            *moves -= 1;
            self.alter_pending(&destination, |backlog| backlog.not_before = Timestamp::NONE);
        }
    }

    /// Removes a message from all waiting sets, because it was removed, locked or moved.
    pub(super) fn withdraw(&mut self, sequence: SequenceNumber) {
        self.messages.waiting.remove(sequence);
        self.dead_letters.waiting.remove(sequence);
        for backlog in self.jobs.values_mut() {
            backlog.waiting.remove(sequence);
        }
        for messages in &mut self.to_reoffer {
            messages.remove(sequence);
        }
        if let Some(destination) = self.destinations.remove(&sequence) {
            self.alter_pending(&destination, |backlog| backlog.waiting.remove(sequence));
            self.forget_idle(&destination);
        }
    }

    /// Removes the backlog of a destination without waiting messages, list or unfinished stage. The
    /// next message creates it again, including one whose stage is in flight.
    fn forget_idle(&mut self, destination: &str) {
        if self.pending.get(destination).is_some_and(Backlog::is_idle) {
            self.pending.remove(destination);
        }
    }

    /// Lets no message leave by an exit until a stage is durable.
    fn block_until(&mut self, exit: &Exit, stage: StageNumber) {
        match exit {
            Exit::Messages => self.messages.blocked_until = Some(stage),
            Exit::DeadLetters => self.dead_letters.blocked_until = Some(stage),
            Exit::Pending(destination) => {
                let backlog = self.pending.entry(Arc::clone(destination)).or_default();
                if backlog.blocked_until.replace(stage) != Some(stage) {
                    self.blocked.push_back((stage, Arc::clone(destination)));
                }
                self.turns.update(destination, backlog);
            }
            Exit::Job(job) => self.jobs.entry(*job).or_default().blocked_until = Some(stage),
        }
    }

    /// Lets a frozen message wait at the exit of a job.
    fn wait_for_job(&mut self, job: JobId, sequence: SequenceNumber) {
        self.jobs.entry(job).or_default().waiting.insert(sequence);
    }

    /// Takes the messages that wait at the exit of a job.
    fn take_waiting(&mut self, job: JobId) -> Vec<SequenceNumber> {
        let Some(backlog) = self.jobs.get_mut(&job) else { return Vec::new() };
        std::mem::take(&mut backlog.waiting).iter_from(SequenceNumber(0)).collect()
    }

    /// Removes the exit of a job without waiting messages, list or unfinished stage.
    fn forget_idle_job(&mut self, job: JobId) {
        if self.jobs.get(&job).is_some_and(Backlog::is_idle) {
            self.jobs.remove(&job);
        }
    }

    /// Jobs whose messages wait; an entity keeps few receipts.
    fn jobs_with_messages(&self) -> Vec<JobId> {
        let waits = self.jobs.iter().filter(|(_, backlog)| !backlog.waiting.is_empty());
        waits.map(|(job, _)| *job).collect()
    }

    /// Removes a pending message from the waiting set; it stays pending.
    pub(super) fn recall(&mut self, sequence: SequenceNumber) {
        if let Some(destination) = self.destinations.get(&sequence).cloned() {
            self.alter_pending(&destination, |backlog| backlog.waiting.remove(sequence));
        }
    }

    /// Whether a message waits at an exit.
    pub(super) fn is_waiting(&self, sequence: SequenceNumber, which: SubQueue) -> bool {
        match which {
            SubQueue::Main => self.messages.waiting.contains(sequence),
            SubQueue::DeadLetter => self.dead_letters.waiting.contains(sequence),
            SubQueue::TransferDeadLetter => false,
        }
    }

    /// Messages that wait at the exit of a sub-queue.
    pub(super) const fn waiting_of(&self, which: SubQueue) -> Option<&SequenceSet> {
        match which {
            SubQueue::Main => Some(&self.messages.waiting),
            SubQueue::DeadLetter => Some(&self.dead_letters.waiting),
            SubQueue::TransferDeadLetter => None,
        }
    }

    /// Whether messages are still to be offered again under the current description.
    pub(super) fn has_to_reoffer(&self) -> bool {
        !self.to_reoffer.is_empty()
    }

    /// Whether this message is still to be offered again.
    pub(super) fn is_to_be_reoffered(&self, sequence: SequenceNumber) -> bool {
        self.to_reoffer.iter().any(|messages| messages.contains(sequence))
    }

    /// Destination of a pending message.
    pub(super) fn destination_of(&self, sequence: SequenceNumber) -> Option<&Arc<str>> {
        self.destinations.get(&sequence)
    }

    pub(super) fn note_destination(&mut self, sequence: SequenceNumber, destination: Arc<str>) {
        self.destinations.insert(sequence, destination);
    }

    /// Restores a destination from its record. Messages to the same destination share its path.
    pub(super) fn restore_destination(&mut self, sequence: SequenceNumber, destination: &str) {
        let known = self.destinations.last_key_value().map(|(_, last)| last);
        let destination = match known.filter(|last| ***last == *destination) {
            Some(last) => Arc::clone(last),
            None => destination.into(),
        };
        self.note_destination(sequence, destination);
    }

    /// Adds a durable pending message to its backlog.
    pub(super) fn offer_pending(&mut self, sequence: SequenceNumber) {
        if let Some(destination) = self.destinations.get(&sequence) {
            let backlog = self.pending.entry(Arc::clone(destination)).or_default();
            backlog.waiting.insert(sequence);
            self.turns.update(destination, backlog);
        }
    }

    pub(super) fn committed(&mut self, stage: StageNumber) {
        if self.description_stage.is_some_and(|carried_by| carried_by <= stage) {
            self.description_stage = None;
        }
        if let Some((carried_by, last)) = self.storing_last
            && carried_by <= stage
        {
            self.stored_last = last;
            self.storing_last = None;
        }
        self.messages.stored(stage);
        self.dead_letters.stored(stage);
        self.jobs.retain(|_, backlog| {
            backlog.stored(stage);
            !backlog.is_idle()
        });
        while self.blocked.front().is_some_and(|(carried_by, _)| *carried_by <= stage)
            && let Some((_, destination)) = self.blocked.pop_front()
        {
            self.alter_pending(&destination, |backlog| backlog.stored(stage));
            self.forget_idle(&destination);
        }
    }

    /// Records that the store knows all numbers up to `last`.
    pub(super) fn note_stored(&mut self, last: SequenceNumber) {
        self.stored_last = last;
    }

    /// Records that the store will know all numbers up to `last` when `stage` is durable.
    pub(super) fn note_storing(&mut self, last: SequenceNumber, stage: StageNumber) {
        self.storing_last = Some((stage, last));
    }

    /// Number of messages with a named destination, waiting or in transit.
    pub(super) fn pending_count(&self) -> usize {
        self.destinations.len()
    }

    /// Iterates over the pending messages from a number on, in ascending order.
    pub(super) fn pending_from(
        &self,
        from: SequenceNumber,
    ) -> impl Iterator<Item = SequenceNumber> {
        self.destinations.range(from..).map(|(sequence, _)| *sequence)
    }

    /// Iterates over the pending messages from a number down, in descending order.
    pub(super) fn pending_back_from(
        &self,
        from: SequenceNumber,
    ) -> impl Iterator<Item = SequenceNumber> {
        self.destinations.range(..=from).rev().map(|(sequence, _)| *sequence)
    }

    /// Iterates over the messages of all lists in transit, and of jobs, which are frozen while they
    /// wait.
    pub(super) fn under_way(&self) -> impl Iterator<Item = SequenceNumber> {
        let of_jobs = self.jobs.values();
        let of_jobs = of_jobs.flat_map(|backlog| backlog.waiting.iter_from(SequenceNumber(0)));
        self.backlogs()
            .filter_map(|backlog| backlog.list.as_ref())
            .flat_map(|list| list.sequences.iter().copied())
            .chain(of_jobs)
    }

    /// Checks the indexes of lists and stages against all exits.
    pub(super) fn check(&self) -> Result<(), String> {
        let named =
            self.pending.iter().map(|(to, backlog)| (Exit::Pending(Arc::clone(to)), backlog));
        let own = [(Exit::Messages, &self.messages), (Exit::DeadLetters, &self.dead_letters)];
        let mut list_count = 0;
        let of_jobs = self.jobs.iter().map(|(job, backlog)| (Exit::Job(*job), backlog));
        for (exit, backlog) in own.into_iter().chain(named).chain(of_jobs) {
            let Some(list) = &backlog.list else { continue };
            list_count += 1;
            if self.lists.get(&list.number) != Some(&exit) {
                return Err(format!("list {} of {exit:?} is not known", list.number.0));
            }
        }
        if list_count != self.lists.len() {
            return Err("a list that has ended is still known".to_owned());
        }
        for (destination, backlog) in &self.pending {
            let Some(stage) = backlog.blocked_until else { continue };
            if !self.blocked.iter().any(|(at, to)| *at == stage && to == destination) {
                return Err(format!("`{destination}` waits endlessly for {stage:?}"));
            }
        }
        self.turns.check(&self.pending)
    }
}

impl Queue {
    /// Whether messages of a sub-queue are forwarded, in any status.
    pub(super) const fn is_forwarding(&self, which: SubQueue) -> bool {
        match which {
            SubQueue::Main => self.description.forward_to.is_some(),
            SubQueue::DeadLetter => self.description.forward_dead_lettered_messages_to.is_some(),
            SubQueue::TransferDeadLetter => false,
        }
    }

    /// Whether other entities take messages from here and delete their records.
    pub(super) fn is_source(&self) -> bool {
        FORWARDED.into_iter().any(|which| self.is_forwarding(which))
            || self.transfers.pending_count() > 0
            || !self.transfers.jobs.is_empty()
    }

    /// Whether forwarding takes messages of the main queue, as a receiver does (FWD-07, ENT-27).
    pub(super) const fn has_active_forwarder(&self) -> bool {
        self.is_forwarding(SubQueue::Main) && self.description.status.allows_receive()
    }

    /// Whether an active message that is durable and unlocked waits for its transfer rather than
    /// for a receiver. A dead letter that has reached the limit of hops stays (FWD-28).
    pub(super) const fn leaves(&self, slot: &Slot) -> bool {
        if !self.is_forwarding(slot.sub_queue) {
            return false;
        }
        match slot.sub_queue {
            SubQueue::Main => true,
            SubQueue::DeadLetter => slot.hops < self.config.forwarding.hop_count_max,
            SubQueue::TransferDeadLetter => false,
        }
    }

    /// Adds a durable, unlocked message to the backlog of its exit.
    pub(super) fn offer_at_exit(&mut self, sequence: SequenceNumber, which: SubQueue) {
        if let Some(backlog) = self.transfers.backlog_of_mut(which) {
            backlog.waiting.insert(sequence);
        }
    }

    /// Refuses to receive from a sub-queue that forwards its messages (RCV-29, FWD-27). Dead
    /// letters that stay permanently can be received (FWD-28).
    pub(super) fn refuse_forwarded(&self, which: SubQueue) -> Result<(), Rejection> {
        let refused = match which {
            SubQueue::Main => self.is_forwarding(which),
            SubQueue::DeadLetter => {
                self.is_forwarding(which)
                    && self.dead_letter.available.is_empty()
                    && !self.transfers.has_to_reoffer()
            }
            SubQueue::TransferDeadLetter => false,
        };
        if refused { Err(self.forwarded(which)) } else { Ok(()) }
    }

    /// Returns the rejection of a receive from a sub-queue that forwards its messages.
    pub(super) fn forwarded(&self, which: SubQueue) -> Rejection {
        Rejection::invalid_operation(format!(
            "messages of `{}{}` are forwarded and cannot be received; receive them from the \
             destination",
            self.path(),
            which.suffix()
        ))
    }

    /// Applies a new description to the available messages: they leave, or are received, as it
    /// requires. No message leaves before the description, and every change before it, is durable
    /// (DESIGN D5). `before` has the old value of `is_forwarding` for each of [`FORWARDED`]. If the
    /// target set is empty, the whole set of the main queue moves at once. Otherwise, and for dead
    /// letters, each message is offered again, within the budget of a step.
    pub(super) fn redirect(&mut self, before: [bool; 2], stage: StageNumber) {
        for (which, before) in FORWARDED.into_iter().zip(before) {
            let now = self.is_forwarding(which);
            if now {
                self.transfers.description_stage = Some(stage);
            }
            let Some(backlog) = self.transfers.backlog_of_mut(which) else { continue };
            backlog.not_before = Timestamp::NONE;
            backlog.failures = 0;
            if now == before || (which == SubQueue::Main && self.sessions.is_some()) {
                continue;
            }
            let state = match which {
                SubQueue::Main => &mut self.main,
                SubQueue::DeadLetter => &mut self.dead_letter,
                SubQueue::TransferDeadLetter => continue,
            };
            let (from, to) = match now {
                true => (&mut state.available, &mut backlog.waiting),
                false => (&mut backlog.waiting, &mut state.available),
            };
            if which == SubQueue::Main && to.is_empty() {
                std::mem::swap(from, to);
            } else if !from.is_empty() {
                let messages = std::mem::take(from);
                self.transfers.to_reoffer.push_back(messages);
            }
        }
        self.reoffer_messages(&mut { COMMAND_MOVES_MAX });
    }

    /// Offers the messages that a changed description concerns again, lowest numbers first: to
    /// receivers, or at the exit.
    pub(super) fn reoffer_messages(&mut self, moves: &mut usize) {
        while *moves > 0 {
            let Some(messages) = self.transfers.to_reoffer.front_mut() else { return };
            match messages.pop_first() {
                Some(sequence) => {
                    *moves -= 1;
                    self.offer(sequence);
                }
                None => drop(self.transfers.to_reoffer.pop_front()),
            }
        }
    }

    /// Deadline in the past while messages are still to be offered again.
    pub(super) fn reoffer_deadline(&self) -> Option<Timestamp> {
        self.transfers.has_to_reoffer().then_some(Timestamp::NONE)
    }

    /// Freezes a message: it is not available, does not expire, and counts as in transfer (LIF-05).
    fn freeze(&mut self, sequence: SequenceNumber) {
        if let Some(slot) = self.slots.get_mut(sequence) {
            self.tally.subtract(slot);
            slot.marks.set(Mark::Transferring);
            self.tally.add(slot);
        }
    }

    /// Ends the freeze and offers the message.
    fn thaw(&mut self, sequence: SequenceNumber) {
        if let Some(slot) = self.slots.get_mut(sequence)
            && slot.is_transferring()
        {
            self.tally.subtract(slot);
            slot.marks.clear(Mark::Transferring);
            self.tally.add(slot);
            self.offer(sequence);
        }
    }

    /// Text in the record of a message next to its slot: its session or its destination.
    pub(super) fn record_text(&self, sequence: SequenceNumber, slot: &Slot) -> Option<&str> {
        match slot.state {
            SlotState::Pending => self.transfers.destination_of(sequence).map(AsRef::as_ref),
            SlotState::Active | SlotState::Deferred | SlotState::Scheduled => {
                self.session_name(sequence).map(AsRef::as_ref)
            }
        }
    }
}
