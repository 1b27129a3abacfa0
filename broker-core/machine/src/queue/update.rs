//! Updates of a queue's description (ENT-16 to ENT-19). `queue/mod.rs` calls it for the update
//! command. No message is touched; a changed property takes effect in later steps.

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::Outcome;
use crate::description::QueueDescription;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::intake::Intake as _;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput, intake};

impl Queue {
    /// Replaces the description. Locks in force keep their end (ENT-18), and stored messages stay
    /// (ENT-19). A new default TTL applies at once to messages without a TTL of their own (EXP-13).
    pub(super) fn update(
        &mut self,
        description: Box<QueueDescription>,
        read_at: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if read_at.is_some_and(|at| at != self.usage.updated_at) {
            return Err(Rejection::update_conflict(self.path()));
        }
        let fixed = [
            ("RequiresSession", description.requires_session == self.description.requires_session),
            (
                "RequiresDuplicateDetection",
                description.requires_duplicate_detection
                    == self.description.requires_duplicate_detection,
            ),
            (
                "EnablePartitioning",
                description.enable_partitioning == self.description.enable_partitioning,
            ),
        ];
        self.refuse_fixed(&fixed)?;
        let bytes = (description.text_bytes(), self.description.text_bytes());
        intake::refuse_descriptions(bytes.0, bytes.1, ctx)?;
        self.change(Change::Described { description, at: ctx.now }, Durability::Sync, ctx, step);
        for which in super::transfer::FORWARDED {
            if self.is_forwarding(which) {
                self.reject_receivers_of(which, step);
            }
        }
        if !self.description.status.allows_receive() {
            self.reject_receivers(step);
        }
        Ok(Answer::after_commit(Outcome::Done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::condition::Condition;
    use crate::ids::EntityId;
    use crate::limits::{Limits, Tier};
    use crate::path::SubQueue;
    use crate::queue::{ForwardingConfig, QueueConfig};
    use crate::record::Reserved;
    use crate::{Machine as _, StageNumber, Ticket};

    /// ENT-16: an update keeps the properties that are fixed at creation.
    #[test]
    fn queue_update_keeps_properties_fixed_at_creation() {
        let limits = Limits::of(Tier::Premium);
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: true,
            duplicate_key: [7; 16],
            forwarding: ForwardingConfig::default(),
        };
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let kept = QueueDescription::new("orders", &limits);
        let mut queue = Queue::new(EntityId(1), kept.clone(), config, now);
        let changes: [fn(&mut QueueDescription); 3] = [
            |changed| changed.requires_session = true,
            |changed| changed.requires_duplicate_detection = true,
            |changed| changed.enable_partitioning = true,
        ];
        for change in changes {
            let mut description = Box::new(kept.clone());
            change(&mut description);
            let mut step = StepOutput::default();
            let mut ctx = Ctx {
                now,
                stage: StageNumber(1),
                stored_bytes: 0,
                room: Reserved::Granted,
                remaining: crate::RemainingCapacity::ALL,
                limits: &limits,
                tokens: &mut || 0,
            };
            let update = Command::Update { description, read_at: None };
            let result = queue.apply(Ticket(1), SubQueue::Main, update, &mut ctx, &mut step);
            assert_eq!(result.err().map(|it| it.condition()), Some(Condition::ArgumentError));
            assert!(step.changes.is_empty());
        }
    }
}
