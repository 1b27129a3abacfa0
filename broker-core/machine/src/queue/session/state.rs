//! State of a session: bytes that its holder leaves for the next holder (SES-24 to SES-28). The
//! commands of the holder call it, and commits call it for transactions. A state has a maximum
//! size.

use std::sync::Arc;

use bytes::Bytes;
use siphasher::sip128::SipHasher24;

use super::accept::refuse_long_id;
use super::{Session, SessionIndex};
use crate::change::codec::session_state_key;
use crate::change::{Change, Durability};
use crate::command::{Outcome, StateFacts};
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::intake::Intake;
use crate::path::SubQueue;
use crate::queue::Queue;
use crate::record::Key;
use crate::{Ctx, StepOutput, intake};

impl Queue {
    /// Returns the location of the state (SES-24). Allowed in every status (ENT-25).
    pub(super) fn session_state(&mut self, index: SessionIndex, ctx: &Ctx<'_>) -> Answer {
        let session = self.sessions.as_ref().and_then(|sessions| sessions.get(index));
        let facts = session.and_then(|session| self.state_facts(session));
        self.touch(ctx.now);
        Answer::Now(Outcome::SessionState(facts), Gate::Commit)
    }

    /// The location of a session's state, if it has one.
    pub(in crate::queue) fn state_facts(&self, session: &Session) -> Option<StateFacts> {
        Some(match session.state()?.fresh() {
            Some(bytes) => StateFacts::Fresh(bytes.clone()),
            None => StateFacts::Stored(self.session_state_key(session.name())),
        })
    }

    /// Replaces or clears the state (SES-24, SES-26, SES-27).
    pub(super) fn set_session_state(
        &mut self,
        index: SessionIndex,
        state: Option<Bytes>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.admit_session_state(index, state.as_ref(), ctx)?;
        self.put_session_state(index, state, ctx, step);
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Replaces or clears the state of a session that no receiver holds (CON-27). A state makes a
    /// session exist (SES-04); clearing the state of a session that does not exist does nothing.
    pub(in crate::queue) fn set_state_of_unheld(
        &mut self,
        sub_queue: SubQueue,
        session: &str,
        state: Option<Bytes>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        refuse_long_id(session, ctx)?;
        let found = self.sessions.as_ref().and_then(|all| all.get(all.named(session)?));
        if found.is_some_and(|session| session.hold().is_some()) {
            return Err(Rejection::session_cannot_be_locked(session));
        }
        let name = found.map_or_else(|| session.into(), |session| Arc::clone(session.name()));
        let size_before = found.and_then(|session| session.state()).map(|state| state.size);
        self.admit_state(size_before, state.as_ref(), ctx)?;
        if state.is_some() || size_before.is_some() {
            self.replace_state(name, size_before.unwrap_or(0), state, ctx, step);
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Checks a new state for the holder of a session (SES-26).
    pub(in crate::queue) fn admit_session_state(
        &self,
        index: SessionIndex,
        state: Option<&Bytes>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let Some(session) = self.sessions.as_ref().and_then(|all| all.get(index)) else {
            return Err(Rejection::internal("the session is gone"));
        };
        self.admit_state(session.state().map(|state| state.size), state, ctx)
    }

    /// Checks a new state that replaces one of `size_before` bytes, if there is one (SES-26).
    fn admit_state(
        &self,
        size_before: Option<u64>,
        state: Option<&Bytes>,
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        let is_first = size_before.is_none();
        let count = self.sessions.as_ref().map_or(0, |all| all.state_count());
        let size = state.as_ref().map_or(0, |state| state.len() as u64);
        let size_max = self.message_bytes_max();
        if size > size_max {
            return Err(Rejection::message_size_exceeded("session state", size, size_max));
        }
        if state.is_some() {
            intake::refuse_without_room(ctx)?;
        }
        self.refuse_over_quota(size.saturating_sub(size_before.unwrap_or(0)), ctx)?;
        let count_max = ctx.limits.session_state_count_max;
        if state.is_some() && is_first && count >= count_max {
            return Err(Rejection::too_many("session states", self.path(), count_max));
        }
        if state.is_some() && is_first && ctx.remaining.sessions == 0 {
            return Err(intake::too_many_sessions(ctx));
        }
        Ok(())
    }

    /// Sets or clears a state that was checked.
    pub(in crate::queue) fn put_session_state(
        &mut self,
        index: SessionIndex,
        state: Option<Bytes>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let Some(session) = self.sessions.as_ref().and_then(|all| all.get(index)) else { return };
        let size_before = session.state().map_or(0, |state| state.size);
        let session = Arc::clone(session.name());
        self.replace_state(session, size_before, state, ctx, step);
    }

    fn replace_state(
        &mut self,
        session: Arc<str>,
        size_before: u64,
        state: Option<Bytes>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let size = state.as_ref().map_or(0, |state| state.len() as u64);
        step.bytes_added += size;
        step.bytes_freed += size_before;
        let change = Change::SessionStateSet { session, state, at: ctx.now };
        self.change(change, Durability::Sync, ctx, step);
    }

    /// Returns the key of a session's state.
    pub(in crate::queue) fn session_state_key(&self, session: &str) -> Key {
        let hash = SipHasher24::new_with_key(&self.config.duplicate_key).hash(session.as_bytes());
        session_state_key(self.id, hash.as_u128())
    }
}
