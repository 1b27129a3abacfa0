//! How a client takes what it is told. Who does not, and holds room meanwhile that others wait for, yields.

use std::task::Context;
use std::time::Instant;

use peeklock_core::permits::{Budget, GRACE, Pace};

use crate::Account;

/// The pace of a client that holds up what is written to it.
#[derive(Default)]
pub struct Taking {
    pace: Option<Pace>,
    /// Since when those who share the room know that it is slow. They need not know that it is not.
    told: Option<Instant>,
}

impl Taking {
    /// Whether it has to give up all that it holds: it holds up what is to be written, of which it has taken so
    /// much in all, and others wait.
    pub fn must_yield(
        &mut self,
        taken_bytes: u64,
        held: (&Account, &Budget),
        now: Instant,
        context: &Context<'_>,
    ) -> bool {
        self.must_yield_of(taken_bytes, held.0.held_bytes(), held, now, context)
    }

    /// The same for something else that passes than what is written: so much in all, and so much is held for it.
    pub fn must_yield_of(
        &mut self,
        passed_bytes: u64,
        held_bytes: u64,
        held: (&Account, &Budget),
        now: Instant,
        context: &Context<'_>,
    ) -> bool {
        let (account, budget) = held;
        let pace = self.pace.get_or_insert_with(|| Pace::begin(now, passed_bytes, GRACE));
        pace.pass(passed_bytes, held_bytes, now);
        let slow_from = Some(pace.slow_from()).filter(|slow_from| *slow_from <= now);
        self.tell(slow_from, held);
        if slow_from.is_none() {
            return false;
        }
        // Both, since either may wake.
        let of_answers = account.must_yield(now, context);
        budget.must_yield(now, context) || of_answers
    }

    /// It holds up nothing: it is not judged.
    pub fn rest(&mut self, held: (&Account, &Budget)) {
        self.pace = None;
        self.tell(None, held);
    }

    /// When it is slow, if it takes nothing more; then it is to be asked about.
    #[must_use]
    pub fn slow_from(&self) -> Option<Instant> {
        self.pace.as_ref().map(Pace::slow_from)
    }

    fn tell(&mut self, slow_from: Option<Instant>, (account, budget): (&Account, &Budget)) {
        if self.told != slow_from {
            self.told = slow_from;
            account.judge(slow_from);
            budget.judge(slow_from);
        }
    }
}
