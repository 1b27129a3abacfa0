//! What the holder of a session asks: its lock, its state (SES-14, SES-15, SES-24 to SES-28). One file for each
//! operation.

mod get_state;
mod renew;
mod set_state;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::command::{Command, SessionCommand};
use peeklock_core::error::Rejection;
use peeklock_json::as_text;

pub(crate) use self::{get_state::*, set_state::*};
use super::{Expect, Read};
use crate::connection::{Asked, Conversation, Done, Refusal};

fn bytes_of(state: Option<String>, base64: Option<String>) -> Result<Option<Bytes>, &'static str> {
    match (state, base64) {
        (Some(_), Some(_)) => Err("a session has state or stateBase64, not both"),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(_) => Err("stateBase64 must be base64"),
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

impl Conversation {
    /// Carries out what the holder of a link's session asks.
    fn ask_session(
        &mut self,
        asked: Asked,
        number: u32,
        command: SessionCommand,
        read: Read,
    ) -> Done {
        let command = self.session_command(number, command)?;
        self.command(asked, number, command, Expect::One(read))
    }

    /// What the holder of a link's session asks, as a command for its entity.
    pub(in crate::operation) fn session_command(
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
