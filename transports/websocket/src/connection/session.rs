//! Sessions: accepting one, which opens a link to it, and what its holder asks (SES-05 to SES-15, SES-24
//! to SES-29).

use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome, SessionCommand, SessionFilter};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_link::{Link, Source};

use super::Conversation;
use super::inbound::{Asked, Done};
use super::pending::Expect;
use crate::frame::session::{
    AcceptSession, DeleteUnlocked, ListSessions, PeekSession, SessionList, SessionState,
    SetSessionState,
};
use crate::frame::text::Instant;
use crate::frame::{Deleted, Notice};

/// How long an accept waits for the next session if it does not say (SES-08).
const WAIT_SECONDS: f64 = 60.0;

/// Removes available messages of what a link receives from (DEL-01, DEL-07).
pub(super) const fn delete_batch(
    link: &Link<Entity>,
    count_max: u32,
    enqueued_before: Option<Timestamp>,
) -> Command {
    match link.source {
        Source::Session(_) => {
            link.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before })
        }
        Source::Queue | Source::Awaited => Command::DeleteBatch { count_max, enqueued_before },
    }
}

impl Conversation {
    /// Locks a session for a new link, or lets the request wait for one (SES-05 to SES-08).
    pub(super) async fn accept_session(&mut self, asked: Asked, accept: AcceptSession) -> Done {
        let AcceptSession { link: number, path, session_id, mode, wait_seconds, credit } = accept;
        if asked.id == 0 {
            return Err(Rejection::argument("acceptSession needs an id, to be answered").into());
        }
        self.refuse_link(number)?;
        let wait = match session_id {
            Some(_) => TimeSpan::ZERO,
            None => self.wait_of(wait_seconds.unwrap_or(WAIT_SECONDS))?,
        };
        let entity = self.access.entity(&path, Action::AcceptSession).await?;
        let link_path = entity.path().into();
        let role = peeklock_link::Role::Receiver;
        self.links.attach(number, entity, link_path, role, mode.into());
        let session = session_id.map(String::into_boxed_str);
        let credit = credit.unwrap_or(0);
        self.links.accept(number, session, wait, credit, asked.id, Some(asked.permit));
        Ok(())
    }

    /// Carries out what the holder of a link's session asks.
    fn ask_session(
        &mut self,
        asked: Asked,
        number: u32,
        command: SessionCommand,
        expect: Expect,
    ) -> Done {
        let link = self.receiver(number)?;
        if link.session().is_none() {
            let detail = format!("link {number} is bound to no session");
            return Err(Rejection::invalid_operation(detail).into());
        }
        let command = link.in_session(command);
        self.command(asked, number, command, expect)
    }

    pub(super) fn renew_session(&mut self, asked: Asked, number: u32) -> Done {
        let expect = Expect::SessionRenewed { link: number };
        self.ask_session(asked, number, SessionCommand::Renew, expect)
    }

    pub(super) fn session_state(&mut self, asked: Asked, number: u32) -> Done {
        self.ask_session(asked, number, SessionCommand::GetState, Expect::SessionState)
    }

    pub(super) fn set_session_state(&mut self, asked: Asked, set: SetSessionState) -> Done {
        let command = SessionCommand::SetState { state: set.state };
        self.ask_session(asked, set.link, command, Expect::Done)
    }

    /// Tells a state that was fetched.
    pub(super) fn state_read(&self, state: Option<ContentRef>, path: &str) -> Notice {
        let loaded = match &state {
            None => Some(None),
            Some(content) => content.loaded().cloned().map(Some),
        };
        match loaded {
            Some(state) => Notice::SessionState(SessionState { state }),
            None => {
                let reason = Rejection::internal("the state of a session cannot be read");
                Notice::Error(self.wire_error(reason, path))
            }
        }
    }

    /// Looks at the messages of any session, whoever holds it (PEK-07).
    pub(super) fn peek_session(&mut self, asked: Asked, peek: PeekSession) -> Done {
        self.receiver(peek.link)?;
        let command = Command::PeekSession {
            session: peek.session_id.into_boxed_str(),
            from: SequenceNumber(peek.from),
            count_max: peek.max_count,
        };
        self.look(asked, peek.link, command)
    }

    /// Names sessions in ascending order (SES-29).
    pub(super) async fn list_sessions(&mut self, asked: Asked, list: ListSessions) -> Done {
        let which = match (list.with_active_messages, list.state_set_after_utc) {
            (true, Some(_)) => {
                let detail = "ask for withActiveMessages or stateSetAfterUtc, not both";
                return Err(Rejection::argument(detail).into());
            }
            (true, None) => SessionFilter::WithActiveMessages,
            (false, Some(Instant(at))) => SessionFilter::StateSetAfter(at),
            (false, None) => SessionFilter::All,
        };
        let entity = self.access.entity(&list.path, Action::ListSessions).await?;
        let command = Command::ListSessions {
            which,
            skip: list.skip.into(),
            top: list.top.unwrap_or(u32::MAX),
        };
        self.apart(asked, async move {
            match entity.call(command).await? {
                Outcome::Sessions(names) => {
                    let session_ids = names.iter().map(|name| (**name).to_owned()).collect();
                    Ok(Notice::Sessions(SessionList { session_ids }))
                }
                _ => Err(entity.refuse(Rejection::internal("unexpected answer"))),
            }
        });
        Ok(())
    }

    /// Deletes available messages of all sessions that nobody holds (DEL-07).
    pub(super) async fn delete_unlocked(&mut self, asked: Asked, delete: DeleteUnlocked) -> Done {
        let entity = self.access.entity(&delete.path, Action::DeleteUnlocked).await?;
        let command = Command::DeleteBatchUnlocked {
            count_max: delete.max_count.unwrap_or_else(|| self.delete_count_max()),
            enqueued_before: delete.enqueued_before_utc.map(|Instant(at)| at),
        };
        self.apart(asked, async move {
            match entity.call(command).await? {
                Outcome::Deleted(count) => Ok(Notice::Deleted(Deleted { count })),
                _ => Err(entity.refuse(Rejection::internal("unexpected answer"))),
            }
        });
        Ok(())
    }
}
