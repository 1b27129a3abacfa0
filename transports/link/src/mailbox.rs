//! The mailbox of a connection: answers and deliveries arrive there from any thread, with one wake-up for a group.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::request::{Outlet, Released};
use peeklock_core::telemetry;

use crate::arrivals::Fetched;

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
