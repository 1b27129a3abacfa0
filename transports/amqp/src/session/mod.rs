//! A session: windows in both directions, handles, and unsettled deliveries (AMQP 2.5). The
//! connection calls it with the performatives of its channel.
//!
//! ```text
//!   begin ─► active ─► end ─► gone
//!              └─ fault: end is sent ─► ending: frames are ignored ─► end ─► gone
//! ```

mod deliveries;
mod lost_session;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::deliveries::CurrentDisposition;
pub(crate) use self::lost_session::LostSessionDeliveries;
use crate::connection::{Connection, Event, Fault, LinkId, SessionId};
use crate::error::{AmqpError, condition};
use crate::link::Link;
use crate::performative::{Begin, DeliveryTag, End};

/// A session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) generation: u64,
    /// Whether `end` was sent and the answer is missing. Frames are ignored then.
    pub(crate) ending: bool,
    /// Links by generation, oldest first.
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) handles: Handles,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// Deliveries to the client that it has not settled, by number.
    pub(crate) unsettled: BTreeMap<i64, UnsettledDelivery>,
    /// Deliveries that the client can no longer settle because their session lock is lost.
    pub(crate) lapsed: LostSessionDeliveries,
}

/// A delivery to the client that it has not settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsettledDelivery {
    /// Generation of its link.
    pub(crate) link: u64,
    pub(crate) tag: DeliveryTag,
}

/// Window for transfers from the client. Some clients count deliveries where others count frames
/// (AMQP-31), so both are counted here. The announced window counts frames. A client violates it
/// only if it exceeds it in deliveries, whose number is never higher.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Id of the next frame.
    pub(crate) next_id: u32,
    /// Next id if only the first frame of each delivery is counted, as some clients do. It starts
    /// with the same id as `next_id`.
    pub(crate) begun: u32,
    /// First id outside the window that was announced last.
    pub(crate) up_to: u32,
    /// Number of deliveries that wait for a disposition.
    pub(crate) unanswered: u32,
}

/// Window for transfers to the client.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Id of the next frame.
    pub(crate) next_id: u32,
    /// Number of further frames that the client takes.
    pub(crate) window: u32,
    /// Number of the next delivery; its lower 32 bits are the delivery id.
    pub(crate) next_number: i64,
}

/// Returns the id of a delivery with this number.
pub(crate) fn delivery_id(number: i64) -> u32 {
    u32::try_from(number & i64::from(u32::MAX)).unwrap_or(0)
}

impl Session {
    /// Returns the identifier of the session.
    pub(crate) const fn id(&self, channel: u16) -> SessionId {
        SessionId { channel, generation: self.generation }
    }

    /// Forgets all unsettled deliveries to the client and returns their tags.
    fn forget_unsettled(&mut self) -> Vec<DeliveryTag> {
        std::mem::take(&mut self.unsettled).into_values().map(|unsettled| unsettled.tag).collect()
    }
}

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

/// Handles of a session.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Generation of the link of each handle that the client assigned.
    of_client: BTreeMap<u32, u64>,
    /// Handles that this side assigned.
    ours: BTreeSet<u32>,
    /// Highest handle that the client takes.
    ours_max: u32,
}

impl Handles {
    /// Makes an empty table for a client whose highest handle is `ours_max`.
    pub(super) fn up_to(ours_max: u32) -> Self {
        Self { ours_max, ..Self::default() }
    }

    /// Returns whether the client has assigned a handle to a link.
    pub(crate) fn is_used_by_client(&self, handle: u32) -> bool {
        self.of_client.contains_key(&handle)
    }

    /// Assigns a handle of the client to a link.
    pub(crate) fn map(&mut self, handle: u32, generation: u64) {
        self.of_client.insert(handle, generation);
    }

    /// Frees a handle of the client after its `detach`.
    pub(crate) fn unmap(&mut self, handle: u32) {
        self.of_client.remove(&handle);
    }

    /// Assigns a handle of this side to the link with the client's handle `of_client`: the same
    /// number if it is free, which is easier to follow in a trace, else the lowest free one.
    /// Returns `None` if the client's handle-max allows no more.
    pub(crate) fn take_ours(&mut self, of_client: u32) -> Option<u32> {
        let is_free = |handle: &u32| !self.ours.contains(handle);
        let same = Some(of_client).filter(|handle| *handle <= self.ours_max && is_free(handle));
        let handle = same.or_else(|| (0..=self.ours_max).find(is_free))?;
        self.ours.insert(handle);
        Some(handle)
    }

    /// Frees a handle of this side after its `detach` was sent.
    pub(crate) fn free_ours(&mut self, handle: u32) {
        self.ours.remove(&handle);
    }

    /// Frees all handles.
    pub(super) fn clear(&mut self) {
        self.of_client.clear();
        self.ours.clear();
    }
}

impl Session {
    /// Returns the link of a handle of the client, with its identifier.
    pub(crate) fn link_at(
        &mut self,
        channel: u16,
        handle: u32,
    ) -> Result<(LinkId, &mut Link), Fault> {
        let session = self.id(channel);
        let generation = self.handles.of_client.get(&handle).copied();
        let id = generation.map(|generation| LinkId { session, generation });
        let found = id.and_then(|id| Some((id, self.links.get_mut(&id.generation)?)));
        found.ok_or_else(|| unattached(handle))
    }
}
