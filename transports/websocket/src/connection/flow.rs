//! How far a receiver may be sent: credit, draining, and what the entity is told of them.

use peeklock_core::command::{Command, Drain, SessionCommand};
use peeklock_core::error::Rejection;

use super::Conversation;
use super::inbound::{Asked, Done};
use super::link::Source;
use super::pending::{Expect, correlation};
use crate::frame::{Credit, Drained, Item, Notice};

impl Conversation {
    /// Attaches a receiver at its entity and grants what its client lets it be sent.
    pub(super) fn start_flow(&mut self, number: u32, up_to: u32, correlation: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let attach = match link.source {
            Source::Session(_) => link.in_session(SessionCommand::Attach),
            Source::Queue | Source::Awaited => {
                Command::Attach { receiver: link.receiver, mode: link.mode }
            }
        };
        link.up_to = up_to;
        link.start_flow();
        self.submit(number, attach, correlation);
        self.limit(number);
    }

    /// Tells the entity how far a link may be sent, if that has changed.
    pub(super) fn limit(&mut self, number: u32) {
        let bounds = self.bounds();
        let now = self.broker.now();
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.unsettled_count() >= bounds.unsettled_max {
            link.forget_ended(now);
        }
        let receiver = link.receiver;
        let Some(limits) = link.new_limits(bounds) else { return };
        let slot = self.await_own(0, number, Expect::Unheard);
        let command = Command::Grant {
            receiver,
            delivery_limit: limits.delivery_limit,
            byte_limit: limits.byte_limit,
            drain: limits.drain,
        };
        self.submit(number, command, correlation(slot, 0));
    }

    pub(super) fn limit_all(&mut self) {
        let numbers: Vec<u32> = self.receivers.values().copied().collect();
        for number in numbers {
            self.limit(number);
        }
        self.hand_over();
    }

    /// The same for links that are full of unsettled deliveries, whose locks may have ended.
    pub(super) fn limit_full(&mut self) {
        let most = self.site.config.unsettled_count_max;
        let full = self.links.iter().filter(|(_, link)| link.unsettled_count() >= most);
        let full: Vec<u32> = full.map(|(number, _)| *number).collect();
        for number in full {
            self.limit(number);
        }
    }

    pub(super) fn credit(&mut self, asked: &Asked, credit: &Credit) -> Done {
        let Credit { link: number, up_to } = *credit;
        self.receiver(number)?;
        let Some(link) = self.links.get_mut(&number) else { return Ok(()) };
        if link.flow.is_some() {
            link.up_to = up_to;
            self.limit(number);
        } else {
            let slot = self.await_own(0, number, Expect::Attached { link: number });
            self.start_flow(number, up_to, correlation(slot, 0));
        }
        self.done(asked);
        Ok(())
    }

    pub(super) fn drain(&mut self, asked: Asked, number: u32) -> Done {
        self.receiver(number)?;
        let Some(link) = self.links.get_mut(&number) else { return Ok(()) };
        if link.flow.as_ref().is_some_and(|flow| flow.draining) {
            let detail = format!("link {number} is being drained already");
            return Err(Rejection::invalid_operation(detail).into());
        }
        let receiver = link.receiver;
        let Some(limits) = link.drain() else {
            link.up_to = link.last;
            let notice = Notice::Drained(Drained { unused: 0 });
            self.ready.push(Item { id: asked.id, notice });
            return Ok(());
        };
        let slot = self.await_answer(asked, number, Expect::Drained { link: number });
        let command = Command::Grant {
            receiver,
            delivery_limit: limits.delivery_limit,
            byte_limit: limits.byte_limit,
            drain: Drain::Yes,
        };
        self.submit(number, command, correlation(slot, 0));
        Ok(())
    }
}
