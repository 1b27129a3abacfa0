//! Results of a turn of a shell, for its driver and the metrics, and the limit of its work. The
//! number of commands in the next turn is chosen in `actor/wakeups.rs`, by the duration of this one.

use super::{ArbiterShare, Shell};
use crate::change::{Change, PublishedContent, Removal, TopicChange};
use crate::command::{Command, MessageFacts};
use crate::machine::{Machine, StepOutput};
use crate::telemetry::TurnCounts;
use crate::time::Timestamp;

/// Work after which a turn takes no further command. It holds for ordinary and long turns, not for
/// a turn that has the whole arbiter, since no other work waits then.
const TURN_WORK_MAX: u64 = 1_024;

/// Rule evaluation counts one unit of work per 2^`EVALUATION_SHIFT` of its own steps, so that one
/// slice is one turn.
const EVALUATION_SHIFT: u32 = 10;

/// Converts steps of rule evaluation to work of a turn.
pub(super) const fn turn_work(steps: u64) -> u64 {
    steps >> EVALUATION_SHIFT
}

/// Results of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnResults {
    /// Number of changes.
    pub changes: u64,
    /// Work of the turn without deliveries: messages moved, shown or copied, at least one per
    /// command, and rule evaluation.
    pub work: u64,
    /// Counts of message events, for the metrics.
    pub counts: TurnCounts,
    /// The part of the counts that belongs to other machines of the tree.
    pub of_others: TurnCounts,
    /// The entity has been idle for its whole AutoDeleteOnIdle.
    pub idle_elapsed: bool,
    /// Contents must be loaded; see [`super::Shell::take_load`].
    pub wants_load: bool,
}

impl TurnResults {
    /// Counts a message that is delivered to a receiver.
    pub(super) fn count_delivery(&mut self, facts: &MessageFacts) {
        self.counts.delivered += 1;
        self.work += u64::from(facts.overlay_count);
        self.counts.redelivered += u64::from(facts.delivery_count > 0);
    }

    /// All work of the turn: one more for each delivery. A unit takes about one microsecond.
    #[must_use]
    pub const fn total_work(&self) -> u64 {
        self.work.saturating_add(self.counts.delivered)
    }

    /// Adds the work of a call to the machine: the number of its moves or of its changes, whichever
    /// is more.
    pub(super) const fn add_work(&mut self, moves: u64, changes: u64) {
        self.work += if moves > changes { moves } else { changes };
    }

    /// Counts a change.
    pub(super) fn count(&mut self, change: &Change) {
        self.changes += 1;
        match change {
            Change::Accepted { .. } | Change::Pending { .. } => self.counts.accepted += 1,
            Change::Arrived { .. } => {
                self.counts.accepted += 1;
                self.counts.arrived += 1;
            }
            Change::Departed { .. } => self.counts.removed[Removal::Forwarded.place()] += 1,
            Change::Materialised { .. } => self.counts.materialised += 1,
            Change::Removed { reason, .. } => self.counts.removed[reason.place()] += 1,
            Change::DeadLettered { cause, .. } => self.counts.dead_lettered[cause.place()] += 1,
            Change::DeliveryCounted { .. } | Change::Abandoned { .. } => self.counts.returned += 1,
            Change::Deferred { .. }
            | Change::Absorbed { .. }
            | Change::IdRecorded { .. }
            | Change::IdsForgotten { .. }
            | Change::PeerTaken { .. }
            | Change::PeerForgotten { .. }
            | Change::Undeferred { .. }
            | Change::PutBack { .. }
            | Change::Rescheduled { .. }
            | Change::Receipted(_)
            | Change::JobForgotten(_)
            | Change::SessionStateSet { .. }
            | Change::Described { .. }
            | Change::SubscriptionDescribed { .. }
            | Change::Numbered { .. } => {}
            Change::OfTopic(change) => self.count_of_topic(change),
        }
    }

    /// Takes the counts of a step that no change shows.
    pub(super) fn take_counts(&mut self, step: &mut StepOutput) {
        self.counts.lapsed += std::mem::take(&mut step.unsettled_count);
        self.counts.undelayed += std::mem::take(&mut step.undelayed_count);
        self.counts.duplicates += std::mem::take(&mut step.duplicate_count);
    }

    /// Adds the results of another machine in the same turn.
    pub(super) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.work += other.work;
        self.counts.add(&other.counts);
        self.of_others.add(&other.counts);
    }

    fn count_of_topic(&mut self, change: &TopicChange) {
        let TopicChange::Published { content, copies, .. } = change else { return };
        match content {
            PublishedContent::New(_) => self.counts.accepted += 1,
            PublishedContent::Transferred(_) => {
                self.counts.accepted += 1;
                self.counts.arrived += 1;
            }
            PublishedContent::Scheduled(_) => self.counts.materialised += 1,
        }
        for cause in copies.iter().filter_map(|copy| copy.refused) {
            self.counts.dead_lettered[cause.place()] += 1;
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Sets the share of its arbiter that the next turns may use.
    pub const fn share(&mut self, share: ArbiterShare) {
        self.share = share;
    }

    /// Work that counts as soon as a command is taken: 1, or all work of an inquiry, because no
    /// change shows the messages that it examines.
    pub(super) fn work_to_take(&self, command: &Command, now: Timestamp) -> u64 {
        match matches!(command, Command::Inspect(_)) {
            true => self.machine.work_of(command, now, &self.limits),
            false => 1,
        }
    }

    /// Whether the turn may take another command. An ordinary turn also ends while the machine is
    /// behind: the due work continues in the next turn, after the turns of other entities. A long
    /// turn goes on, since it is there to do such work.
    pub(super) fn is_turn_open(&self, turn: &TurnResults) -> bool {
        let work = turn.total_work() + turn_work(self.preparation.steps);
        match self.share {
            ArbiterShare::All => true,
            ArbiterShare::Turn => work < TURN_WORK_MAX && !self.machine.is_behind(),
            ArbiterShare::LongTurn => work < TURN_WORK_MAX,
        }
    }
}
