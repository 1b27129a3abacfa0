//! Requests about sessions. `renew-session-lock`, `get-session-state` and `set-session-state` need
//! the holder of the session (SES-12, SES-24, AMQP-89); `get-message-sessions` does not.

use peeklock_core::command::{Command, Outcome, SessionCommand, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::request::unreadable_state;
use peeklock_core::time::Timestamp;
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{Scalar, code};

use super::super::Node;
use super::pieces::Pieces;
use super::plan::{MakeReply, ManagementAnswer, OperationPlan, RequestData};
use super::{ManagementRequest, Refusal, key, unexpected};
use crate::server::conversation::Conversation;
use crate::server::work::ReplyAddress;

impl Conversation {
    /// Returns the receiving link of this connection for a request about a session: the link that
    /// the request names, or else the link that holds the session (AMQP-89).
    pub(super) fn session_link(
        &self,
        management: &ManagementRequest<'_>,
    ) -> Result<Option<u32>, Rejection> {
        let session = management.body.text("session-id")?;
        let associated = management.request.text("associated-link-name");
        let of = |number: u32| self.engine.links.get(number).filter(|link| link.is_open());
        let here = |number: u32| {
            of(number).is_some_and(|link| link.path.eq_ignore_ascii_case(management.path))
        };
        let receivers = || {
            self.nodes.values().filter_map(|node| match node {
                Node::Receiver(receiver) if here(receiver.number) => Some(&**receiver),
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
            let named =
                receivers().find(|receiver| *receiver.name == **name && is_of(receiver.number));
            if let Some(receiver) = named {
                return Ok(Some(receiver.number));
            }
        }
        // Without a session id, only the named link can identify a session.
        let Some(session) = &session else { return Ok(None) };
        let holds = |number: u32| of(number).and_then(|it| it.session()) == Some(session.as_str());
        Ok(receivers().find(|receiver| holds(receiver.number)).map(|receiver| receiver.number))
    }

    /// Returns that link for a request that only the holder may send (AMQP-89).
    fn held_session(&self, management: &ManagementRequest<'_>) -> Result<u32, Rejection> {
        let session = management.body.required_text("session-id")?;
        self.session_link(management)?.ok_or_else(|| {
            Rejection::session_lock_lost(format!(
                "session `{session:.128}` is not held by this connection"
            ))
        })
    }

    pub(super) async fn plan_renew_session(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        self.plan_of_holder(management, SessionCommand::Renew, Self::session_renewed).await
    }

    pub(super) async fn plan_session_state(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        self.plan_of_holder(management, SessionCommand::GetState, Self::session_state).await
    }

    /// Plans a new session state. Null clears the state, and so does an empty value, since some
    /// clients cannot send null.
    pub(super) async fn plan_set_session_state(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let state = match management.body.get("session-state") {
            None => None,
            Some(value) => match value.scalar() {
                Ok(Scalar::Binary([])) => None,
                Ok(Scalar::Binary(state)) => Some(value.as_bytes().slice_ref(state)),
                _ => return Err(Rejection::argument("`session-state` must be binary").into()),
            },
        };
        self.plan_of_holder(management, SessionCommand::SetState { state }, Self::done).await
    }

    async fn plan_of_holder(
        &mut self,
        management: &ManagementRequest<'_>,
        command: SessionCommand,
        read: MakeReply,
    ) -> Result<OperationPlan, Refusal> {
        let entity = self.managed_entity(management, Action::HoldSession).await?;
        let number = self.held_session(management)?;
        let Some(link) = self.engine.links.get(number) else {
            return Err(Rejection::session_lock_lost("link of the session no longer exists").into());
        };
        let commands = vec![link.in_session(command)];
        let memo = RequestData { link: Some(number), ..RequestData::default() };
        Ok(OperationPlan::Commands { entity, commands, read, memo })
    }

    fn session_renewed(
        &mut self,
        _: &ReplyAddress,
        memo: &RequestData,
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
        _: &ReplyAddress,
        _: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::SessionState(state)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        let mut items = Pieces::default();
        key(&mut items, "session-state");
        match state {
            Some(content) => {
                let missing = || unreadable_state(&content);
                items.binary(vec![content.loaded().cloned().ok_or_else(missing)?]);
            }
            None => items.put_byte(code::NULL),
        }
        Ok(ManagementAnswer::Map(items, 2))
    }

    pub(super) async fn plan_list_sessions(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let body = &management.body;
        let which = match body.instant("last-updated-time")? {
            Some(at) if at.unix_ms() < ACTIVE_FROM_MS => SessionFilter::StateSetAfter(at),
            Some(_) | None => SessionFilter::StateSetAfter(Timestamp::NEVER),
        };
        let skip = body.count("skip")?.unwrap_or(0);
        let top = body.count("top")?.unwrap_or(u32::MAX);
        let after = body.text("last-session-id")?;
        if after.as_ref().is_some_and(|name| name.chars().count() > NAME_CHARS_MAX) {
            let text = format!("`last-session-id` has more than {NAME_CHARS_MAX} characters");
            return Err(Rejection::argument(text).into());
        }
        // The list continues after a name, even if sessions before it are gone. `skip` is then only
        // used for the answer.
        let left_out = if after.is_some() { 0 } else { skip };
        let after = after.map(String::into_boxed_str);
        let command = Command::ListSessions { which, after, skip: left_out.into(), top };
        let entity = self.managed_entity(management, Action::ListSessions).await?;
        Ok(OperationPlan::in_background(async move {
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

/// From this time on, `last-updated-time` selects sessions with active messages or a state. It is
/// the last millisecond of the year 9999.
const ACTIVE_FROM_MS: i64 = 253_402_300_800_000 - 1;
/// Maximum length of a session id in characters (SES-03).
const NAME_CHARS_MAX: usize = 128;
