//! What a turn of a shell comes to, for its driver and the metrics.

use super::{Share, Shell};
use crate::change::{Change, PublishedContent, Removal, TopicChange};
use crate::command::MessageFacts;
use crate::entity::Machine;
use crate::request::Asker;
use crate::telemetry::TurnCounts;

/// A turn among those of others ends behind the command with which it has become so many steps.
const TURN_STEPS_MAX: u64 = 1_024;

/// So many of the steps in which rules are judged are one: a slice of those is a turn.
const JUDGED_SHIFT: u32 = 10;

/// What steps of judging are as those of a turn.
pub(super) const fn judged_steps(steps: u64) -> u64 {
    steps >> JUDGED_SHIFT
}

/// What a turn leaves to its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Changes made.
    pub changes: u64,
    /// What it was for others on its arbiter: messages moved, shown or copied, a command at least one; what was
    /// judged by its steps.
    pub steps: u64,
    /// Counts of what happened to messages, for the metrics.
    pub counts: TurnCounts,
    /// The entity has been idle for its whole AutoDeleteOnIdle.
    pub idle_elapsed: bool,
    /// Contents have to be loaded; see [`super::Shell::take_load`].
    pub wants_load: bool,
}

impl Turn {
    /// Counts a message that is handed to a receiver.
    pub(super) fn count_delivery(&mut self, facts: &MessageFacts) {
        self.counts.delivered += 1;
        self.steps += u64::from(facts.overlay_count);
        self.counts.redelivered += u64::from(facts.delivery_count > 0);
    }

    /// Its weight: a step is about a microsecond.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.steps.saturating_add(self.counts.delivered)
    }

    /// Counts what one atomic unit has moved, and what that came to.
    pub(super) const fn weigh(&mut self, moves: u64, changes: u64) {
        self.steps += if moves > changes { moves } else { changes };
    }

    /// Counts a change.
    pub(super) fn count(&mut self, change: &Change) {
        self.changes += 1;
        match change {
            Change::Accepted { .. } | Change::Pending { .. } | Change::Arrived { .. } => {
                self.counts.accepted += 1;
            }
            Change::Departed { .. } => self.counts.removed[Removal::Forwarded.place()] += 1,
            Change::Materialised { .. } => self.counts.materialised += 1,
            Change::Removed { reason, .. } => self.counts.removed[reason.place()] += 1,
            Change::DeadLettered { cause, .. } => self.counts.dead_lettered[cause.place()] += 1,
            Change::Counted { .. }
            | Change::Abandoned { .. }
            | Change::Deferred { .. }
            | Change::Absorbed { .. }
            | Change::IdRecorded { .. }
            | Change::IdsForgotten { .. }
            | Change::PeerTaken { .. }
            | Change::PeerForgotten { .. }
            | Change::SessionStateSet { .. }
            | Change::Described { .. }
            | Change::SubscriptionDescribed { .. }
            | Change::Numbered { .. } => {}
            Change::OfTopic(change) => self.count_of_topic(change),
        }
    }

    /// Adds what another machine has done in the same turn.
    pub(super) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.steps += other.steps;
        self.counts.add(&other.counts);
    }

    fn count_of_topic(&mut self, change: &TopicChange) {
        let TopicChange::Published { content, copies, .. } = change else { return };
        match content {
            PublishedContent::New(_) | PublishedContent::Transferred(_) => {
                self.counts.accepted += 1
            }
            PublishedContent::Scheduled(_) => self.counts.materialised += 1,
        }
        for cause in copies.iter().filter_map(|copy| copy.refused) {
            self.counts.dead_lettered[cause.place()] += 1;
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Says how much of its arbiter the next turns may take.
    pub const fn share(&mut self, share: Share) {
        self.share = share;
    }

    /// Whether what is to be done next is for a long turn: judging, or moving what is due. Until it has had
    /// that, the machine takes no command.
    pub fn wants_long_turn(&self) -> bool {
        self.is_judging() || self.machine.is_behind()
    }

    /// Who has asked for what that long turn is for; nobody for what is due.
    pub fn asker_of_long_turn(&self) -> Option<Asker> {
        if self.machine.is_behind() {
            return None;
        }
        self.judged.as_ref()?.reply.asker()
    }

    /// Whether the machine is judging what a command is to do, in slices: then it wants another turn, after
    /// everything else that is ready, and takes no command from the list of a turn.
    pub const fn is_judging(&self) -> bool {
        // Turns of sessions, which pass between, leave it where it is.
        self.is_judging || self.judged.is_some()
    }

    /// Whether a turn that has come to this may take another command, whatever is judged.
    pub(super) fn is_turn_open(&self, turn: &Turn) -> bool {
        let steps = turn.weight() + judged_steps(self.judged_steps);
        match self.share {
            Share::All => true,
            Share::Turn => steps < TURN_STEPS_MAX && !self.machine.is_behind(),
            Share::LongTurn => steps < TURN_STEPS_MAX,
        }
    }
}
