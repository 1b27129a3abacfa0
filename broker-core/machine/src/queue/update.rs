//! Updates of the description (ENT-16 to ENT-19).

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::Outcome;
use crate::description::QueueDescription;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::time::Timestamp;
use crate::{Ctx, Step};

impl Queue {
    /// Replaces the description. Locks in force keep their end (ENT-18), stored messages stay
    /// (ENT-19); a changed default TTL applies to messages without own TTL at once (EXP-13).
    pub(super) fn update(
        &mut self,
        description: Box<QueueDescription>,
        read_at: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        if read_at.is_some_and(|at| at != self.updated_at) {
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
        if let Some((property, _)) = fixed.into_iter().find(|(_, same)| !same) {
            return Err(Rejection::argument(format!(
                "{property} of `{}` was fixed when it was created",
                self.path()
            )));
        }
        self.change(Change::Described { description, at: ctx.now }, Durability::Sync, ctx, step);
        for which in super::transfer::FORWARDED {
            if self.is_forwarding(which) {
                self.turn_away_from(which, step);
            }
        }
        if !self.description.status.allows_receive() {
            self.turn_receivers_away(step);
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }
}
