//! Renews the locks of all messages that a consumer has, together (SET-17, SET-18).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::time::{Instant, Sleep};

use crate::keeper::half_of;
use crate::port::{Answer, Link, Request, Waiting};
use crate::sender::each;

/// One timer for all locks: it is set to the first that is half over.
pub(super) struct Renewal {
    link: Arc<dyn Link>,
    /// For how long each is renewed.
    max: TimeSpan,
    held: HashMap<u64, Lock>,
    timer: Option<Pin<Box<Sleep>>>,
    asked: Option<Waiting<'static, Renewed>>,
}

/// What became of each, by its tag.
type Renewed = Vec<(u64, Result<Timestamp, BrokerError>)>;

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
    "a lock is renewed no more, its handler has had the message for too long";
/// The same, of one that waits for it.
const WAITING: &str = "a lock is renewed no more, its message has waited too long for its handler";

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

impl Renewal {
    pub(super) fn new(link: Arc<dyn Link>, max: TimeSpan) -> Self {
        Self { link, max, held: HashMap::new(), timer: None, asked: None }
    }

    fn is_on(&self) -> bool {
        self.max > TimeSpan::ZERO
    }

    /// Keeps a lock from now on; whether its message waits for the handler or is with it.
    pub(super) fn keep(&mut self, tag: u64, token: LockToken, until: Timestamp, waits: bool) {
        if !self.is_on() {
            return;
        }
        let now = Instant::now();
        let (due, end) = (now + half_of(&*self.link, until), End::after(self.max, now));
        self.held.insert(tag, Lock { token, until, due: Some(due), end, is_in_hand: !waits });
        if self.timer.is_none() {
            self.timer = Some(Box::pin(tokio::time::sleep_until(due)));
        }
    }

    /// A message has waited, and is with its handler from now on, with the whole time for it. Not if its lock has run
    /// out meanwhile: then it is delivered again, and tells so.
    pub(super) fn begin(&mut self, tag: u64, message: &ReceivedMessage) -> bool {
        let given_until = message.facts.lock.map(|lock| lock.until);
        let until = self.held.get(&tag).map(|held| held.until).or(given_until);
        if until.is_none_or(|until| until <= self.link.now()) {
            self.held.remove(&tag);
            return false;
        }
        let Some(held) = self.held.get_mut(&tag) else { return true };
        let now = Instant::now();
        (held.end, held.is_in_hand) = (End::after(self.max, now), true);
        if held.due.is_none() {
            held.due = Some(now);
            self.set_timer();
        }
        true
    }

    pub(super) fn forget(&mut self, tag: u64) {
        if self.is_on() {
            self.held.remove(&tag);
        }
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
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
        let (mut tags, mut tokens) = (Vec::new(), Vec::new());
        for (tag, held) in &mut self.held {
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
            tags.push(*tag);
            tokens.push(held.token);
        }
        if tags.is_empty() {
            return;
        }
        let link = Arc::clone(&self.link);
        self.asked = Some(Box::pin(async move {
            let answer = link.ask(Request::Renew(tokens)).await;
            let results = each(&*link, tags.len(), answer, |answer| match answer {
                Answer::Renewed(renewed) => Ok(renewed),
                other => Err(other),
            });
            tags.into_iter().zip(results).collect()
        }));
    }

    fn renewed(&mut self, renewed: Renewed) {
        for (tag, result) in renewed {
            let Some(held) = self.held.get_mut(&tag) else { continue };
            match result {
                Ok(until) => {
                    held.until = until;
                    held.due = held.due.map(|_| Instant::now() + half_of(&*self.link, until));
                }
                Err(error) if error.retryable() => {}
                // The lock is lost; the handler is left to find out.
                Err(_) => drop(self.held.remove(&tag)),
            }
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        let first = self.held.values().filter_map(|held| held.due).min();
        self.timer = first.map(|due| Box::pin(tokio::time::sleep_until(due)));
    }
}
