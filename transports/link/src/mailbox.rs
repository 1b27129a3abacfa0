//! Where a connection's answers and deliveries arrive, from any thread; one wake-up for a group.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_core::request::{Outlet, Released};

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
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { mail: Vec::new(), waker: None }) }
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

    fn put_all(&self, mail: impl Iterator<Item = Mail<T>>) {
        let mut state = self.lock();
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
