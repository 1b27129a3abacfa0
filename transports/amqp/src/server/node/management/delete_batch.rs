//! `batch-delete-messages`: removes available messages (DEL-01, DEL-07).

use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_words::amqp::{code, write};

use super::super::reply::Asker;
use super::pieces::Pieces;
use super::{ManagementAnswer, Memo, Planned, Question, Refusal, key, unexpected};
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) async fn plan_delete_batch(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        let count_max = question.body.count("message-count")?;
        let count_max =
            count_max.ok_or_else(|| Rejection::argument("`message-count` is missing"))?;
        let enqueued_before = question.body.instant("enqueued-time-utc")?;
        let entity = self.managed_entity(question, Action::DeleteBatch).await?;
        let link = self.session_link(question)?;
        let command = match link.and_then(|link| self.engine.links.get(link)) {
            Some(link) => {
                link.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before })
            }
            None => Command::DeleteBatch { count_max, enqueued_before },
        };
        let memo = Memo { link, ..Memo::default() };
        Ok(Planned::Commands { entity, commands: vec![command], read: Self::deleted, memo })
    }

    fn deleted(
        &mut self,
        _: &Asker,
        _: &Memo,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let count = match outcomes.into_iter().next() {
            Some(Outcome::Deleted(0)) => return Ok(ManagementAnswer::Nothing),
            Some(Outcome::Deleted(count)) => i32::try_from(count).unwrap_or(i32::MAX),
            _ => return Err(unexpected()),
        };
        let mut items = Pieces::default();
        key(&mut items, "message-count");
        write::fixed(&mut items, code::INT, count.to_be_bytes());
        Ok(ManagementAnswer::Map(items, 2))
    }
}
