//! What the holder of a session asks: its lock, its state (SES-14, SES-15, SES-24 to SES-28).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::command::{Outcome, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_json::as_text;
use serde::{Deserialize, Serialize};

use super::{Expect, LinkOnly, Notice, Read, Renewed, unexpected};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::text::Instant;
use crate::frame::wire::wire;

/// Replaces the state of a session; none clears it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SetStateObject", into = "SetStateObject")]
pub(crate) struct SetSessionState {
    pub(crate) link: u32,
    pub(crate) state: Option<Bytes>,
}
wire!(SetSessionState { link: u32, state: Option<Bytes> });

/// The state of a session, if it has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StateObject", into = "StateObject")]
pub(crate) struct SessionState {
    pub(crate) state: Option<Bytes>,
}
wire!(SessionState { state: Option<Bytes> });

/// A state in JSON: text, or any bytes, or neither.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StateObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
}

/// The same with the link it is for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SetStateObject {
    link: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
}

fn bytes_of(state: Option<String>, base64: Option<String>) -> Result<Option<Bytes>, &'static str> {
    match (state, base64) {
        (Some(_), Some(_)) => Err("a session has state or stateBase64, not both"),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(_) => Err("stateBase64 is not base64"),
        },
        (None, None) => Ok(None),
    }
}

/// Text if it is one for JSON, else base64.
fn text_of(state: Option<&Bytes>) -> (Option<String>, Option<String>) {
    let Some(bytes) = state else { return (None, None) };
    match as_text(bytes) {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(STANDARD.encode(bytes))),
    }
}

impl TryFrom<SetStateObject> for SetSessionState {
    type Error = &'static str;

    fn try_from(object: SetStateObject) -> Result<Self, Self::Error> {
        let state = bytes_of(object.state, object.state_base64)?;
        Ok(Self { link: object.link, state })
    }
}

impl From<SetSessionState> for SetStateObject {
    fn from(set: SetSessionState) -> Self {
        let (state, state_base64) = text_of(set.state.as_ref());
        Self { link: set.link, state, state_base64 }
    }
}

impl TryFrom<StateObject> for SessionState {
    type Error = &'static str;

    fn try_from(object: StateObject) -> Result<Self, Self::Error> {
        bytes_of(object.state, object.state_base64).map(|state| Self { state })
    }
}

impl From<SessionState> for StateObject {
    fn from(state: SessionState) -> Self {
        let (state, state_base64) = text_of(state.state.as_ref());
        Self { state, state_base64 }
    }
}

impl Conversation {
    pub(super) fn renew_session(&mut self, asked: Asked, only: &LinkOnly) -> Done {
        self.ask_session(asked, only.link, SessionCommand::Renew, Self::session_renewed)
    }

    fn session_renewed(
        &mut self,
        link: u32,
        outcome: Outcome,
        _: &str,
    ) -> Result<Notice, Rejection> {
        let Outcome::Renewed(until) = outcome else { return Err(unexpected()) };
        self.links.session_renewed(link, until);
        let locked_until_utc = Some(Instant(until));
        Ok(Notice::Renewed(Renewed { locked_until_utc, failed: Vec::new() }))
    }

    pub(super) fn session_state(&mut self, asked: Asked, only: &LinkOnly) -> Done {
        self.ask_session(asked, only.link, SessionCommand::GetState, Self::session_state_read)
    }

    fn session_state_read(
        &mut self,
        _: u32,
        outcome: Outcome,
        _: &str,
    ) -> Result<Notice, Rejection> {
        let Outcome::SessionState(state) = outcome else { return Err(unexpected()) };
        // It was fetched.
        let read = state.map(|content| {
            let missing = || Rejection::internal("the state of a session cannot be read");
            content.loaded().cloned().ok_or_else(missing)
        });
        Ok(Notice::SessionState(SessionState { state: read.transpose()? }))
    }

    pub(super) fn set_session_state(&mut self, asked: Asked, set: SetSessionState) -> Done {
        let command = SessionCommand::SetState { state: set.state };
        self.ask_session(asked, set.link, command, Expect::done)
    }

    /// Carries out what the holder of a link's session asks.
    fn ask_session(
        &mut self,
        asked: Asked,
        number: u32,
        command: SessionCommand,
        read: Read,
    ) -> Done {
        let link = self.receiver(number)?;
        if link.session().is_none() {
            let detail = format!("link {number} is bound to no session");
            return Err(Rejection::invalid_operation(detail).into());
        }
        let command = link.in_session(command);
        self.command(asked, number, command, Expect::One(read))
    }
}
