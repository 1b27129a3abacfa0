//! Renews the locks of all messages that a consumer has, together (SET-17, SET-18).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    /// When it is to be renewed.
    due: Instant,
    /// From when on it is not.
    end: End,
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

    /// Whether it is reached; tells then whose lock is left to run out.
    pub(super) fn is_reached(self, now: Instant, path: &str, sequence: SequenceNumber) -> bool {
        let is_reached = self.0.is_some_and(|end| end <= now);
        if is_reached {
            let why = "a lock is renewed no more, its handler has had the message for too long";
            tracing::warn!(path, sequence_number = sequence.0, "{why}");
        }
        is_reached
    }
}

impl Renewal {
    pub(super) fn new(link: Arc<dyn Link>, max: TimeSpan) -> Self {
        Self { link, max, held: HashMap::new(), timer: None, asked: None }
    }

    fn is_on(&self) -> bool {
        self.max > TimeSpan::ZERO
    }

    /// Keeps a lock from now on.
    pub(super) fn keep(&mut self, tag: u64, token: LockToken, until: Timestamp) {
        if !self.is_on() {
            return;
        }
        let now = Instant::now();
        let (due, end) = (now + half_of(&*self.link, until), End::after(self.max, now));
        self.held.insert(tag, Lock { token, until, due, end });
        if self.timer.is_none() {
            self.timer = Some(Box::pin(tokio::time::sleep_until(due)));
        }
    }

    /// A message has waited, and is with its handler from now on.
    pub(super) fn begin_anew(&mut self, tag: u64) {
        if let Some(held) = self.held.get_mut(&tag) {
            held.end = End::after(self.max, Instant::now());
        }
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
        let (now, path) = (Instant::now(), self.link.path());
        self.held.retain(|_, held| {
            held.due > now || !held.end.is_reached(now, path, held.token.sequence())
        });
        let due = self.held.iter().filter(|(_, held)| held.due <= now);
        let (tags, tokens): (Vec<u64>, Vec<LockToken>) =
            due.map(|(tag, held)| (*tag, held.token)).unzip();
        if tags.is_empty() {
            return;
        }
        for tag in &tags {
            if let Some(held) = self.held.get_mut(tag) {
                // Should the answer not come, it is asked for again.
                held.due = now + half_of(&*self.link, held.until);
            }
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
                    held.due = Instant::now() + half_of(&*self.link, until);
                }
                Err(error) if error.retryable() => {}
                // The lock is lost; the handler is left to find out.
                Err(_) => drop(self.held.remove(&tag)),
            }
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        let first = self.held.values().map(|held| held.due).min();
        self.timer = first.map(|due| Box::pin(tokio::time::sleep_until(due)));
    }
}
