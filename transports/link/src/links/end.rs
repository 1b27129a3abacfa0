//! The end of links: the detach of a link, and the end of a whole connection. `links.rs` calls it.
//! Locks of a link end with it, as the entity decides.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use peeklock_core::command::{Command, Drain, LinkEnd, Outcome, ReceivedMessage};
use peeklock_core::ids::LockToken;
use peeklock_core::inspect::LinkRole;
use peeklock_core::request::Released;

use super::flow::limits_command;
use super::{Issuer, LinkAnswer, Links};
use crate::arrivals::{Mail, Mailbox, count_lost};
use crate::credit::CreditLimits;
use crate::link::PendingClose;
use crate::pending::{correlation, slot_and_index};

/// Maximum time for entities to confirm that they deliver nothing more.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

impl<G: Issuer, T> Links<G, T> {
    /// Starts to close a link that its client detaches.
    pub fn detach(&mut self, number: u32, closing: PendingClose) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.closing = Some(closing);
        if link.flow.is_none() {
            self.detach_stopped(number);
            return;
        }
        self.stop(number);
    }

    /// Stops deliveries; from now on arriving ones are released immediately.
    pub const fn return_deliveries(&mut self) {
        self.paused = true;
        self.returning = true;
    }

    /// Stops all flows and waiting requests, which could still bring messages; see
    /// [`Self::await_stopped`].
    pub fn begin_end(&mut self) {
        let flowing = self.links.iter().filter(|(_, link)| link.flow.is_some());
        let flowing: Vec<u32> = flowing.map(|(number, _)| *number).collect();
        for number in flowing {
            self.stop(number);
        }
        self.cancel_all_waits();
        self.submit_groups();
    }

    /// Number of unanswered requests that may still bring messages.
    #[must_use]
    pub fn unstopped_count(&self) -> usize {
        let brings = |expect: &LinkAnswer<T>| {
            matches!(
                expect,
                LinkAnswer::Quiet
                    | LinkAnswer::Messages(_)
                    | LinkAnswer::OfTransport { deletes: true, .. }
            )
        };
        self.pending.count(brings)
    }

    /// Handles an answer or delivery that no longer reaches the client. Locked messages are noted,
    /// and later released without counting a delivery. Returns the number of lost messages, which
    /// their entity has already deleted.
    pub fn note_undelivered(&mut self, released: Released) -> u64 {
        match released {
            Released::Delivery { receiver, message } => self.note_undelivered_messages(
                self.link_of_receiver(receiver),
                std::slice::from_ref(&message),
            ),
            Released::Answer { correlation, result } => {
                let (slot, _) = slot_and_index(correlation);
                if let Some(LinkAnswer::OfTransport { deletes: false, .. }) =
                    self.pending.get(slot).map(|it| &it.expect)
                {
                    // Further answers may follow, but their messages are still stored.
                    return 0;
                }
                let Some(pending) = self.pending.remove(slot) else { return 0 };
                match (pending.expect, result) {
                    (LinkAnswer::Messages(reservation), Ok(Outcome::Received(messages))) => {
                        self.release_reservation(reservation);
                        self.note_undelivered_messages(Some(pending.link), &messages)
                    }
                    (LinkAnswer::OfTransport { .. }, Ok(Outcome::Received(messages))) => {
                        self.note_undelivered_messages(None, &messages)
                    }
                    _ => 0,
                }
            }
            Released::Detached { .. } | Released::Closed { .. } => 0,
        }
    }

    /// Notes all arriving answers and deliveries as undelivered until no request can
    /// [bring](Self::unstopped_count) messages any more, for at most `QUIET_TIMEOUT`, then closes
    /// the mailbox. Returns the number of lost messages. Messages of an entity that takes longer
    /// are counted by the closed mailbox when they arrive.
    pub async fn await_stopped<M>(&mut self, mailbox: &Mailbox<M>) -> u64 {
        let mut lost_count = 0;
        let quiet = poll_fn(|context| self.poll_quiet(mailbox, &mut lost_count, context));
        if tokio::time::timeout(QUIET_TIMEOUT, quiet).await.is_err() {
            tracing::warn!("an entity did not confirm that it stopped delivering");
        }
        mailbox.close();
        lost_count
    }

    fn poll_quiet<M>(
        &mut self,
        mailbox: &Mailbox<M>,
        lost_count: &mut u64,
        context: &Context<'_>,
    ) -> Poll<()> {
        loop {
            let mut arrived = Vec::new();
            mailbox.take(&mut arrived);
            for mail in arrived {
                if let Mail::Released(released) = mail {
                    *lost_count += self.note_undelivered(released);
                }
            }
            if self.unstopped_count() == 0 {
                return Poll::Ready(());
            }
            ready!(mailbox.poll(context));
        }
    }

    /// Releases all undelivered messages, detaches all links and counts the lost messages:
    /// `lost_count` and the messages that [`Self::handle_released`] dropped.
    pub fn finish_end(&mut self, end: LinkEnd, lost_count: u64) {
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in numbers {
            self.release_messages(number, None);
            let Some(link) = self.links.get(&number) else { continue };
            let receiver = link.receiver;
            let slot = self.expect(0, number, LinkAnswer::Ignored, None);
            self.submit(number, Command::Detach { receiver, end }, correlation(slot, 0));
        }
        self.submit_groups();
        count_lost(lost_count + self.lost_count);
    }

    /// Asks the entity to deliver nothing more to a link.
    pub(super) fn stop(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let receiver = link.receiver;
        link.flow = None;
        // The id of the detach request stays in use.
        let id = link.closing.map_or(0, |closing| closing.id);
        let slot = self.expect(id, number, LinkAnswer::Quiet, None);
        let nothing = CreditLimits { delivery_limit: 0, byte_limit: 0, drain: Drain::No };
        self.submit(number, limits_command(receiver, nothing), correlation(slot, 0));
    }

    /// Detaches a link after its last delivery has arrived.
    pub(super) fn detach_stopped(&mut self, number: u32) {
        self.release_messages(number, None);
        let Some(link) = self.links.get(&number) else { return };
        let receiver = link.receiver;
        let closing = link.closing.unwrap_or(PendingClose { id: 0, end: LinkEnd::Orderly });
        let slot = self.expect(closing.id, number, LinkAnswer::Detached, None);
        let detach = Command::Detach { receiver, end: closing.end };
        self.submit(number, detach, correlation(slot, 0));
    }

    pub(super) fn remove(&mut self, number: u32) {
        // Commands that were collected for the link were issued before it ended.
        self.submit_groups();
        if let Some(link) = self.links.remove(&number) {
            self.receivers.remove(&link.receiver);
            self.receiver_count -= u64::from(link.role == LinkRole::Receiver);
            self.unsettled.remove_link(number);
        }
    }

    /// Notes the locks of messages for release. Returns the number of messages without a lock,
    /// which are lost.
    fn note_undelivered_messages(&mut self, link: Option<u32>, messages: &[impl AsMessage]) -> u64 {
        let locks = messages.iter().filter_map(|it| it.as_message().facts.lock);
        let tokens: Vec<LockToken> = locks.map(|lock| lock.token).collect();
        let lost = messages.len() - tokens.len();
        if let Some(link) = link.and_then(|link| self.links.get_mut(&link)) {
            link.undelivered.extend(tokens);
        }
        lost as u64
    }
}

/// Gives access to a message, boxed or not.
trait AsMessage {
    fn as_message(&self) -> &ReceivedMessage;
}

impl AsMessage for ReceivedMessage {
    fn as_message(&self) -> &ReceivedMessage {
        self
    }
}

impl AsMessage for Box<ReceivedMessage> {
    fn as_message(&self) -> &ReceivedMessage {
        self
    }
}
