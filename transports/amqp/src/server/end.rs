//! How connections end (SET-21, RCV-14): links are told to deliver nothing more, and when that is answered,
//! everything that came before is here. What was not written is given back without count.

use std::time::Instant;

use bytes::Buf as _;
use peeklock_core::command::LinkEnd;
use peeklock_link::Phase;

use super::conversation::{Close, Conversation};
use super::node::Node;
use super::removed::Leaving;

impl Conversation {
    /// Whether a connection that is being stopped has nothing left to wait for.
    pub(super) fn may_end(&self) -> bool {
        let deadline = self.engine.stop_deadline();
        let is_due = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_due
            || (self.engine.links.pending_count() == 0
                && self.sent.is_empty()
                && !self.engine.needs_permit())
    }

    /// Whether nothing is left to be done: the connection is over, what was read before is carried out, and what is to
    /// be written is written. A client that closes and waits for nothing has settled what it has settled (SET-31); but
    /// nothing of it waits for room without end.
    pub(super) fn is_done(&mut self) -> bool {
        let is_over = self.amqp.is_over();
        if is_over && !self.has_ahead() {
            return self.outflow.write_closed
                || !self.amqp.output(self.clock.began.elapsed()).has_remaining();
        }
        if !is_over && !self.outflow.write_closed && !self.engine.peer_disconnected {
            self.clock.over_until = None;
            return false;
        }
        let now = Instant::now();
        let patience = self.site.config.write_timeout;
        let over_until = *self.clock.over_until.get_or_insert_with(|| now + patience);
        if now < self.engine.stop_deadline().map_or(over_until, |deadline| deadline.min(over_until))
        {
            return false;
        }
        if self.has_ahead() {
            tracing::warn!(
                "dropping commands of a client that has ended, because there is no memory for them"
            );
        }
        true
    }

    /// How the end of the connection counts: in order, if its client has closed it and all before that was carried out.
    /// Else it was lost, and its client may settle by its tokens when it is back (SET-21).
    pub(super) const fn how_it_ends(&self) -> LinkEnd {
        match &self.engine.phase {
            _ if self.engine.stop_deadline().is_some() => LinkEnd::ByBroker,
            Phase::Closed(Close::Orderly) => LinkEnd::Orderly,
            _ => LinkEnd::Lost,
        }
    }

    /// Ends everything the connection holds.
    pub(super) async fn end(mut self, end: LinkEnd) {
        // A message that needs a permit is not stored: nobody was promised anything.
        self.engine.cancel();
        self.roll_back_all();
        // What is not written is written to nobody.
        self.outflow.leaving = Leaving::default();
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes.into_values() {
            if let Node::Outlet(outlet) = node {
                self.give_back(*outlet);
            }
        }
        let lost_count = self.engine.quiet().await;
        self.engine.links.finish_end(end, lost_count + self.outflow.lost.count());
        tracing::debug!(?end, "connection ended");
    }
}
