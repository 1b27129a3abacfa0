//! `renew-lock`: prolongs locks of messages (SET-18).

use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_words::amqp::code;

use super::super::reply::Asker;
use super::pieces::Pieces;
use super::{ManagementAnswer, Memo, Planned, Question, Refusal, key, unexpected};
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) async fn plan_renew_lock(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        let tokens = question.body.tokens()?;
        let entity = self.managed_entity(question, Action::RenewLock).await?;
        let commands = tokens.iter().map(|token| Command::RenewLock { token: *token }).collect();
        let memo = Memo { tokens, link: self.session_link(question)?, ..Memo::default() };
        Ok(Planned::Commands { entity, commands, read: Self::locks_renewed, memo })
    }

    fn locks_renewed(
        &mut self,
        _: &Asker,
        memo: &Memo,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let mut ends = Vec::with_capacity(outcomes.len());
        for (outcome, token) in outcomes.into_iter().zip(&memo.tokens) {
            let until = match outcome {
                Outcome::Renewed(until) => {
                    self.lock_renewed(*token, until);
                    until
                }
                _ => return Err(unexpected()),
            };
            ends.push(until.unix_ms().to_be_bytes());
        }
        let mut items = Pieces::default();
        key(&mut items, "expirations");
        items.array(code::TIMESTAMP, ends.into_iter());
        Ok(ManagementAnswer::Map(items, 2))
    }
}
