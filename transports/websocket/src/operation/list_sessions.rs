//! Lists the sessions of a queue or subscription (SES-29). `operation.rs` calls it. No session lock
//! is needed.

use peeklock_core::command::{Command, Outcome, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;

use super::{Notice, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;

bodies! {
    struct ListSessions {
        path: String,
        /// Only sessions with active messages.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_active_messages: bool,
        /// Only sessions whose state was set after this instant.
        #[serde(skip_serializing_if = "Option::is_none")]
        state_set_after_utc: Option<Instant>,
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct SessionList {
        session_ids: Vec<String>,
    }
}

impl Conversation {
    /// Lists sessions in ascending order (SES-29).
    pub(super) async fn list_sessions(
        &mut self,
        admitted: AdmittedRequest,
        list: ListSessions,
    ) -> Done {
        let which = match (list.with_active_messages, list.state_set_after_utc) {
            (true, Some(_)) => {
                let detail = "give withActiveMessages or stateSetAfterUtc, not both";
                return Err(Rejection::argument(detail).into());
            }
            (true, None) => SessionFilter::WithActiveMessages,
            (false, Some(Instant(at))) => SessionFilter::StateSetAfter(at),
            (false, None) => SessionFilter::All,
        };
        let entity = self.engine.access.entity(&list.path, Action::ListSessions).await?;
        let command = Command::ListSessions {
            which,
            after: None,
            skip: list.skip.into(),
            top: list.top.unwrap_or(u32::MAX),
        };
        self.spawn_background(admitted, move || async move {
            match entity.call(command).await? {
                Outcome::Sessions(names) => {
                    let session_ids = names.iter().map(|name| (**name).to_owned()).collect();
                    Ok(Notice::Sessions(SessionList { session_ids }))
                }
                _ => Err(entity.refuse(unexpected())),
            }
        })
    }
}
