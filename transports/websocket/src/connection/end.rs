//! How links and conversations end (SET-21, RCV-14).
//!
//! A link ends in two steps: its entity is told to deliver nothing more, and when that is answered,
//! everything that came before is here. What was not written is given back without count; then the
//! link is detached.

use std::future::poll_fn;
use std::time::Duration;

use peeklock_core::command::{Command, Drain, LinkEnd, Outcome};
use peeklock_core::request::Released;
use tokio::time::Instant;

use super::Conversation;
use super::pending::{Expect, correlation};
use crate::mailbox::Mail;

/// How long entities may take to say that they deliver nothing more.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

impl Conversation {
    /// Begins to end a link whose client detaches it.
    pub(super) fn quiet(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let receiver = link.receiver;
        let (id, _) = link.closing.unwrap_or((0, LinkEnd::Orderly));
        if link.flow.take().is_none() {
            self.is_quiet(number);
            return;
        }
        // The id of the detach stays in use.
        let slot = self.await_own(id, number, Expect::Quiet { link: number });
        let stop = Command::Grant { receiver, delivery_limit: 0, byte_limit: 0, drain: Drain::No };
        self.submit(number, stop, correlation(slot, 0));
    }

    /// Nothing more will come for a link that is being closed: it is detached.
    pub(super) fn is_quiet(&mut self, number: u32) {
        self.give_back(number);
        let Some(link) = self.links.get(&number) else { return };
        let receiver = link.receiver;
        let (id, end) = link.closing.unwrap_or((0, LinkEnd::Orderly));
        let slot = self.await_own(id, number, Expect::Detached { link: number });
        let detach = Command::Detach { receiver, end };
        self.submit(number, detach, correlation(slot, 0));
    }

    /// The listener is being stopped: receives end, deliveries stop, and what is in hand can be
    /// settled until the deadline.
    pub(super) fn begin_stop(&mut self, grace: Duration) {
        self.deadline = Some(Box::pin(tokio::time::sleep(grace)));
        self.say_closing(u32::try_from(grace.as_secs()).unwrap_or(u32::MAX));
        self.stop_flows();
    }

    pub(super) fn stop_flows(&mut self) {
        self.paused = true;
        let waiting: Vec<u32> = self.waits.keys().copied().collect();
        for request in waiting {
            self.withdraw(request);
        }
        self.limit_all();
    }

    /// Whether a conversation that is to end has nothing left to wait for.
    pub(super) fn may_end(&self) -> bool {
        let Some(deadline) = &self.deadline else { return false };
        if Instant::now() >= deadline.deadline() {
            return true;
        }
        self.pending.len() == 0
            && !self.unflushed
            && self.ready.is_empty()
            && self.mail.is_empty()
            && self.links.values().all(|link| link.unsettled_count() == 0)
    }

    /// Ends everything the conversation holds.
    pub(super) async fn end(mut self, end: LinkEnd) {
        self.calls.close();
        // Commands that wait for room are not carried out: nobody was promised anything.
        self.acquiring = None;
        self.held = None;
        let numbers: Vec<u32> = self.links.keys().copied().collect();
        for number in &numbers {
            let Some(link) = self.links.get_mut(number) else { continue };
            let receiver = link.receiver;
            if link.flow.take().is_none() {
                continue;
            }
            let slot = self.await_own(0, *number, Expect::Quiet { link: *number });
            let stop =
                Command::Grant { receiver, delivery_limit: 0, byte_limit: 0, drain: Drain::No };
            self.submit(*number, stop, correlation(slot, 0));
        }
        let waiting: Vec<u32> = self.waits.keys().copied().collect();
        for request in waiting {
            self.withdraw(request);
        }
        self.hand_over();
        // Whatever may still bring messages.
        let brings =
            |expect: &Expect| matches!(expect, Expect::Quiet { .. } | Expect::Messages { .. });
        let mut left = self.pending.count(brings);
        let quiet = async {
            loop {
                let mut arrived = Vec::new();
                self.mailbox.take(&mut arrived);
                self.mail.extend(arrived);
                while let Some(mail) = self.mail.pop_front() {
                    left = left.saturating_sub(self.abandon(mail));
                }
                if left == 0 {
                    return;
                }
                poll_fn(|context| self.mailbox.poll(context)).await;
            }
        };
        if tokio::time::timeout(QUIET_TIMEOUT, quiet).await.is_err() {
            tracing::warn!("an entity did not answer that it delivers nothing more");
        }
        for number in numbers {
            self.give_back(number);
            let Some(link) = self.links.get(&number) else { continue };
            let receiver = link.receiver;
            let slot = self.await_own(0, number, Expect::Unheard);
            self.submit(number, Command::Detach { receiver, end }, correlation(slot, 0));
        }
        self.hand_over();
        tracing::debug!(?end, "connection ended");
    }

    /// Takes mail that nobody will be told: messages go back. Returns how many answers it was that
    /// might have brought messages.
    fn abandon(&mut self, mail: Mail) -> usize {
        match mail {
            Mail::Released(Released::Delivery { receiver, message }) => {
                let number = self.receivers.get(&receiver);
                if let Some(link) = number.and_then(|number| self.links.get_mut(number)) {
                    link.undelivered.extend(message.facts.lock.map(|lock| lock.token));
                }
                0
            }
            Mail::Released(Released::Answer { correlation, result }) => {
                let (slot, _) = super::pending::place(correlation);
                let expect = self.pending.get_mut(slot).map(|pending| &pending.expect);
                match (expect, result) {
                    (Some(Expect::Messages { link }), Ok(Outcome::Received(messages))) => {
                        if let Some(link) = self.links.get_mut(link) {
                            let locks = messages.iter().filter_map(|message| message.facts.lock);
                            link.undelivered.extend(locks.map(|lock| lock.token));
                        }
                        1
                    }
                    (Some(Expect::Quiet { .. } | Expect::Messages { .. }), _) => 1,
                    _ => 0,
                }
            }
            Mail::Released(Released::Detached { .. }) | Mail::Own { .. } => 0,
        }
    }
}
