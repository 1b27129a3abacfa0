//! Accepts a session, which opens a link to it (SES-05 to SES-08), and carries out requests of its
//! holder: its lock and its state (SES-14, SES-15, SES-24 to SES-28).

use bytes::Bytes;
use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::request::unreadable_state;
use peeklock_core::time::TimeSpan;
use peeklock_json::{state_bytes, state_text};
use serde::{Deserialize, Serialize};

use super::{LinkOnly, MakeAnswer, Mode, Notice, PendingAnswer, Renewed, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done, Refusal};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::frame::wire::wire;

/// Default wait of an accept for the next session, in seconds (SES-08).
const WAIT_SECONDS: f64 = 60.0;

bodies! {
    struct AcceptSession {
        /// Chosen by the client; must not be in use.
        link: u32,
        path: String,
        /// Id of the session; without it, the next available one.
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        #[serde(default)]
        mode: Mode,
        /// Time to wait for the next session; 60 s by default.
        #[serde(skip_serializing_if = "Option::is_none")]
        wait_seconds: Option<f64>,
        /// First credit; without it, nothing is pushed.
        #[serde(skip_serializing_if = "Option::is_none")]
        credit: Option<u32>,
    }

    struct SessionAccepted {
        session_id: String,
        locked_until_utc: Instant,
    }
}

impl Conversation {
    /// Locks a session for a new link, or lets the request wait for one (SES-05 to SES-08).
    pub(super) async fn accept_session(
        &mut self,
        admitted: AdmittedRequest,
        accept: AcceptSession,
    ) -> Done {
        let AcceptSession { link: number, path, session_id, mode, wait_seconds, credit } = accept;
        if admitted.id == 0 {
            return Err(Rejection::argument("acceptSession needs an id for its answer").into());
        }
        self.refuse_link(number)?;
        let wait = match session_id {
            Some(_) => TimeSpan::ZERO,
            None => self.bounded_wait(wait_seconds.unwrap_or(WAIT_SECONDS))?,
        };
        let entity = self.engine.access.entity(&path, Action::AcceptSession).await?;
        let link_path = entity.path().into();
        let role = peeklock_link::LinkRole::Receiver;
        self.engine.links.attach(number, entity, link_path, role, mode.into());
        let session = session_id.map(String::into_boxed_str);
        let credit = credit.unwrap_or(0);
        self.engine.links.accept(
            number,
            session,
            wait,
            credit.into(),
            admitted.id,
            Some(admitted.permit),
        );
        Ok(())
    }
}

impl Conversation {
    /// Carries out a request of the holder of a session.
    fn ask_session(
        &mut self,
        admitted: AdmittedRequest,
        number: u32,
        command: SessionCommand,
        read: MakeAnswer,
    ) -> Done {
        let command = self.session_command(number, command)?;
        self.command(admitted, number, command, PendingAnswer::One(read))
    }

    /// Returns a request of the holder of a session as a command for its entity.
    pub(super) fn session_command(
        &mut self,
        number: u32,
        command: SessionCommand,
    ) -> Result<Command, Refusal> {
        let link = self.receiver(number)?;
        if link.session().is_none() {
            let detail = format!("link {number} has no session");
            return Err(Rejection::invalid_operation(detail).into());
        }
        Ok(link.in_session(command))
    }
}

impl Conversation {
    pub(super) fn renew_session(&mut self, admitted: AdmittedRequest, only: &LinkOnly) -> Done {
        self.ask_session(admitted, only.link, SessionCommand::Renew, Self::session_renewed)
    }

    fn session_renewed(
        &mut self,
        link: u32,
        outcome: Outcome,
        _: &str,
    ) -> Result<Notice, Rejection> {
        let Outcome::Renewed(until) = outcome else { return Err(unexpected()) };
        self.engine.links.session_renewed(link, until);
        let locked_until_utc = Some(Instant(until));
        Ok(Notice::Renewed(Renewed { locked_until_utc, failed: Vec::new() }))
    }
}

/// State of a session; none if it has no state.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StateObject", into = "StateObject")]
pub(crate) struct SessionState {
    pub(crate) state: Option<Bytes>,
}
wire!(SessionState { state: Option<Bytes> });

/// State in JSON: text or base64, or neither.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StateObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
}

impl TryFrom<StateObject> for SessionState {
    type Error = &'static str;

    fn try_from(object: StateObject) -> Result<Self, Self::Error> {
        state_bytes(object.state, object.state_base64).map(|state| Self { state })
    }
}

impl From<SessionState> for StateObject {
    fn from(state: SessionState) -> Self {
        let (state, state_base64) = state_text(state.state.as_ref());
        Self { state, state_base64 }
    }
}

impl Conversation {
    pub(super) fn session_state(&mut self, admitted: AdmittedRequest, only: &LinkOnly) -> Done {
        self.ask_session(admitted, only.link, SessionCommand::GetState, Self::session_state_read)
    }

    fn session_state_read(
        &mut self,
        _: u32,
        outcome: Outcome,
        _: &str,
    ) -> Result<Notice, Rejection> {
        let Outcome::SessionState(state) = outcome else { return Err(unexpected()) };
        // The content was loaded before the answer.
        let read = state
            .map(|content| content.loaded().cloned().ok_or_else(|| unreadable_state(&content)));
        Ok(Notice::SessionState(SessionState { state: read.transpose()? }))
    }
}

/// Replaces the state of a session; none clears it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SetStateObject", into = "SetStateObject")]
pub(crate) struct SetSessionState {
    pub(crate) link: u32,
    pub(crate) state: Option<Bytes>,
}
wire!(SetSessionState { link: u32, state: Option<Bytes> });

/// State in JSON with its link: text or base64, or neither.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SetStateObject {
    link: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
}

impl TryFrom<SetStateObject> for SetSessionState {
    type Error = &'static str;

    fn try_from(object: SetStateObject) -> Result<Self, Self::Error> {
        let state = state_bytes(object.state, object.state_base64)?;
        Ok(Self { link: object.link, state })
    }
}

impl From<SetSessionState> for SetStateObject {
    fn from(set: SetSessionState) -> Self {
        let (state, state_base64) = state_text(set.state.as_ref());
        Self { link: set.link, state, state_base64 }
    }
}

impl Conversation {
    pub(super) fn set_session_state(
        &mut self,
        admitted: AdmittedRequest,
        set: SetSessionState,
    ) -> Done {
        let command = SessionCommand::SetState { state: set.state };
        self.ask_session(admitted, set.link, command, PendingAnswer::done)
    }
}
