//! Reads the state of a session.

use bytes::Bytes;
use peeklock_core::command::{Outcome, SessionCommand};
use peeklock_core::error::Rejection;
use serde::{Deserialize, Serialize};

use super::{bytes_of, text_of};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::wire::wire;
use crate::operation::{LinkOnly, Notice, unexpected};

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
    pub(in crate::operation) fn session_state(&mut self, asked: Asked, only: &LinkOnly) -> Done {
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
}
