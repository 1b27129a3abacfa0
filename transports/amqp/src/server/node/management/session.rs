//! `renew-session-lock`, `get-session-state`, `set-session-state`: what the holder of a session asks (SES-12,
//! SES-24, AMQP-89), and who that is.

use peeklock_core::command::{Outcome, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{Scalar, code};

use super::super::Node;
use super::super::reply::Asker;
use super::pieces::Pieces;
use super::{ManagementAnswer, Memo, Planned, Question, Read, Refusal, key, unexpected};
use crate::server::conversation::Conversation;

impl Conversation {
    /// The receiving link of this connection by way of which something of a session is asked: that which the
    /// request names, or that which holds the session (AMQP-89).
    pub(super) fn session_link(&self, question: &Question<'_>) -> Result<Option<u32>, Rejection> {
        let session = question.body.text("session-id")?;
        let associated = question.request.text("associated-link-name");
        let of = |number: u32| self.engine.links.get(number).filter(|link| link.is_open());
        let here = |number: u32| {
            of(number).is_some_and(|link| link.path.eq_ignore_ascii_case(question.path))
        };
        let outlets = || {
            self.nodes.values().filter_map(|node| match node {
                Node::Outlet(outlet) if here(outlet.number) => Some(&**outlet),
                _ => None,
            })
        };
        let is_of = |number: u32| {
            of(number).and_then(|link| link.session()).is_some_and(|held| match &session {
                Some(session) => held == session,
                None => true,
            })
        };
        if let Some(name) = &associated {
            let named = outlets().find(|outlet| *outlet.name == **name && is_of(outlet.number));
            if let Some(outlet) = named {
                return Ok(Some(outlet.number));
            }
        }
        // Without its id a session is meant only by its link.
        let Some(session) = &session else { return Ok(None) };
        let holds = |number: u32| of(number).and_then(|it| it.session()) == Some(session.as_str());
        Ok(outlets().find(|outlet| holds(outlet.number)).map(|outlet| outlet.number))
    }

    /// The same, where only its holder may ask (AMQP-89).
    fn held_session(&self, question: &Question<'_>) -> Result<u32, Rejection> {
        let session = question.body.wanted_text("session-id")?;
        self.session_link(question)?.ok_or_else(|| {
            Rejection::session_lock_lost(format!(
                "session `{session:.128}` is not held by this connection"
            ))
        })
    }

    pub(super) async fn plan_renew_session(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        self.plan_of_holder(question, SessionCommand::Renew, Self::session_renewed).await
    }

    pub(super) async fn plan_session_state(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        self.plan_of_holder(question, SessionCommand::GetState, Self::session_state).await
    }

    /// Null clears the state, and so does what is empty: some clients can say no null.
    pub(super) async fn plan_set_session_state(
        &mut self,
        question: &Question<'_>,
    ) -> Result<Planned, Refusal> {
        let state = match question.body.get("session-state") {
            None => None,
            Some(value) => match value.scalar() {
                Ok(Scalar::Binary([])) => None,
                Ok(Scalar::Binary(state)) => Some(value.as_bytes().slice_ref(state)),
                _ => return Err(Rejection::argument("`session-state` must be binary").into()),
            },
        };
        self.plan_of_holder(question, SessionCommand::SetState { state }, Self::done).await
    }

    async fn plan_of_holder(
        &mut self,
        question: &Question<'_>,
        command: SessionCommand,
        read: Read,
    ) -> Result<Planned, Refusal> {
        let entity = self.managed_entity(question, Action::HoldSession).await?;
        let number = self.held_session(question)?;
        let Some(link) = self.engine.links.get(number) else {
            return Err(Rejection::session_lock_lost("link of the session no longer exists").into());
        };
        let commands = vec![link.in_session(command)];
        let memo = Memo { link: Some(number), ..Memo::default() };
        Ok(Planned::Commands { entity, commands, read, memo })
    }

    fn session_renewed(
        &mut self,
        _: &Asker,
        memo: &Memo,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::Renewed(until)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        if let Some(link) = memo.link {
            self.engine.links.session_renewed(link, until);
        }
        let mut items = Pieces::default();
        key(&mut items, "expiration");
        write::timestamp(&mut items, until.unix_ms());
        Ok(ManagementAnswer::Map(items, 2))
    }

    fn session_state(
        &mut self,
        _: &Asker,
        _: &Memo,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::SessionState(state)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        let mut items = Pieces::default();
        key(&mut items, "session-state");
        match state {
            Some(content) => {
                let missing = || Rejection::internal("the state of a session cannot be read");
                items.binary(vec![content.loaded().cloned().ok_or_else(missing)?]);
            }
            None => items.put_byte(code::NULL),
        }
        Ok(ManagementAnswer::Map(items, 2))
    }
}
