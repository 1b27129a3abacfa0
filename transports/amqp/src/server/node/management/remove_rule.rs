//! `remove-rule`: a subscription loses a rule (TOP-13).

use std::sync::Arc;

use super::{ManagementAnswer, Planned, Question, Refusal};
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) fn plan_remove_rule(&mut self, question: &Question<'_>) -> Result<Planned, Refusal> {
        let name = question.body.wanted_text("rule-name")?;
        let (access, path) = (self.access_at(question.path), Arc::clone(question.path));
        Ok(Planned::apart(async move {
            access.delete_own_rule(&path, &name).await?;
            Ok(ManagementAnswer::Done)
        }))
    }
}
