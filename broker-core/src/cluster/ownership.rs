//! State machine of ownership: renewals and time in, actions out. It has no clock and no thread.
//!
//! ```text
//!            lease of the owner over, and none          lease renewed in time
//!            of its renewals seen: Take                ┌─────────┐
//!  Waiting ───────────────────────────► the view says  │         ▼
//!     ▲  ▲                              "this broker" ─┴──► Owner ──── time is over ───► Suspended
//!     │  └─ no answer, or lost a race          Begin          ▲                          │    │
//!     │                                                       └── still the owner ───────┘    │
//!     └─ (the program starts again) ◄── Lost ◄── another broker owns the shards ──────────────┘
//! ```
//!
//! Instants are boot times of this machine ([`crate::clock::boot_time`]), which no setting of a wall
//! clock changes. The registry compares leases by its own clock, which may be set, or be another one
//! after a failover. So its verdict is not enough: a broker takes shards over only after it has seen
//! no renewal of the owner for one whole lease of its own boot time. The only assumption about time
//! is that a second lasts as long here as at the owner, within the margin; and an append of a broker
//! that is wrong is refused by its epoch anyway (CLU-07).

use crate::store::registry::{Owner, SeenOwner, View};
use crate::time::TimeSpan;

/// Times of leases (CLU-16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTimes {
    /// Interval between renewals.
    pub renew: TimeSpan,
    /// Time after a renewal until the lease is over for other brokers.
    pub lease: TimeSpan,
    /// The lease is over this much earlier for the broker that holds it.
    pub margin: TimeSpan,
}

impl LeaseTimes {
    /// Renewals that must fit into the time in which the holder may work.
    const RENEWALS_MIN: i64 = 3;
    /// Shortest margin.
    const MARGIN_MIN: TimeSpan = TimeSpan::from_ms(300);

    /// Time after a renewal was sent in which its broker may work.
    #[must_use]
    pub const fn valid_for(&self) -> TimeSpan {
        TimeSpan::from_ticks(self.lease.ticks() - self.margin.ticks())
    }

    /// Checks the times.
    ///
    /// # Errors
    /// The text names the limit that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        if self.renew <= TimeSpan::ZERO {
            return Err("the interval of renewals must be above 0".to_owned());
        }
        if self.margin < Self::MARGIN_MIN {
            return Err(format!(
                "a lease must end at least {} ms earlier for its holder than for others",
                Self::MARGIN_MIN.as_ms()
            ));
        }
        if self.valid_for().ticks() / self.renew.ticks() < Self::RENEWALS_MIN {
            return Err(format!(
                "a lease must have time for {} renewals: renew each {} ms at most",
                Self::RENEWALS_MIN,
                self.valid_for().as_ms() / Self::RENEWALS_MIN
            ));
        }
        Ok(())
    }
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self {
            renew: TimeSpan::from_ms(500),
            lease: TimeSpan::from_seconds(3),
            margin: TimeSpan::from_ms(500),
        }
    }
}

/// Work for the driver of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask the registry to take the shards from this owner, then renew.
    Take(Option<SeenOwner>),
    /// Open the shards: this broker owns them.
    Begin,
    /// Let nothing out that rests on memory.
    Suspend,
    /// Go on as before. Locks that were in force are prolonged by this time (CLU-22).
    Resume(TimeSpan),
    /// Stop permanently: another broker owns the shards.
    Lose,
}

/// Phase of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Another broker owns the shards, or none does.
    Waiting,
    /// This broker owns the shards and may work until [`Ownership::valid_until`].
    Owner,
    /// This broker owned the shards when it last heard, and its lease has ended at this instant.
    Suspended(TimeSpan),
    /// Another broker has taken the shards.
    Lost,
}

/// Ownership of a broker.
#[derive(Clone, Debug)]
pub struct Ownership {
    times: LeaseTimes,
    phase: Phase,
    /// When the last successful renewal was sent.
    renewed: Option<TimeSpan>,
    /// The other broker that owns the shards, as the last renewal has seen it.
    watched: Option<WatchedOwner>,
}

/// An owner that has renewed nothing for a while.
#[derive(Clone, Copy, Debug)]
struct WatchedOwner {
    seen: SeenOwner,
    /// Its last renewal came at most a quarter of the margin after this instant, and all later
    /// renewals of this broker have no gap between them.
    since: TimeSpan,
}

impl Ownership {
    /// A broker that waits.
    #[must_use]
    pub const fn new(times: LeaseTimes) -> Self {
        Self { times, phase: Phase::Waiting, renewed: None, watched: None }
    }

    /// Current phase.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Boot time until which the broker may work, if it owns the shards.
    #[must_use]
    pub fn valid_until(&self) -> Option<TimeSpan> {
        Some(self.renewed?.plus(self.times.valid_for()))
    }

    /// Time passes.
    pub fn advance(&mut self, now: TimeSpan) -> Option<Action> {
        let valid_until = self.valid_until()?;
        if self.phase == Phase::Owner && now >= valid_until {
            self.phase = Phase::Suspended(valid_until);
            return Some(Action::Suspend);
        }
        None
    }

    /// A renewal that was sent at `sent_at` has succeeded. Call [`Self::advance`] before.
    pub fn renewed(&mut self, sent_at: TimeSpan, now: TimeSpan, view: &View) -> Option<Action> {
        // The answer to a later renewal has come before.
        if self.renewed.is_some_and(|last| sent_at < last) {
            return None;
        }
        // A lease that ended meanwhile was a gap.
        if self.valid_until().is_none_or(|until| sent_at >= until) {
            self.watched = None;
        }
        self.renewed = Some(sent_at);
        self.watch(sent_at, now, view);
        let is_valid = self.valid_until().is_some_and(|until| now < until);
        match (self.phase, &view.owner) {
            (Phase::Lost, _) => None,
            (Phase::Waiting, Owner::This) => is_valid.then(|| {
                self.phase = Phase::Owner;
                Action::Begin
            }),
            (Phase::Waiting, Owner::Nobody) => Some(Action::Take(None)),
            (Phase::Waiting, Owner::Other { seen, has_ended, is_barred, .. }) => {
                // A barred owner has lost its lease, and never gets it back.
                let is_free = *is_barred || (*has_ended && self.has_watched_for_a_lease());
                (is_valid && is_free).then_some(Action::Take(Some(*seen)))
            }
            (Phase::Owner, Owner::This) => None,
            (Phase::Suspended(since), Owner::This) => is_valid.then(|| {
                self.phase = Phase::Owner;
                Action::Resume(span(since, now))
            }),
            (Phase::Owner | Phase::Suspended(_), Owner::Nobody | Owner::Other { .. }) => {
                self.phase = Phase::Lost;
                Some(Action::Lose)
            }
        }
    }

    /// Notes the owner, and since when it has renewed nothing. Its last renewal came before the
    /// first view that has it.
    fn watch(&mut self, sent_at: TimeSpan, now: TimeSpan, view: &View) {
        let Owner::Other { seen, .. } = &view.owner else {
            self.watched = None;
            return;
        };
        if self.watched.is_none_or(|watched| watched.seen != *seen) {
            let since = sent_at.max(span(self.times.margin.divided_by(4), now));
            self.watched = Some(WatchedOwner { seen: *seen, since });
        }
    }

    /// Whether this broker has renewed for one whole lease without a gap, and seen no renewal of the
    /// owner meanwhile. Without this, a set clock would end leases that are in force, and the first
    /// broker that reaches the registry after an outage would take the shards from an owner that
    /// could not renew either (CLU-21).
    fn has_watched_for_a_lease(&self) -> bool {
        let (Some(watched), Some(renewed)) = (self.watched, self.renewed) else { return false };
        span(watched.since, renewed) >= self.times.lease
    }
}

/// Time between two boot times.
const fn span(from: TimeSpan, to: TimeSpan) -> TimeSpan {
    TimeSpan::from_ticks(to.ticks() - from.ticks())
}

#[cfg(test)]
mod tests;
