//! Looking at sessions from outside: their names, their messages, and the removal of messages (SES-29,
//! PEK-07, DEL-07).

use std::sync::Arc;

use super::SessionIndex;
use crate::change::Removal;
use crate::command::{Outcome, SessionFilter};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::time::Timestamp;
use crate::{Ctx, Step};

impl Queue {
    /// Names sessions, ascending by id.
    pub(in crate::queue) fn list_sessions(
        &mut self,
        sub_queue: SubQueue,
        which: SessionFilter,
        skip: u64,
        top: u32,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let Some(sessions) = &self.sessions else { return Ok(Answer::Later) };
        let matching = sessions.iter().filter(|(_, session)| match which {
            SessionFilter::All => true,
            SessionFilter::WithActiveMessages => session.active > 0,
            SessionFilter::StateSetAfter(at) => {
                session.state().is_some_and(|state| state.set_at > at)
            }
        });
        let names = matching
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
            .take((top as usize).min(ctx.limits.list_count_max))
            .map(|(_, session)| Arc::clone(session.name()))
            .collect();
        Ok(Answer::after_commit(Outcome::Sessions(names)))
    }

    /// Shows messages of one session, whoever holds it (PEK-07).
    pub(in crate::queue) fn peek_session(
        &mut self,
        sub_queue: SubQueue,
        session: &str,
        from: SequenceNumber,
        count_max: u32,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let members = self
            .sessions
            .as_ref()
            .and_then(|sessions| Some(sessions.get(sessions.named(session)?)?.members()));
        let messages = match members {
            Some(members) => self.look_at(members.iter_from(from), count_max, ctx)?,
            None => self.look_at(std::iter::empty(), count_max, ctx)?,
        };
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Peeked(messages)))
    }

    /// Removes available messages of a session for its holder (DEL-07).
    pub(super) fn delete_batch_of(
        &mut self,
        index: SessionIndex,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        self.refuse_receive()?;
        Self::refuse_delete_count(count_max, ctx)?;
        let before = enqueued_before.unwrap_or(ctx.now);
        let doomed: Vec<SequenceNumber> = self
            .sessions
            .as_ref()
            .and_then(|sessions| sessions.get(index))
            .into_iter()
            .flat_map(|session| session.available().iter_from(SequenceNumber(0)))
            .take_while(|sequence| self.is_enqueued_before(*sequence, before))
            .take(count_max as usize)
            .collect();
        Ok(self.delete_all(&doomed, ctx, step))
    }

    /// Removes available messages of all unlocked sessions, lowest numbers first (DEL-07).
    pub(in crate::queue) fn delete_batch_unlocked(
        &mut self,
        sub_queue: SubQueue,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        self.refuse_receive()?;
        Self::refuse_delete_count(count_max, ctx)?;
        let before = enqueued_before.unwrap_or(ctx.now);
        let mut count = 0;
        while count < u64::from(count_max)
            && let Some((sequence, _)) =
                self.sessions.as_ref().and_then(|sessions| sessions.first_open())
            && self.is_enqueued_before(sequence, before)
        {
            self.remove_message(sequence, Removal::Deleted, ctx, step);
            count += 1;
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Deleted(count)))
    }
}
