//! Prolongs a session lock.

use peeklock_core::command::{Outcome, SessionCommand};
use peeklock_core::error::Rejection;

use crate::connection::{Asked, Conversation, Done};
use crate::frame::text::Instant;
use crate::operation::{LinkOnly, Notice, Renewed, unexpected};

impl Conversation {
    pub(in crate::operation) fn renew_session(&mut self, asked: Asked, only: &LinkOnly) -> Done {
        self.ask_session(asked, only.link, SessionCommand::Renew, Self::session_renewed)
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
