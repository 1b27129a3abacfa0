//! `get-message-sessions`: names sessions (AMQP-85, SES-29).

use peeklock_core::command::{Command, Outcome, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_words::amqp::code;
use peeklock_words::amqp::write;

use super::pieces::Pieces;
use super::{Answer, Planned, Question, Refusal, key};
use crate::server::conversation::Conversation;

/// From here on sessions with active messages are meant: the last millisecond of the year 9999.
const ACTIVE_FROM_MS: i64 = 253_402_300_800_000 - 1;

impl Conversation {
    pub(super) async fn plan_list_sessions(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        let body = &question.body;
        let which = match body.instant("last-updated-time")? {
            Some(at) if at.unix_ms() < ACTIVE_FROM_MS => SessionFilter::StateSetAfter(at),
            Some(_) | None => SessionFilter::WithActiveMessages,
        };
        let skip = body.count("skip")?.unwrap_or(0);
        let top = body.count("top")?.unwrap_or(u32::MAX);
        let after = body.text("last-session-id")?;
        let entity = self.managed_entity(question, Action::ListSessions).await?;
        Ok(Planned::apart(async move {
            let mut skip = skip;
            loop {
                let command = Command::ListSessions { which, skip: skip.into(), top };
                let Outcome::Sessions(mut names) = entity.call(command).await? else {
                    return Err(entity.refuse(Rejection::internal("unexpected answer")));
                };
                if names.is_empty() {
                    return Ok(Answer::Nothing);
                }
                skip = skip.saturating_add(u32::try_from(names.len()).unwrap_or(u32::MAX));
                // Names ascend: those up to the last one that the client has are left out.
                if let Some(after) = &after {
                    names.retain(|name| **name > **after);
                }
                if !names.is_empty() {
                    let mut items = Pieces::default();
                    key(&mut items, "skip");
                    let skip = i32::try_from(skip).unwrap_or(i32::MAX);
                    write::fixed(&mut items, code::INT, skip.to_be_bytes());
                    key(&mut items, "sessions-ids");
                    items.strings(names.iter().map(|name| &**name));
                    return Ok(Answer::Map(items, 4));
                }
            }
        }))
    }
}
