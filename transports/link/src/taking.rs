//! How a client takes what it is told. Who does not, and holds room meanwhile that others wait for, yields.

use std::task::Context;
use std::time::Instant;

use peeklock_core::permits::{Budget, GRACE, Pace};

use crate::Account;

/// The pace of a client that holds up what is written to it.
#[derive(Default)]
pub struct Taking(Option<Pace>);

impl Taking {
    /// Whether it has to give up all that it holds: it holds up what is to be written, of which it has taken so
    /// much in all, and others wait. None if it holds up nothing.
    pub fn must_yield(
        &mut self,
        taken_bytes: Option<u64>,
        (account, budget): (&Account, &Budget),
        now: Instant,
        context: &Context<'_>,
    ) -> bool {
        let before = self.slow_from();
        match taken_bytes {
            None => self.0 = None,
            Some(bytes) => {
                let pace = self.0.get_or_insert_with(|| Pace::begin(now, bytes, GRACE));
                pace.pass(bytes, account.held_bytes(), now);
            }
        }
        let slow_from = self.slow_from();
        if slow_from != before {
            account.judge(slow_from);
            budget.judge(slow_from);
        }
        if slow_from.is_none_or(|slow_from| now < slow_from) {
            return false;
        }
        // Both, since either may wake.
        let of_answers = account.must_yield(now, context);
        budget.must_yield(now, context) || of_answers
    }

    /// When it is slow, if it takes nothing more; then it is to be asked about.
    #[must_use]
    pub fn slow_from(&self) -> Option<Instant> {
        self.0.as_ref().map(Pace::slow_from)
    }
}
