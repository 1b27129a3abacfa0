//! Whether a client holds up what it is told, or what it asks for takes its time, while others wait for the room of it.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use peeklock_core::permits::Budget;
use peeklock_link::{Account, Taking};
use tokio::time::Sleep;

/// The pace at which it takes it, and when that is to be looked at.
pub(super) struct Yielding {
    taking: Taking,
    look: Pin<Box<Sleep>>,
}

impl Yielding {
    pub(super) fn new() -> Self {
        Self { taking: Taking::default(), look: Box::pin(tokio::time::sleep(Duration::ZERO)) }
    }

    /// Ready if it has to give up all that it holds. It has taken so much in all; none if nothing waits for it.
    pub(super) fn poll(
        &mut self,
        taken_bytes: Option<u64>,
        held: (&Account, &Budget),
        context: &mut Context<'_>,
    ) -> Poll<()> {
        self.poll_of(taken_bytes, held.0.held_bytes(), held, context)
    }

    /// The same for something else that passes: so much in all, and so much is held for it.
    pub(super) fn poll_of(
        &mut self,
        passed_bytes: Option<u64>,
        held_bytes: u64,
        held: (&Account, &Budget),
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(passed_bytes) = passed_bytes else {
            self.taking.rest(held);
            return Poll::Pending;
        };
        loop {
            let now = Instant::now();
            if self.taking.must_yield_of(passed_bytes, held_bytes, held, now, context) {
                return Poll::Ready(());
            }
            let slow_from = self.taking.slow_from().filter(|slow_from| now < *slow_from);
            let Some(at) = slow_from.map(Into::into) else { return Poll::Pending };
            // A look that is due earlier stays: a client that takes what is written puts the instant off at each turn.
            if self.look.is_elapsed() || at < self.look.deadline() {
                self.look.as_mut().reset(at);
            }
            ready!(self.look.as_mut().poll(context));
        }
    }
}
