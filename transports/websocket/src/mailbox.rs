//! Where a connection's answers and deliveries arrive, from any thread; one wake-up for a group.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_core::request::{Outlet, Released};

use crate::frame::Notice;

/// Something for the connection.
#[derive(Debug)]
pub(crate) enum Mail {
    /// From an entity.
    Released(Released),
    /// The answer of an operation that the transport itself carried out.
    Own { slot: usize, notice: Box<Notice> },
}

/// The mailbox. What may be in it is bounded by permits, credit and the byte limits of links.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mail: Vec<Mail>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Puts an answer of the transport itself in.
    pub(crate) fn put(&self, mail: Mail) {
        let mut state = self.lock();
        state.mail.push(mail);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes everything, in order.
    pub(crate) fn take(&self, into: &mut Vec<Mail>) {
        let mut state = self.lock();
        if into.is_empty() {
            std::mem::swap(&mut state.mail, into);
        } else {
            into.append(&mut state.mail);
        }
    }

    /// Ready when there is something.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.mail.is_empty() {
            return Poll::Ready(());
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for Mailbox {
    fn release(&self, group: Vec<Released>) {
        let mut state = self.lock();
        state.mail.extend(group.into_iter().map(Mail::Released));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
