//! The place of a connection at its listener (QUO-01), while another client may need it. WebSocket
//! and AMQP keep one for each connection and update it with links and requests.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Idling, Member, Places};

/// The place of a connection.
#[derive(Default)]
pub struct ConnectionPlace {
    /// Present while the connection has nothing to do and holds only its place.
    idling: Option<Idling>,
    /// The connection in its client's network, which may have to give up places.
    pub member: Option<Member>,
    /// Until then a client that has shown a key is not idle, though it has no link; `None` once it has had one.
    first_link_until: Option<Instant>,
}

impl ConnectionPlace {
    /// A place that was taken just now; its first link may take `opening_timeout`.
    #[must_use]
    pub fn new(member: Option<Member>, opening_timeout: Duration) -> Self {
        let first_link_until = Instant::now().checked_add(opening_timeout);
        Self { idling: None, member, first_link_until }
    }

    /// Records whether the client has shown a good key: then no other gets its place.
    pub fn mark_key(&self, shows_key: bool) {
        if let Some(member) = &self.member {
            member.shows_key(shows_key);
        }
    }

    /// Records a request of the client.
    pub fn asks(&self) {
        if let Some(member) = &self.member {
            member.asks();
        }
    }

    /// Records that the client has a link.
    pub const fn has_link(&mut self) {
        self.first_link_until = None;
    }

    /// Whether a client that has shown a key may be on its way to its first link: it is not idle meanwhile, or a slow
    /// client would lose its place to others that come all the time.
    #[must_use]
    pub fn awaits_link(&self) -> bool {
        self.first_link_until.is_some_and(|until| Instant::now() < until)
    }

    /// Records whether nothing would be lost with the connection. False if that was so a moment ago, and another has its
    /// place.
    pub fn mark_idle(&mut self, is_idle: bool, places: &Places) -> bool {
        if is_idle {
            let member = self.member.as_ref();
            let occupant = || member.map(Member::occupant).unwrap_or_default();
            self.idling.get_or_insert_with(|| places.idle(&occupant()));
            return true;
        }
        self.idling.take().is_none_or(Idling::wake)
    }

    /// Whether the connection is marked as idle.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.idling.is_some()
    }

    /// Ready when the connection is evicted.
    pub fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        match (&self.member, &self.idling) {
            (Some(member), _) => member.poll_evicted(context),
            (None, Some(idling)) => idling.poll_evicted(context),
            (None, None) => Poll::Pending,
        }
    }
}
