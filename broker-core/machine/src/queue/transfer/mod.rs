//! Transfers: messages that leave for another entity, and messages that come from one (file 10).
//!
//! ```text
//!            ForwardTo, ForwardDeadLetteredMessagesTo: durable and unlocked      Taken
//!  Active ──────────────────► waiting ──hand over──► transferring ────────────────────► gone
//!  Pending (send-via) ──────────┘  ▲                   │       │ Refused
//!                                  └─── Kept, Failed ──┘       └──────► transfer dead-letter queue
//! ```
//!
//! At each way out waits a backlog, with at most one list under way. So messages of one source arrive at one
//! destination in their order (FWD-10), whatever becomes of a list; a list takes what has gathered
//! meanwhile, up to 256 messages or 4 MiB, and costs one append. Behind one that was cut short by a refusal
//! lists begin with 16 messages, and double. All that is handed over in one step is of one budget, whatever number of
//! ways out there is; the next step goes on (`turns.rs`).

mod arrive;
mod depart;
mod dispatch;
mod peer;
mod pending;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::turns::{Standing, Turns};
use super::{MOVES_PER_STEP, Queue};
use crate::StageNumber;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
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
}

/// What waits at one exit. That of a destination which a sender named begins with the first message that
/// waits at it, and ends when nothing would be forgotten with it ([`Transfers::forget_idle`]).
#[derive(Debug, Default)]
struct Backlog {
    /// Durable, unlocked, and under way to nobody.
    waiting: SequenceSet,
    /// The list that is under way.
    list: Option<List>,
    /// Nothing is handed over before this.
    not_before: Timestamp,
    /// How often in a row a forwarder has failed.
    failures: u32,
    /// How often the next list is halved, since a destination has refused a message of one before it, and
    /// looked at nothing that came behind that.
    halvings: u32,
    /// The stage with what came of the last list of a forwarder, or with what was given up, until it is
    /// durable. So what can be offered again although it was delivered is one list, and another broker can
    /// know it; and what has failed, or is given up, is there again, or for good, before later messages
    /// leave (FWD-10).
    settled_in: Option<StageNumber>,
    /// Of a destination that a sender named: where it stands among those that something can leave for.
    standing: Option<Standing>,
}

impl Backlog {
    /// Whether there is a list to be handed over, as soon as it is time.
    fn can_have_list(&self) -> bool {
        self.list.is_none() && !self.waiting.is_empty() && self.settled_in.is_none()
    }

    /// Takes note that every stage up to this one is durable.
    fn stored(&mut self, stage: StageNumber) {
        if self.settled_in.is_some_and(|carried_by| carried_by <= stage) {
            self.settled_in = None;
        }
    }

    /// Whether nothing would be forgotten with it.
    fn is_idle(&self) -> bool {
        self.list.is_none() && self.waiting.is_empty() && self.settled_in.is_none()
    }
}

#[derive(Debug)]
struct List {
    number: ListNumber,
    sequences: Vec<SequenceNumber>,
}

/// What a queue keeps of messages that leave it.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    messages: Backlog,
    dead_letters: Backlog,
    pending: BTreeMap<Arc<str>, Backlog>,
    /// Those of them that something can leave for.
    turns: Turns,
    /// Those of them that wait for a stage ([`Backlog::settled_in`]), in the order of stages.
    settling: VecDeque<(StageNumber, Arc<str>)>,
    /// The exits of all lists that are under way.
    lists: BTreeMap<ListNumber, Exit>,
    /// Where each pending message wants to go.
    destinations: BTreeMap<SequenceNumber, Arc<str>>,
    last_list: ListNumber,
    /// Messages that were on offer, or waited at an exit, when a new description came; where each belongs by
    /// that is found out a part at a time, and until then nobody gets it.
    sorting: VecDeque<SequenceSet>,
    /// The stage with the description by which messages leave, until it is durable.
    unsettled: Option<StageNumber>,
    /// Of a subscription: up to which number the store knows that it was given, and up to which it
    /// will with a stage that is on its way.
    proved: SequenceNumber,
    proving: Option<(StageNumber, SequenceNumber)>,
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
        }
    }

    /// Alters what waits at an exit, and sees to it that it has its turn if something can leave by it.
    fn alter<T>(&mut self, exit: &Exit, alter: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        match exit {
            Exit::Messages => Some(alter(&mut self.messages)),
            Exit::DeadLetters => Some(alter(&mut self.dead_letters)),
            Exit::Pending(destination) => self.alter_pending(destination, alter),
        }
    }

    /// Has a list be under way. What came behind its messages may have been given up since they were taken out, and with
    /// the last of that the backlog is gone ([`Self::forget_idle`]): without it the list would be frozen for good.
    fn begin_list(&mut self, exit: &Exit, list: List) {
        if let Exit::Pending(destination) = exit {
            self.pending.entry(Arc::clone(destination)).or_default();
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
        self.turns.see_to(destination, backlog);
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
        [&self.messages, &self.dead_letters].into_iter().chain(named)
    }

    /// Gives turns to destinations whose instant has come, each of which is a move.
    fn call_up(&mut self, now: Timestamp, moves: &mut usize) {
        while *moves > 0
            && let Some(destination) = self.turns.first_due(now).cloned()
        {
            *moves -= 1;
            self.alter_pending(&destination, |backlog| backlog.not_before = Timestamp::NONE);
        }
    }

    /// Takes a message out of whatever waits; it is gone, locked, or somewhere else.
    pub(super) fn withdraw(&mut self, sequence: SequenceNumber) {
        self.messages.waiting.remove(sequence);
        self.dead_letters.waiting.remove(sequence);
        for unsorted in &mut self.sorting {
            unsorted.remove(sequence);
        }
        if let Some(destination) = self.destinations.remove(&sequence) {
            self.alter_pending(&destination, |backlog| backlog.waiting.remove(sequence));
            self.forget_idle(&destination);
        }
    }

    /// Forgets the backlog of a destination at which nothing waits, is under way, or has yet to be stored. It is
    /// made again for the next message, also for one that is on its way to the store now.
    fn forget_idle(&mut self, destination: &str) {
        if self.pending.get(destination).is_some_and(Backlog::is_idle) {
            self.pending.remove(destination);
        }
    }

    /// Lets nothing leave by an exit until a stage is durable.
    fn settle_in(&mut self, exit: &Exit, stage: StageNumber) {
        match exit {
            Exit::Messages => self.messages.settled_in = Some(stage),
            Exit::DeadLetters => self.dead_letters.settled_in = Some(stage),
            Exit::Pending(destination) => {
                let backlog = self.pending.entry(Arc::clone(destination)).or_default();
                if backlog.settled_in.replace(stage) != Some(stage) {
                    self.settling.push_back((stage, Arc::clone(destination)));
                }
                self.turns.see_to(destination, backlog);
            }
        }
    }

    /// Takes a pending message out of what waits; it stays pending.
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

    /// What waits at the exit of a sub-queue.
    pub(super) const fn waiting_of(&self, which: SubQueue) -> Option<&SequenceSet> {
        match which {
            SubQueue::Main => Some(&self.messages.waiting),
            SubQueue::DeadLetter => Some(&self.dead_letters.waiting),
            SubQueue::TransferDeadLetter => None,
        }
    }

    /// Whether it is still to be found out of messages where they belong by the description.
    pub(super) fn is_sorting(&self) -> bool {
        !self.sorting.is_empty()
    }

    /// Whether that is so of this one.
    pub(super) fn is_unsorted(&self, sequence: SequenceNumber) -> bool {
        self.sorting.iter().any(|unsorted| unsorted.contains(sequence))
    }

    /// Where a pending message wants to go.
    pub(super) fn destination_of(&self, sequence: SequenceNumber) -> Option<&Arc<str>> {
        self.destinations.get(&sequence)
    }

    pub(super) fn note_destination(&mut self, sequence: SequenceNumber, destination: Arc<str>) {
        self.destinations.insert(sequence, destination);
    }

    /// Takes a destination back from its record; messages to one destination share its path.
    pub(super) fn restore_destination(&mut self, sequence: SequenceNumber, destination: &str) {
        let known = self.destinations.last_key_value().map(|(_, last)| last);
        let destination = match known.filter(|last| ***last == *destination) {
            Some(last) => Arc::clone(last),
            None => destination.into(),
        };
        self.note_destination(sequence, destination);
    }

    /// Puts a durable pending message where it waits.
    pub(super) fn offer_pending(&mut self, sequence: SequenceNumber) {
        if let Some(destination) = self.destinations.get(&sequence) {
            let backlog = self.pending.entry(Arc::clone(destination)).or_default();
            backlog.waiting.insert(sequence);
            self.turns.see_to(destination, backlog);
        }
    }

    pub(super) fn committed(&mut self, stage: StageNumber) {
        if self.unsettled.is_some_and(|carried_by| carried_by <= stage) {
            self.unsettled = None;
        }
        if let Some((carried_by, last)) = self.proving
            && carried_by <= stage
        {
            self.proved = last;
            self.proving = None;
        }
        self.messages.stored(stage);
        self.dead_letters.stored(stage);
        while self.settling.front().is_some_and(|(carried_by, _)| *carried_by <= stage)
            && let Some((_, destination)) = self.settling.pop_front()
        {
            self.alter_pending(&destination, |backlog| backlog.stored(stage));
            self.forget_idle(&destination);
        }
    }

    /// The store knows that numbers up to this one were given.
    pub(super) fn proved(&mut self, last: SequenceNumber) {
        self.proved = last;
    }

    /// It will, with this stage.
    pub(super) fn prove(&mut self, last: SequenceNumber, stage: StageNumber) {
        self.proving = Some((stage, last));
    }

    /// How many messages wait or are under way because a sender named their destination.
    pub(super) fn pending_count(&self) -> usize {
        self.destinations.len()
    }

    /// The messages of all lists that are under way.
    pub(super) fn under_way(&self) -> impl Iterator<Item = SequenceNumber> {
        self.backlogs()
            .filter_map(|backlog| backlog.list.as_ref())
            .flat_map(|list| list.sequences.iter().copied())
    }

    /// Whether what is found without looking at all exits is what is there.
    pub(super) fn check(&self) -> Result<(), String> {
        let named =
            self.pending.iter().map(|(to, backlog)| (Exit::Pending(Arc::clone(to)), backlog));
        let own = [(Exit::Messages, &self.messages), (Exit::DeadLetters, &self.dead_letters)];
        let mut list_count = 0;
        for (exit, backlog) in own.into_iter().chain(named) {
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
            let Some(stage) = backlog.settled_in else { continue };
            if !self.settling.iter().any(|(at, to)| *at == stage && to == destination) {
                return Err(format!("`{destination}` waits endlessly for {stage:?}"));
            }
        }
        self.turns.check(&self.pending)
    }
}

impl Queue {
    /// Whether messages of a sub-queue leave by themselves, whatever the status.
    pub(super) const fn is_forwarding(&self, which: SubQueue) -> bool {
        match which {
            SubQueue::Main => self.description.forward_to.is_some(),
            SubQueue::DeadLetter => self.description.forward_dead_lettered_messages_to.is_some(),
            SubQueue::TransferDeadLetter => false,
        }
    }

    /// Whether messages leave for another entity, which removes their records here.
    pub(super) fn is_source(&self) -> bool {
        FORWARDED.into_iter().any(|which| self.is_forwarding(which))
            || self.transfers.pending_count() > 0
    }

    /// Whether forwarding takes messages of the main queue, as a receiver does (FWD-07, ENT-27).
    pub(super) const fn has_active_forwarder(&self) -> bool {
        self.is_forwarding(SubQueue::Main) && self.description.status.allows_receive()
    }

    /// Whether an active message, once it is durable and unlocked, waits for its transfer instead of a
    /// receiver. A dead letter that has made all its hops stays where it is (FWD-28).
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

    /// Puts a durable, unlocked message at its exit.
    pub(super) fn offer_at_exit(&mut self, sequence: SequenceNumber, which: SubQueue) {
        if let Some(backlog) = self.transfers.backlog_of_mut(which) {
            backlog.waiting.insert(sequence);
        }
    }

    /// Refuses receivers where messages leave by themselves (RCV-29, FWD-27). Dead letters that stay
    /// for good can be received (FWD-28).
    pub(super) fn refuse_forwarded(&self, which: SubQueue) -> Result<(), Rejection> {
        let refused = match which {
            SubQueue::Main => self.is_forwarding(which),
            SubQueue::DeadLetter => {
                self.is_forwarding(which)
                    && self.dead_letter.available.is_empty()
                    && !self.transfers.is_sorting()
            }
            SubQueue::TransferDeadLetter => false,
        };
        if refused { Err(self.forwarded(which)) } else { Ok(()) }
    }

    /// What those are told who would receive where messages leave by themselves.
    pub(super) fn forwarded(&self, which: SubQueue) -> Rejection {
        Rejection::invalid_operation(format!(
            "messages of `{}{}` are forwarded and cannot be received; receive them from the \
             destination",
            self.path(),
            which.suffix()
        ))
    }

    /// Sorts what is available anew after the description was replaced: messages leave, or are
    /// received, as it says now. Nothing leaves by it before it is durable (DESIGN D5), and with it
    /// every change that was made before. `before` says which of [`FORWARDED`] were forwarded. Of the main
    /// queue all messages go the same way; dead letters are sorted one by one, at most so many in a step.
    pub(super) fn redirect(&mut self, before: [bool; 2], stage: StageNumber) {
        for (which, before) in FORWARDED.into_iter().zip(before) {
            let now = self.is_forwarding(which);
            if now {
                self.transfers.unsettled = Some(stage);
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
                let unsorted = std::mem::take(from);
                self.transfers.sorting.push_back(unsorted);
            }
        }
        self.sort_anew(&mut { MOVES_PER_STEP });
    }

    /// Offers messages by the description that is in force, or lets them leave by it, lowest numbers first.
    pub(super) fn sort_anew(&mut self, moves: &mut usize) {
        while *moves > 0 {
            let Some(unsorted) = self.transfers.sorting.front_mut() else { return };
            match unsorted.pop_first() {
                Some(sequence) => {
                    *moves -= 1;
                    self.offer(sequence);
                }
                None => drop(self.transfers.sorting.pop_front()),
            }
        }
    }

    /// What is not sorted yet is to be at once.
    pub(super) fn sort_deadline(&self) -> Option<Timestamp> {
        self.transfers.is_sorting().then_some(Timestamp::NONE)
    }

    /// Freezes a message: nobody gets it, it does not expire, it counts as being transferred (LIF-05).
    fn freeze(&mut self, sequence: SequenceNumber) {
        if let Some(slot) = self.slots.get_mut(sequence) {
            self.tally.subtract(slot);
            slot.marks.set(Mark::Transferring);
            self.tally.add(slot);
        }
    }

    /// Ends the freeze and puts the message where it belongs now.
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

    /// The text of a message's record beside its slot: its session, or where it wants to go.
    pub(super) fn record_text(&self, sequence: SequenceNumber, slot: &Slot) -> Option<&str> {
        match slot.state {
            SlotState::Pending => self.transfers.destination_of(sequence).map(AsRef::as_ref),
            SlotState::Active | SlotState::Deferred | SlotState::Scheduled => {
                self.session_name(sequence).map(AsRef::as_ref)
            }
        }
    }
}
