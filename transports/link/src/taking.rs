//! Pace of a client. The engine asks it at each turn whether the client must yield, because it is
//! slow and holds room that others wait for.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use peeklock_core::permits::{Budget, GRACE, Pace};
use tokio::time::Sleep;

use crate::Account;

/// The pace at which something passes, such as bytes to the client.
#[derive(Default)]
pub struct Taking {
    pace: Option<Pace>,
    /// Instant that was last reported to the other users of the room, from which the client counts
    /// as slow.
    judged: Option<Instant>,
    /// Made when it is first needed: most clients are never slow.
    look: Option<Pin<Box<Sleep>>>,
}

impl Taking {
    /// Ready if the client must give up all that it holds. `passed_bytes` is the total that has
    /// passed, or none if nothing waits for the client; `held_bytes` are waiting for it.
    pub fn poll(
        &mut self,
        passed_bytes: Option<u64>,
        held_bytes: u64,
        held: (&Account, &Budget),
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(passed_bytes) = passed_bytes else {
            self.pace = None;
            self.judge(None, held);
            return Poll::Pending;
        };
        loop {
            let now = Instant::now();
            if self.must_yield(passed_bytes, held_bytes, held, now, context) {
                return Poll::Ready(());
            }
            let slow_from = self.pace.as_ref().map(Pace::slow_from);
            let Some(at) = slow_from.filter(|slow_from| now < *slow_from).map(Into::into) else {
                return Poll::Pending;
            };
            let sleep = || Box::pin(tokio::time::sleep_until(at));
            let look = self.look.get_or_insert_with(sleep);
            // An earlier timer stays: a client that takes bytes postpones the instant at each turn.
            if look.is_elapsed() || at < look.deadline() {
                look.as_mut().reset(at);
            }
            ready!(look.as_mut().poll(context));
        }
    }

    pub(crate) fn must_yield(
        &mut self,
        passed_bytes: u64,
        held_bytes: u64,
        held: (&Account, &Budget),
        now: Instant,
        context: &Context<'_>,
    ) -> bool {
        let pace = self.pace.get_or_insert_with(|| Pace::begin(now, passed_bytes, GRACE));
        pace.pass(passed_bytes, held_bytes, now);
        let slow_from = Some(pace.slow_from()).filter(|slow_from| *slow_from <= now);
        self.judge(slow_from, held);
        if slow_from.is_none() {
            return false;
        }
        // Both, since either may wake.
        let (account, budget) = held;
        let of_answers = account.must_yield(now, context);
        budget.must_yield(now, context) || of_answers
    }

    fn judge(&mut self, slow_from: Option<Instant>, (account, budget): (&Account, &Budget)) {
        if self.judged != slow_from {
            self.judged = slow_from;
            account.judge(slow_from);
            budget.judge(slow_from);
        }
    }
}
