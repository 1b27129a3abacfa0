//! Place of a connection among the places of its listener (QUO-01), while another client may need
//! it.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use peeklock_listen::{Idling, Member, Places};

/// Place of a single connection.
#[derive(Default)]
pub struct Standing {
    /// Present while the connection has no work and holds only its place.
    idling: Option<Idling>,
    /// Membership in the group of connections from the client's network, which may have to give up
    /// places.
    pub member: Option<Member>,
    /// A client that has shown a key but has no link is not idle until then; none once it has had a
    /// link.
    first_link_until: Option<Instant>,
}

impl Standing {
    /// Creates a place that was taken just now; the first link may take `opening_timeout`.
    #[must_use]
    pub fn new(member: Option<Member>, opening_timeout: Duration) -> Self {
        let first_link_until = Instant::now().checked_add(opening_timeout);
        Self { idling: None, member, first_link_until }
    }

    /// Records whether the client has shown a valid key; with a key, no other client gets its
    /// place.
    pub fn mark_key(&self, shows_key: bool) {
        if let Some(member) = &self.member {
            member.shows_key(shows_key);
        }
    }

    /// Records that the client has sent a request.
    pub fn asks(&self) {
        if let Some(member) = &self.member {
            member.asks();
        }
    }

    /// Records that the client has a link.
    pub const fn has_link(&mut self) {
        self.first_link_until = None;
    }

    /// Whether a client that has shown a key may still be opening its first link. It is not idle
    /// meanwhile; otherwise a slow client would lose its place to a stream of new clients.
    #[must_use]
    pub fn awaits_link(&self) -> bool {
        self.first_link_until.is_some_and(|until| Instant::now() < until)
    }

    /// Records whether the connection is idle, so that its place may be given to another client.
    /// False if it was idle and has lost its place.
    pub fn mark_idle(&mut self, is_idle: bool, places: &Places) -> bool {
        if is_idle {
            self.idling.get_or_insert_with(|| places.idle(self.member.as_ref()));
            return true;
        }
        self.idling.take().is_none_or(Idling::wake)
    }

    /// Whether the connection is marked as idle.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.idling.is_some()
    }

    /// Ready when another client needs the place.
    pub fn poll_needed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(idling) = &mut self.idling
            && idling.poll_needed(context).is_ready()
        {
            return Poll::Ready(());
        }
        match &mut self.member {
            Some(member) => member.poll_needed(context),
            None => Poll::Pending,
        }
    }
}
