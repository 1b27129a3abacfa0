//! Replaces the state of a session, or clears it.

use bytes::Bytes;
use peeklock_core::command::SessionCommand;
use serde::{Deserialize, Serialize};

use super::{bytes_of, text_of};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::wire::wire;
use crate::operation::Expect;

/// Replaces the state of a session; none clears it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "SetStateObject", into = "SetStateObject")]
pub(crate) struct SetSessionState {
    pub(crate) link: u32,
    pub(crate) state: Option<Bytes>,
}
wire!(SetSessionState { link: u32, state: Option<Bytes> });

/// A state in JSON with the link that it is for: text, or any bytes, or neither.
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

impl Conversation {
    pub(in crate::operation) fn set_session_state(
        &mut self,
        asked: Asked,
        set: SetSessionState,
    ) -> Done {
        let command = SessionCommand::SetState { state: set.state };
        self.ask_session(asked, set.link, command, Expect::done)
    }
}
