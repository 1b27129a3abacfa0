//! The end of a connection (SET-21, RCV-14): links stop their deliveries, and after their answer no
//! further delivery arrives. Deliveries that were not written are given back without counting.

use std::time::Instant;

use bytes::Buf as _;
use peeklock_core::command::LinkEnd;
use peeklock_link::Phase;

use super::conversation::{Close, Conversation};
use super::deleted::UnflushedDeletions;
use super::node::Node;

impl Conversation {
    /// Returns whether a connection that is being stopped may end: its deadline has passed, or it
    /// waits for nothing.
    pub(super) fn may_end(&self) -> bool {
        let deadline = self.engine.stop_deadline();
        let is_due = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_due
            || (self.engine.links.pending_count() == 0
                && self.locked_deliveries.is_empty()
                && !self.engine.needs_permit())
    }

    /// Returns whether the connection is finished: it is over, earlier requests are carried out,
    /// and the output is written. The settlements of a client that closes and waits for no answers
    /// still count (SET-31). The wait for room is limited by the write timeout.
    pub(super) fn is_done(&mut self) -> bool {
        let is_over = self.amqp.is_over();
        if is_over && !self.has_pending_work() {
            return self.outflow.write_closed
                || !self.amqp.output(self.clock.began.elapsed()).has_remaining();
        }
        if !is_over && !self.outflow.write_closed && !self.engine.peer_disconnected {
            self.clock.over_until = None;
            return false;
        }
        let now = Instant::now();
        let write_timeout = self.listener.config.write_timeout;
        let over_until = *self.clock.over_until.get_or_insert_with(|| now + write_timeout);
        if now < self.engine.stop_deadline().map_or(over_until, |deadline| deadline.min(over_until))
        {
            return false;
        }
        if self.has_pending_work() {
            tracing::warn!(
                "dropping commands of a client that has ended, because there is no memory for them"
            );
        }
        true
    }

    /// Returns how the end counts. It is orderly if the client has closed the connection and
    /// everything before that was carried out. Otherwise the connection was lost, and the client
    /// may settle by lock token after it has reconnected (SET-21).
    pub(super) const fn how_it_ends(&self) -> LinkEnd {
        match &self.engine.phase {
            _ if self.engine.stop_deadline().is_some() => LinkEnd::ByBroker,
            Phase::Closed(Close::Orderly) => LinkEnd::Orderly,
            _ => LinkEnd::Lost,
        }
    }

    /// Ends everything that the connection holds.
    pub(super) async fn end(mut self, end: LinkEnd) {
        // A message that waits for a permit is not stored, and its client got no acceptance.
        self.engine.cancel();
        self.roll_back_all();
        // Unwritten messages count as lost.
        self.outflow.unflushed_deletions = UnflushedDeletions::default();
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes.into_values() {
            if let Node::Receiver(receiver) = node {
                self.give_back(*receiver);
            }
        }
        let lost_count = self.engine.end_deliveries().await;
        self.engine.links.finish_end(end, lost_count + self.outflow.lost.count());
        tracing::debug!(?end, "connection ended");
    }
}
