//! What is said about sessions: accepting one, its lock, its state (section 6 of the document).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::text::Instant;
use super::wire::wire;
use super::{Mode, bodies};

bodies! {
    struct AcceptSession {
        /// Chosen by the client, not in use.
        link: u32,
        path: String,
        /// This session; without it, the next one that can be had.
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        #[serde(default)]
        mode: Mode,
        /// How long to wait for the next one; 60 s if not said.
        #[serde(skip_serializing_if = "Option::is_none")]
        wait_seconds: Option<f64>,
        /// The first credit; without it, nothing is pushed.
        #[serde(skip_serializing_if = "Option::is_none")]
        credit: Option<u32>,
    }

    struct PeekSession {
        link: u32,
        session_id: String,
        from: u64,
        max_count: u32,
    }

    struct ListSessions {
        path: String,
        /// Only those that have active messages.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_active_messages: bool,
        /// Only those whose state was set after this instant.
        #[serde(skip_serializing_if = "Option::is_none")]
        state_set_after_utc: Option<Instant>,
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct DeleteUnlocked {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_count: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }

    struct SessionAccepted {
        session_id: String,
        locked_until_utc: Instant,
    }

    struct SessionList {
        session_ids: Vec<String>,
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

/// Text if it is UTF-8, else base64.
fn text_of(state: Option<&Bytes>) -> (Option<String>, Option<String>) {
    let Some(bytes) = state else { return (None, None) };
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
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
