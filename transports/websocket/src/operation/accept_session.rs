//! Accepting a session, which opens a link to it (SES-05 to SES-08).

use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::time::TimeSpan;

use super::Mode;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;

/// How long an accept waits for the next session if it does not say (SES-08).
const WAIT_SECONDS: f64 = 60.0;

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

    struct SessionAccepted {
        session_id: String,
        locked_until_utc: Instant,
    }
}

impl Conversation {
    /// Locks a session for a new link, or lets the request wait for one (SES-05 to SES-08).
    pub(super) async fn accept_session(&mut self, asked: Asked, accept: AcceptSession) -> Done {
        let AcceptSession { link: number, path, session_id, mode, wait_seconds, credit } = accept;
        if asked.id == 0 {
            return Err(Rejection::argument("acceptSession needs an id for its answer").into());
        }
        self.refuse_link(number)?;
        let wait = match session_id {
            Some(_) => TimeSpan::ZERO,
            None => self.wait_of(wait_seconds.unwrap_or(WAIT_SECONDS))?,
        };
        let entity = self.engine.access.entity(&path, Action::AcceptSession).await?;
        let link_path = entity.path().into();
        let role = peeklock_link::Role::Receiver;
        self.engine.links.attach(number, entity, link_path, role, mode.into());
        let session = session_id.map(String::into_boxed_str);
        let credit = credit.unwrap_or(0);
        self.engine.links.accept(
            number,
            session,
            wait,
            credit.into(),
            asked.id,
            Some(asked.permit),
        );
        Ok(())
    }
}
