//! `get-message-sessions`: names sessions (AMQP-85, SES-29).

use peeklock_core::command::{Command, Outcome, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;
use peeklock_words::amqp::{code, write};

use super::pieces::Pieces;
use super::{ManagementAnswer, Planned, Question, Refusal, key, unexpected};
use crate::server::conversation::Conversation;

/// From here on sessions with active messages or a state are meant: the last millisecond of the year 9999.
const ACTIVE_FROM_MS: i64 = 253_402_300_800_000 - 1;
/// No session has a longer name (SES-03).
const NAME_CHARS_MAX: usize = 128;

impl Conversation {
    pub(super) async fn plan_list_sessions(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        let body = &question.body;
        let which = match body.instant("last-updated-time")? {
            Some(at) if at.unix_ms() < ACTIVE_FROM_MS => SessionFilter::StateSetAfter(at),
            Some(_) | None => SessionFilter::StateSetAfter(Timestamp::NEVER),
        };
        let skip = body.count("skip")?.unwrap_or(0);
        let top = body.count("top")?.unwrap_or(u32::MAX);
        let behind = body.text("last-session-id")?;
        if behind.as_ref().is_some_and(|name| name.chars().count() > NAME_CHARS_MAX) {
            let text = format!("`last-session-id` has more than {NAME_CHARS_MAX} characters");
            return Err(Rejection::argument(text).into());
        }
        // Where the list goes on is a name, whatever has become of sessions before it; `skip` only counts then.
        let left_out = if behind.is_some() { 0 } else { skip };
        let behind = behind.map(String::into_boxed_str);
        let command = Command::ListSessions { which, behind, skip: left_out.into(), top };
        let entity = self.managed_entity(question, Action::ListSessions).await?;
        Ok(Planned::apart(async move {
            let Outcome::Sessions(names) = entity.call(command).await? else {
                return Err(entity.refuse(unexpected()));
            };
            if names.is_empty() {
                return Ok(ManagementAnswer::Nothing);
            }
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            let next = i32::try_from(skip.saturating_add(count)).unwrap_or(i32::MAX);
            let mut items = Pieces::default();
            key(&mut items, "skip");
            write::fixed(&mut items, code::INT, next.to_be_bytes());
            key(&mut items, "sessions-ids");
            items.strings(names.iter().map(|name| &**name));
            Ok(ManagementAnswer::Map(items, 4))
        }))
    }
}
