//! Published counts and times of an entity, which series sample (CON-31). Each is a plain addition
//! on the arbiter of the entity.

use std::sync::Arc;

use super::{Shell, TurnResults};
use crate::command::{MessageFacts, MessageState};
use crate::machine::{Machine, StepOutput};
use crate::path::SubQueue;
use crate::telemetry::LiveGauges;
use crate::time::Timestamp;

impl<M: Machine> Shell<M> {
    /// Counts messages and their times in the published figures of the entity.
    #[must_use]
    pub fn with_observed(mut self, observed: Arc<LiveGauges>) -> Self {
        self.observed = Some(observed);
        self
    }

    /// Adds the counts of a turn, without the part of other machines.
    pub(crate) fn add_flows(&self, turn: &TurnResults) {
        if let Some(observed) = &self.observed {
            observed.add_flows(&turn.counts, &turn.of_others);
        }
    }

    /// Notes how long an available message waited until its first delivery.
    pub(super) fn note_wait(&self, facts: &MessageFacts, now: Timestamp) {
        let is_first = facts.delivery_count == 0
            && facts.sub_queue == SubQueue::Main
            && facts.state == MessageState::Active;
        if let Some(observed) = self.observed.as_ref().filter(|_| is_first) {
            observed.note_wait(now.since(facts.enqueued_at));
        }
    }

    /// Notes how long messages were locked whose lock ended in a step, and drops its events.
    pub(super) fn note_locks(&self, step: &mut StepOutput) {
        if let Some(observed) = &self.observed {
            observed.note_locks(&step.lock_spans, step.locks_expired);
        }
        step.events.clear();
        step.lock_spans.clear();
        step.locks_expired = 0;
    }
}
