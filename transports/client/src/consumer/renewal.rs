//! Renews the locks of all messages that a consumer has, together (SET-17, SET-18).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::time::{Instant, Sleep};

use crate::keeper::{half_from, half_of};
use crate::port::{Answer, Link, Request, Waiting};

/// One timer for all locks: it is set to the first that is half over.
pub(super) struct Renewal {
    link: Arc<dyn Link>,
    /// For how long each is renewed.
    max: TimeSpan,
    /// Each lock in its place: nearly every message is done with long before it is to be renewed, so to keep a lock
    /// and to forget it must cost little.
    held: Vec<Option<Lock>>,
    free: Vec<usize>,
    /// What the time is, once it was asked for in this turn.
    now: Option<Now>,
    timer: Option<Pin<Box<Sleep>>>,
    asked: Option<Waiting<'static, Renewed>>,
}

/// Where a lock is kept. The place may be another's by now, whose token is another.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

/// The time, by both clocks.
#[derive(Clone, Copy)]
struct Now {
    here: Instant,
    broker: Timestamp,
}

/// What became of each.
type Renewed = Vec<((Place, LockToken), Result<Timestamp, BrokerError>)>;

struct Lock {
    token: LockToken,
    until: Timestamp,
    /// When it is to be renewed; not any more, once its end is reached.
    due: Option<Instant>,
    /// From when on it is not.
    end: End,
    /// Whether its message is with the handler.
    is_in_hand: bool,
}

/// Why a lock is left to run out whose message is with the handler.
pub(super) const IN_HAND: &str =
    "a lock is no longer renewed, because its handler has had the message for too long";
/// The same, of one that waits for it.
const WAITING: &str = "a lock is no longer renewed, because its message has waited too long for \
    its handler";

/// Tells whose lock is left to run out.
pub(super) fn tell_no_more(path: &str, sequence: SequenceNumber, why: &str) {
    tracing::warn!(path, sequence_number = sequence.0, "{why}");
}

/// Until when a lock is renewed.
#[derive(Clone, Copy)]
pub(super) struct End(Option<Instant>);

impl End {
    /// So long after now.
    pub(super) fn after(span: TimeSpan, now: Instant) -> Self {
        // What is longer than any clock goes is without end.
        Self(now.checked_add(span.to_std()))
    }

    /// Whether it is reached.
    pub(super) fn is_reached(self, now: Instant) -> bool {
        self.0.is_some_and(|end| end <= now)
    }
}

impl Place {
    /// Of a lock that is not renewed.
    const NONE: Self = Self(usize::MAX);
}

impl Renewal {
    pub(super) fn new(link: Arc<dyn Link>, max: TimeSpan) -> Self {
        let (held, free) = (Vec::new(), Vec::new());
        Self { link, max, held, free, now: None, timer: None, asked: None }
    }

    fn is_on(&self) -> bool {
        self.max > TimeSpan::ZERO
    }

    /// Asks over another link to the same entity from now on, of what it keeps already, too.
    pub(super) fn change_to(&mut self, link: Arc<dyn Link>) {
        self.link = link;
    }

    /// What comes from now on, up to the next turn, has come at one instant: the clocks are read once for all of it.
    pub(super) const fn begin_turn(&mut self) {
        self.now = None;
    }

    fn now(&mut self) -> Now {
        *self.now.get_or_insert_with(|| Now { here: Instant::now(), broker: self.link.now() })
    }

    /// Keeps a lock from now on, whose message waits for the handler.
    pub(super) fn keep(&mut self, token: LockToken, until: Timestamp) -> Place {
        if !self.is_on() {
            return Place::NONE;
        }
        let now = self.now();
        let due = now.here + half_from(now.broker, until);
        let end = End::after(self.max, now.here);
        let lock = Some(Lock { token, until, due: Some(due), end, is_in_hand: false });
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

    /// A message has waited, and is with its handler from now on, with the whole time for it. Not if its lock has run
    /// out meanwhile: then it is delivered again, and tells so.
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
        (held.end, held.is_in_hand) = (End::after(max, now.here), true);
        if held.due.is_none() {
            held.due = Some(now.here);
            self.set_timer();
        }
        true
    }

    /// A lock that is kept still.
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

    /// Goes on as far as it can.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some(asked) = &mut self.asked {
                let Poll::Ready(renewed) = asked.as_mut().poll(context) else { return };
                self.asked = None;
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

    /// Asks for those that are due.
    fn ask(&mut self) {
        let now = Instant::now();
        let mut kept = Vec::new();
        for (place, held) in self.held.iter_mut().enumerate() {
            let Some(held) = held else { continue };
            if held.due.is_none_or(|due| due > now) {
                continue;
            }
            if held.end.is_reached(now) {
                let why = if held.is_in_hand { IN_HAND } else { WAITING };
                tell_no_more(self.link.path(), held.token.sequence(), why);
                held.due = None;
                continue;
            }
            // Should the answer not come, it is asked for again.
            held.due = Some(now + half_of(&*self.link, held.until));
            kept.push((Place(place), held.token));
        }
        if kept.is_empty() {
            return;
        }
        let link = Arc::clone(&self.link);
        self.asked = Some(Box::pin(async move {
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
                // The lock is lost; the handler is left to find out.
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
