//! Updates of a topic's description (ENT-16 to ENT-19). `topic/mod.rs` calls it for the update
//! command.

use super::Topic;
use crate::change::{Change, Durability, TopicChange};
use crate::command::Outcome;
use crate::description::TopicDescription;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::intake::Intake as _;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput, intake};

impl Topic {
    /// Replaces the description. Scheduled messages stay (ENT-19, ENT-26). A new default TTL
    /// applies at once to messages in the subscriptions without a TTL of their own (EXP-06,
    /// EXP-13).
    pub(super) fn update(
        &mut self,
        description: Box<TopicDescription>,
        read_at: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if read_at.is_some_and(|at| at != self.usage.updated_at) {
            return Err(Rejection::update_conflict(self.path()));
        }
        let kept = &self.description;
        let fixed = [
            (
                "RequiresDuplicateDetection",
                description.requires_duplicate_detection == kept.requires_duplicate_detection,
            ),
            ("EnablePartitioning", description.enable_partitioning == kept.enable_partitioning),
        ];
        self.refuse_fixed(&fixed)?;
        let bytes = (description.text_bytes(), self.description.text_bytes());
        intake::refuse_descriptions(bytes.0, bytes.1, ctx)?;
        let change = TopicChange::Described { description, at: ctx.now };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
        if let Some(outbox) = &mut self.outbox {
            outbox.apply_status(step);
        }
        Ok(Answer::after_commit(Outcome::Done))
    }
}
