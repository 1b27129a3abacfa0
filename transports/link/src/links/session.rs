//! Links that are bound to a session: their accept, renewal and end. `links.rs` calls it. A link
//! has at most one session.

use std::sync::Arc;

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::error::Rejection;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Event, Handle, Issuer, LinkAnswer, Links, unexpected};
use crate::credit::ReceiverFlow;
use crate::link::MessageSource;
use crate::pending::correlation;

impl<G: Issuer, T> Links<G, T> {
    /// Locks a session for a link that was just attached, or waits for one.
    pub fn accept(
        &mut self,
        number: u32,
        session: Option<Box<str>>,
        wait: TimeSpan,
        up_to: u64,
        id: u32,
        permit: Option<Arc<Permit>>,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.source = MessageSource::NotAssigned;
        let (receiver, mode) = (link.receiver, link.mode);
        let command = Command::AcceptSession { session, receiver, mode, wait };
        let waits = wait > TimeSpan::ZERO;
        let permit = permit.filter(|_| !waits);
        let slot = self.expect(id, number, LinkAnswer::Accepted(up_to), permit);
        let ticket = self.submit(number, command, correlation(slot, 0));
        if waits {
            self.waits.insert(id, (ticket, number));
        }
    }

    /// Records the renewal of a session lock, which extends all locks under it (SES-14).
    pub fn session_renewed(&mut self, number: u32, until: Timestamp) {
        self.unsettled.record_renewals(number, until);
    }

    /// Handles the answer of an accept: on success the link gets its session, otherwise it is
    /// removed.
    pub(super) fn accepted(
        &mut self,
        id: u32,
        number: u32,
        up_to: u64,
        path: Arc<str>,
        result: Result<Outcome, Rejection>,
    ) -> Event {
        self.waits.remove(&id);
        let result = match result {
            Ok(Outcome::SessionAccepted { session, locked_until, session_entrance, .. }) => {
                if let Some(link) = self.links.get_mut(&number) {
                    // From now on, requests of the link go to the actor of the session.
                    link.entity = link.entity.with_session_entrance(session_entrance);
                    link.source = MessageSource::Session((*session).into());
                    if let Some(listed) = &link.listed {
                        listed.set_session(&session);
                    }
                    link.credit_limit = up_to;
                    link.flow = Some(ReceiverFlow::new(link.last));
                }
                self.update_limits(number);
                Ok((session, locked_until))
            }
            other => {
                self.remove(number);
                Err(other.err().unwrap_or_else(unexpected))
            }
        };
        Event::Accepted { id, path, result }
    }
}
