//! The pace of a client that has to take answers and deliveries. A slow client that holds bytes for which others wait
//! must release them.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::account::Account;
use crate::budget::Budget;
use crate::pace::{GRACE, Pace, Timer};

/// The pace at which a client takes the bytes that a connection writes.
#[derive(Debug, Default)]
pub struct ClientPace {
    pace: Option<Pace>,
    /// The instant from which account and budget know that the client is slow. They need not know that it is not.
    judged: Option<Instant>,
    timer: Timer,
}

impl ClientPace {
    /// Ready if the client must release all that it holds. `passed_bytes` have passed in all, and `held_bytes` wait for
    /// the client; `None` if nothing waits.
    pub fn poll_evicted(
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
            if self.is_evicted(passed_bytes, held_bytes, held, now, context) {
                return Poll::Ready(());
            }
            let Some(pace) = self.pace.filter(|pace| !pace.is_slow(now)) else {
                return Poll::Pending;
            };
            ready!(pace.poll_slow(&mut self.timer, context));
        }
    }

    pub(crate) fn is_evicted(
        &mut self,
        passed_bytes: u64,
        held_bytes: u64,
        held: (&Account, &Budget),
        now: Instant,
        context: &Context<'_>,
    ) -> bool {
        let pace = self.pace.get_or_insert_with(|| Pace::begin(now, passed_bytes, GRACE));
        pace.pass(passed_bytes, held_bytes, now);
        let slow_from = pace.is_slow(now).then(|| pace.slow_from());
        self.judge(slow_from, held);
        if slow_from.is_none() {
            return false;
        }
        // Both, since either may wake.
        let (account, budget) = held;
        let of_answers = account.is_evicted(now, context);
        budget.is_evicted(now, context) || of_answers
    }

    fn judge(&mut self, slow_from: Option<Instant>, (account, budget): (&Account, &Budget)) {
        if self.judged != slow_from {
            self.judged = slow_from;
            account.set_slow_from(slow_from);
            budget.judge(slow_from);
        }
    }
}
