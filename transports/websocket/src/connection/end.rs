//! How conversations end (SET-21, RCV-14): links are told to deliver nothing more, and when that is
//! answered, everything that came before is here. What was not written is given back without count.

use std::collections::VecDeque;
use std::time::Instant;

use peeklock_core::command::LinkEnd;

use super::Conversation;

impl Conversation {
    /// Whether a conversation that is to end has nothing left to wait for.
    pub(super) fn may_end(&self) -> bool {
        let Some(deadline) = self.engine.stop_deadline() else { return false };
        if Instant::now() >= deadline {
            return true;
        }
        self.engine.links.pending_count() == 0
            && !self.unflushed
            && self.ready.is_empty()
            && self.engine.arrivals.is_empty()
            && self.engine.links.unsettled.is_empty()
    }

    /// Ends everything the conversation holds.
    pub(super) async fn end(mut self: Box<Self>, end: LinkEnd) {
        self.calls.close();
        // Commands that wait for room are not carried out: nobody was promised anything.
        self.engine.cancel();
        let mut lost_count = self.lost_count();
        // The room is others' at once.
        self.ready = Vec::new();
        self.frames.unconfirmed = VecDeque::new();
        lost_count += self.engine.quiet().await;
        self.engine.links.finish_end(end, lost_count);
        tracing::debug!(?end, "connection ended");
    }

    /// How many messages are stored nowhere any more and not with the client (RCV-02): of what was not written, and of
    /// frames of which the system has not taken all, or whose client was lost and has not confirmed them.
    fn lost_count(&self) -> u64 {
        let before = self.frames.sent - self.frames.unconfirmed.len() as u64;
        let flushed = self.frames.flushed.saturating_sub(before);
        let flushed = usize::try_from(flushed).unwrap_or(usize::MAX);
        let lost =
            self.frames.unconfirmed.iter().skip(flushed).map(|written| written.removed_count);
        self.unwritten_count + lost.sum::<u64>()
    }
}
