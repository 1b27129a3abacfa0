//! Renewal of the locks of all messages that a consumer has, in groups (SET-17, SET-18). The loop
//! in `queue.rs` registers each lock and polls this.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::time::{Instant, Sleep};

use crate::keeper::{half_from, half_of};
use crate::port::{Answer, BoxFuture, Link, Request};

/// Locks with one timer, set to the earliest renewal. A lock is renewed when half of its time is
/// over.
pub(super) struct Renewal {
    link: Arc<dyn Link>,
    /// Maximum time for which each lock is renewed.
    max: TimeSpan,
    /// The locks by place. Nearly every message is settled long before its first renewal, so adding
    /// and removing a lock must be cheap.
    held: Vec<Option<Lock>>,
    free: Vec<usize>,
    /// The current time, once read in this turn.
    now: Option<Now>,
    timer: Option<Pin<Box<Sleep>>>,
    renewing: Option<BoxFuture<'static, Renewed>>,
}

/// Place of a lock. It may be reused by a lock with another token.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

/// The current time by both clocks.
#[derive(Clone, Copy)]
struct Now {
    here: Instant,
    broker: Timestamp,
}

/// Results of a renewal, per lock.
type Renewed = Vec<((Place, LockToken), Result<Timestamp, BrokerError>)>;

struct Lock {
    token: LockToken,
    until: Timestamp,
    /// Time of the next renewal; `None` after renewals have ended.
    due: Option<Instant>,
    /// End of renewals.
    end: End,
    /// Whether the handler has the message.
    is_with_handler: bool,
}

/// Log text when the lock of a message with the handler is no longer renewed.
pub(super) const HANDLER_TOO_SLOW: &str =
    "a lock is no longer renewed, because its handler has had the message for too long";
/// Log text when the lock of a waiting message is no longer renewed.
const WAITED_TOO_LONG: &str = "a lock is no longer renewed, because its message has waited too long for \
    its handler";

/// Logs that a lock is no longer renewed.
pub(super) fn log_renewal_end(path: &str, sequence: SequenceNumber, why: &str) {
    tracing::warn!(path, sequence_number = sequence.0, "{why}");
}

/// End of a lock's renewals.
#[derive(Clone, Copy)]
pub(super) struct End(Option<Instant>);

impl End {
    /// Returns the end `span` after `now`.
    pub(super) fn after(span: TimeSpan, now: Instant) -> Self {
        // An end beyond the clock's range never comes.
        Self(now.checked_add(span.to_std()))
    }

    /// Returns whether the end is reached.
    pub(super) fn is_reached(self, now: Instant) -> bool {
        self.0.is_some_and(|end| end <= now)
    }
}

impl Place {
    /// Place of a lock that is not renewed.
    const NONE: Self = Self(usize::MAX);
}

impl Renewal {
    pub(super) fn new(link: Arc<dyn Link>, max: TimeSpan) -> Self {
        let (held, free) = (Vec::new(), Vec::new());
        Self { link, max, held, free, now: None, timer: None, renewing: None }
    }

    fn is_on(&self) -> bool {
        self.max > TimeSpan::ZERO
    }

    /// Sends renewals over another link to the same entity, also for existing locks.
    pub(super) fn change_to(&mut self, link: Arc<dyn Link>) {
        self.link = link;
    }

    /// Begins a turn. All locks of a turn share one reading of the clocks.
    pub(super) const fn begin_turn(&mut self) {
        self.now = None;
    }

    fn now(&mut self) -> Now {
        *self.now.get_or_insert_with(|| Now { here: Instant::now(), broker: self.link.now() })
    }

    /// Adds the lock of a message that waits for the handler.
    pub(super) fn keep(&mut self, token: LockToken, until: Timestamp) -> Place {
        if !self.is_on() {
            return Place::NONE;
        }
        let now = self.now();
        let due = now.here + half_from(now.broker, until);
        let end = End::after(self.max, now.here);
        let lock = Some(Lock { token, until, due: Some(due), end, is_with_handler: false });
        // Locks that come later may last shorter.
        if self.timer.as_ref().is_none_or(|timer| due < timer.deadline()) {
            self.timer = Some(Box::pin(tokio::time::sleep_until(due)));
        }
        let place = self.free.pop().unwrap_or(self.held.len());
        match self.held.get_mut(place) {
            Some(slot) => *slot = lock,
            None => self.held.push(lock),
        }
        Place(place)
    }

    /// Records that a waiting message is now with the handler, which restarts the time limit of its
    /// renewals. Returns false if the lock has expired; the message is then delivered again.
    pub(super) fn begin(
        &mut self,
        place: Place,
        token: LockToken,
        message: &ReceivedMessage,
    ) -> bool {
        let (now, max) = (self.now(), self.max);
        let given_until = message.facts.lock.map(|lock| lock.until);
        let until = self.held(place, token).map(|held| held.until).or(given_until);
        if until.is_none_or(|until| until <= now.broker) {
            self.forget(place, token);
            return false;
        }
        let Some(held) = self.held(place, token) else { return true };
        (held.end, held.is_with_handler) = (End::after(max, now.here), true);
        if held.due.is_none() {
            held.due = Some(now.here);
            self.set_timer();
        }
        true
    }

    /// Returns a lock that is still kept.
    fn held(&mut self, Place(place): Place, token: LockToken) -> Option<&mut Lock> {
        self.held.get_mut(place)?.as_mut().filter(|held| held.token == token)
    }

    pub(super) fn forget(&mut self, place: Place, token: LockToken) {
        if self.held(place, token).is_none() {
            return;
        }
        let Place(place) = place;
        if let Some(slot) = self.held.get_mut(place) {
            *slot = None;
            self.free.push(place);
        }
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.free.clear();
    }

    /// Runs due renewals and handles their answers, as far as possible without waiting.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some(renewing) = &mut self.renewing {
                let Poll::Ready(renewed) = renewing.as_mut().poll(context) else { return };
                self.renewing = None;
                self.renewed(renewed);
            }
            let Some(timer) = &mut self.timer else { return };
            if timer.as_mut().poll(context).is_pending() {
                return;
            }
            self.timer = None;
            self.ask();
            self.set_timer();
        }
    }

    /// Renews the locks that are due.
    fn ask(&mut self) {
        let now = Instant::now();
        let mut kept = Vec::new();
        for (place, held) in self.held.iter_mut().enumerate() {
            let Some(held) = held else { continue };
            if held.due.is_none_or(|due| due > now) {
                continue;
            }
            if held.end.is_reached(now) {
                let why = if held.is_with_handler { HANDLER_TOO_SLOW } else { WAITED_TOO_LONG };
                log_renewal_end(self.link.path(), held.token.sequence(), why);
                held.due = None;
                continue;
            }
            // Without an answer the lock is renewed again.
            held.due = Some(now + half_of(&*self.link, held.until));
            kept.push((Place(place), held.token));
        }
        if kept.is_empty() {
            return;
        }
        let link = Arc::clone(&self.link);
        self.renewing = Some(Box::pin(async move {
            let tokens = kept.iter().map(|(_, token)| *token).collect();
            let answer = link.ask(Request::Renew(tokens)).await;
            let results = link.each(kept.len(), answer, |answer| match answer {
                Answer::Renewed(renewed) => Ok(renewed),
                other => Err(other),
            });
            kept.into_iter().zip(results).collect()
        }));
    }

    fn renewed(&mut self, renewed: Renewed) {
        for ((place, token), result) in renewed {
            match result {
                Ok(until) => {
                    let pause = half_of(&*self.link, until);
                    let Some(held) = self.held(place, token) else { continue };
                    held.until = until;
                    held.due = held.due.map(|_| Instant::now() + pause);
                }
                Err(error) if error.retryable() => {}
                // The lock is lost; the handler finds out when it settles.
                Err(_) => self.forget(place, token),
            }
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        let first = self.held.iter().flatten().filter_map(|held| held.due).min();
        self.timer = first.map(|due| Box::pin(tokio::time::sleep_until(due)));
    }
}
