//! Where a connection's answers and deliveries arrive, from any thread; one wake-up for a group. And what a connection does
//! when it is woken: takes in what came, tells its client as much as there is room for, and has contents fetched that the
//! store has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::request::{Outlet, Released};
use peeklock_core::telemetry;

use crate::account::Account;
use crate::arrivals::{Arrivals, Fetched, Next};

/// Something for the connection.
#[derive(Debug)]
pub enum Mail<T> {
    /// From an entity.
    Released(Released),
    /// A content that was asked for is here.
    Fetched(Fetched),
    /// From the transport itself.
    Own(T),
}

/// The mailbox. What may be in it is bounded by permits, credit, the byte limits of links and the account
/// that pays for what is fetched.
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    mail: Vec<Mail<T>>,
    waker: Option<Waker>,
    /// Nobody takes anything any more.
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { mail: Vec::new(), waker: None, is_closed: false }) }
    }
}

impl<T> Mailbox<T> {
    /// Puts something in.
    pub fn put(&self, mail: Mail<T>) {
        self.put_all(std::iter::once(mail));
    }

    /// Takes everything, in order.
    pub fn take(&self, into: &mut Vec<Mail<T>>) {
        let mut state = self.lock();
        if into.is_empty() {
            std::mem::swap(&mut state.mail, into);
        } else {
            into.append(&mut state.mail);
        }
    }

    /// Ready when there is something.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.mail.is_empty() {
            return Poll::Ready(());
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Nobody takes anything any more: of what is in it and what comes yet nobody is told. An entity may be held up for
    /// longer than the end of a connection waits for it, and what it has removed by then is lost when it comes. What it
    /// has locked is not: it is free when its link is detached, or its lock ends.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.mail);
        drop(state);
        count_lost(removed_count(left));
    }

    fn put_all(&self, mail: impl Iterator<Item = Mail<T>>) {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return count_lost(removed_count(mail));
        }
        state.mail.extend(mail);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Outlet for Mailbox<T> {
    fn release(&self, group: Vec<Released>) {
        self.put_all(group.into_iter().map(Mail::Released));
    }
}

/// How many messages that nobody is told of were taken out of their entity for good.
pub(crate) fn removed_count<T>(mail: impl IntoIterator<Item = Mail<T>>) -> u64 {
    let removed_of = |mail: Mail<T>| {
        let Mail::Released(released) = mail else { return 0 };
        let messages: &[ReceivedMessage] = match &released {
            Released::Delivery { message, .. } => std::slice::from_ref(&**message),
            Released::Answer { result: Ok(Outcome::Received(messages)), .. } => messages.as_slice(),
            Released::Answer { .. } | Released::Detached { .. } | Released::Closed { .. } => &[],
        };
        messages.iter().filter(|message| message.facts.lock.is_none()).count() as u64
    };
    mail.into_iter().map(removed_of).sum()
}

/// Counts so many messages that were removed and are with nobody: what the mode allows, and nobody else would notice
/// (RCV-02).
pub(crate) fn count_lost(lost_count: u64) {
    if lost_count > 0 {
        telemetry::count_undelivered(lost_count);
        tracing::warn!(lost_count, "messages were received and deleted but never written");
    }
}

/// Where a connection collects from.
pub struct Sources<'a, T> {
    /// Where everything arrives.
    pub mailbox: &'a Arc<Mailbox<T>>,
    /// What waits for contents, or for room.
    pub arrivals: &'a mut Arrivals,
    /// Who pays.
    pub account: &'a mut Account,
    /// What the next thing needs that there is no room for.
    pub wanted_bytes: &'a mut Option<u64>,
}

/// A connection that collects. The methods that are given are called in their order, with whatever the transport does
/// in between.
pub trait Collect {
    /// What the transport itself puts into its mailbox.
    type Own: Send + 'static;

    /// What it collects from.
    fn sources(&mut self) -> Sources<'_, Self::Own>;

    /// The link whose order something stands in.
    fn place_of(&mut self, released: &Released) -> u32;

    /// Takes what the transport has put in.
    fn take_own(&mut self, own: Self::Own);

    /// Whether the client may be told more now.
    fn may_tell(&self) -> bool;

    /// Takes in what came.
    fn take_in(&mut self) {
        let mut arrived = Vec::new();
        self.sources().mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    let place = self.place_of(&released);
                    self.sources().arrivals.push(place, released);
                }
                Mail::Fetched(fetched) => self.sources().arrivals.fetched(fetched),
                Mail::Own(own) => self.take_own(own),
            }
        }
    }

    /// Begins to tell what there is: what was wanted before is found out anew.
    fn begin_telling(&mut self) {
        *self.sources().wanted_bytes = None;
    }

    /// What the client is told next, and how much of the account that holds: none if it may not be told more, or there
    /// is no room. Others of the thread may have their turn before what comes behind it.
    fn next_to_tell(&mut self) -> Option<(Released, u64)> {
        if !self.may_tell() {
            return None;
        }
        let Sources { arrivals, account, wanted_bytes, .. } = self.sources();
        match arrivals.next(account) {
            Next::Ready(released, held_bytes) => Some((released, held_bytes)),
            Next::NoRoom(wanted) => {
                *wanted_bytes = Some(wanted);
                None
            }
            Next::Nothing => None,
        }
    }

    /// When all was told that may be: what has to be read from the store is fetched beside the connection; only its
    /// link waits for it.
    fn end_telling(&mut self) {
        let Sources { mailbox, arrivals, account, wanted_bytes } = self.sources();
        if wanted_bytes.is_none() {
            account.want_nothing();
        }
        for fetch in arrivals.fetches() {
            let mailbox = Arc::clone(mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
    }
}
