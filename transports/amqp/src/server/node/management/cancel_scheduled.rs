//! `cancel-scheduled-message`: cancels scheduled messages, all or none (SCH-05).

use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;

use super::super::reply::Asker;
use super::{ManagementAnswer, Memo, Planned, Question, Refusal};
use crate::message::BATCH_COUNT_MAX;
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) async fn plan_cancel_scheduled(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        // What one request has scheduled, one can cancel.
        let sequences = question.body.sequences(BATCH_COUNT_MAX)?;
        let entity = self.managed_entity(question, Action::CancelScheduled).await?;
        let commands = vec![Command::CancelScheduled { sequences }];
        Ok(Planned::Commands { entity, commands, read: Self::done, memo: Memo::default() })
    }

    /// It is done, and there is nothing more to say.
    pub(super) fn done(
        &mut self,
        _: &Asker,
        _: &Memo,
        _: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        Ok(ManagementAnswer::Done)
    }
}
