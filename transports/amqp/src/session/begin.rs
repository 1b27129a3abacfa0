//! Begin and end of sessions, and their lookup by channel. A channel has at most one session. The
//! connection machine calls it.

use std::collections::BTreeMap;

use super::{Handles, Incoming, LostSessionDeliveries, Outgoing, Session};
use crate::connection::Fault;
use crate::connection::{Connection, Event, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::{Begin, End};

/// Sessions above the limit are begun and ended immediately, and stay until the client ends them
/// too. This is the maximum number of those whose end the client has not answered.
const REFUSED_COUNT_MAX: usize = 64;

impl Connection {
    pub(crate) fn take_begin(&mut self, channel: u16, begin: &Begin) -> Result<(), Fault> {
        let channel_max = self.channel_max();
        if channel > channel_max {
            return Err(Fault::Connection(AmqpError::framing(format!(
                "channel {channel} is above channel-max {channel_max}"
            ))));
        }
        if self.sessions.contains_key(&channel) {
            return Err(Fault::Connection(AmqpError::illegal_state(format!(
                "channel {channel} already has a session"
            ))));
        }
        if begin.remote_channel.is_some() || !self.peer_takes(channel) {
            return Err(Fault::Connection(AmqpError::illegal_state(format!(
                "begin on channel {channel} answers no begin of this side"
            ))));
        }
        let count_max = self.config.session_count_max;
        let is_beyond = self.sessions.len() >= count_max;
        if self.sessions.len() >= count_max.saturating_add(REFUSED_COUNT_MAX) {
            return Err(Fault::Connection(AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                "too many refused sessions are not ended; end them before you begin more",
            )));
        }
        let generation = self.next_generation();
        let window = self.config.incoming_window;
        let incoming = Incoming {
            next_id: begin.next_outgoing_id,
            begun: begin.next_outgoing_id,
            up_to: begin.next_outgoing_id.wrapping_add(window),
            unanswered: 0,
        };
        let outgoing = Outgoing { next_id: 0, window: begin.incoming_window, next_number: 0 };
        let session = Session {
            generation,
            ending: false,
            links: BTreeMap::new(),
            handles: Handles::up_to(begin.handle_max.unwrap_or(u32::MAX)),
            incoming,
            outgoing,
            unsettled: BTreeMap::new(),
            lapsed: LostSessionDeliveries::default(),
        };
        self.wire.frame(
            channel,
            &Begin {
                remote_channel: Some(channel),
                next_outgoing_id: 0,
                incoming_window: window,
                outgoing_window: window,
                handle_max: Some(self.config.handle_max),
                ..Begin::default()
            },
        );
        let id = session.id(channel);
        self.sessions.insert(channel, session);
        if is_beyond {
            let text = format!(
                "connection already has {count_max} sessions, the limit; use another connection"
            );
            self.end(id, Some(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
        } else {
            self.events.push_back(Event::Begun(id));
        }
        Ok(())
    }

    pub(crate) fn take_end(&mut self, channel: u16, error: Option<AmqpError>) -> Result<(), Fault> {
        if let Some(session) = self.session_of(channel)? {
            let id = session.id(channel);
            self.answer_detaches(id);
        }
        let Some(session) = self.sessions.get_mut(&channel) else {
            return Err(no_session(channel));
        };
        let (id, ending, unsettled) =
            (session.id(channel), session.ending, session.forget_unsettled());
        self.remove_links(channel);
        self.sessions.remove(&channel);
        if !ending {
            self.wire.frame(channel, &End { error: None });
            self.events.push_back(Event::Ended { session: id, unsettled, error });
        }
        Ok(())
    }

    /// Ends a session because of an error of the client.
    pub(crate) fn end_because(&mut self, channel: u16, error: AmqpError) {
        let session = self.sessions.get_mut(&channel).filter(|session| !session.ending);
        let Some(session) = session else { return };
        let (id, unsettled) = (session.id(channel), session.forget_unsettled());
        self.end(id, Some(error.clone()));
        self.events.push_back(Event::Ended { session: id, unsettled, error: Some(error) });
    }

    /// Ends a session with all its links. Later frames for it are ignored.
    pub fn end(&mut self, session: SessionId, error: Option<AmqpError>) {
        if self.session_mut(session).is_none() {
            return;
        }
        self.remove_links(session.channel);
        if let Some(session) = self.sessions.get_mut(&session.channel) {
            session.ending = true;
            session.unsettled.clear();
        }
        let error = error.map(AmqpError::with_transience);
        self.wire.frame(session.channel, &End { error });
    }

    fn remove_links(&mut self, channel: u16) {
        if let Some(session) = self.sessions.get_mut(&channel) {
            self.link_count = self.link_count.saturating_sub(session.links.len());
            let bytes: usize = session.links.values().map(|link| link.kept_bytes).sum();
            self.links_bytes = self.links_bytes.saturating_sub(bytes);
            session.links.clear();
            session.handles.clear();
        }
        self.unsent_links.retain(|link| link.session.channel != channel);
        self.current_disposition =
            self.current_disposition.take().filter(|settling| settling.channel() != channel);
    }

    /// Returns a session that has not ended.
    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&id.channel)?;
        (session.generation == id.generation && !session.ending).then_some(session)
    }

    /// Returns the session of a frame; `None` if its frames are ignored.
    pub(crate) fn session_of(&mut self, channel: u16) -> Result<Option<&mut Session>, Fault> {
        match self.sessions.get_mut(&channel) {
            Some(session) => Ok((!session.ending).then_some(session)),
            None => Err(no_session(channel)),
        }
    }
}

fn no_session(channel: u16) -> Fault {
    Fault::Connection(AmqpError::illegal_state(format!("channel {channel} has no session")))
}

pub(super) fn unattached(handle: u32) -> Fault {
    Fault::Session(AmqpError::new(
        condition::UNATTACHED_HANDLE,
        format!("handle {handle} has no link"),
    ))
}
