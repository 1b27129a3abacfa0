//! The share of something that passes: a frame, a body, a head, an answer. HTTP and WebSocket hold
//! one for each passing item. A share is evicted only if its pace is slow and others wait.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::Share;
use crate::pace::{Pace, Timer};

/// A waiter looks again at the latest after this time: an evicted share may not have released its bytes.
const AGAIN: Duration = Duration::from_millis(100);
/// A waiter looks again at the earliest after this time, so that a share that is always about to be slow, and never is,
/// keeps no waiter busy.
const SOON: Duration = Duration::from_millis(10);

/// A share that is judged by its pace from the moment at which it holds bytes.
#[derive(Debug)]
pub struct PacedShare {
    share: Share,
    held_bytes: u64,
    turn: Option<u64>,
    pace: Option<Pace>,
    grace: Duration,
    timer: Timer,
}

/// It is slow and others wait: it must release its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted;

/// The reason why bytes were not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotGranted {
    /// The time for the wait is over.
    Late,
    /// It is slow itself, and others wait.
    Evicted,
}

/// State of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Granted,
    /// It waits, and looks again when it is woken, at this instant at the latest.
    Later(Instant),
    Evicted,
}

impl PacedShare {
    pub(super) fn new(share: Share, grace: Duration) -> Self {
        let timer = Timer::default();
        Self { share, held_bytes: 0, turn: None, pace: None, grace, timer }
    }

    /// Bytes that it holds.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Size of the pool.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.share.bytes_max()
    }

    /// Waits for more bytes, for something of which `passed_bytes` are here.
    pub fn poll_wait(
        &mut self,
        bytes: u64,
        passed_bytes: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Evicted>> {
        let granted = loop {
            match self.look(bytes, passed_bytes, Instant::now(), context) {
                Look::Granted => break Ok(()),
                Look::Evicted => break Err(Evicted),
                Look::Later(at) => ready!(self.timer.poll(at, context)),
            }
        };
        // It wakes no task after the wait.
        self.timer = Timer::default();
        Poll::Ready(granted)
    }

    /// Waits for more bytes, as [`Self::poll_wait`], until an instant.
    ///
    /// # Errors
    /// When the bytes were not granted until then, or must be released.
    pub async fn wait(
        &mut self,
        bytes: u64,
        passed_bytes: u64,
        until: Instant,
    ) -> Result<(), NotGranted> {
        let mut late = Timer::default();
        poll_fn(|context| {
            if let Poll::Ready(granted) = self.poll_wait(bytes, passed_bytes, context) {
                return Poll::Ready(granted.map_err(|Evicted| NotGranted::Evicted));
            }
            late.poll(until, context).map(|()| Err(NotGranted::Late))
        })
        .await
    }

    pub(super) fn look(
        &mut self,
        bytes: u64,
        passed_bytes: u64,
        now: Instant,
        context: &Context<'_>,
    ) -> Look {
        let Self { share, held_bytes, turn, pace, grace, .. } = self;
        let key = share.key();
        share.pool.in_order(|order| {
            order.pass_time(now);
            if order.is_evicted(key, None) {
                return Look::Evicted;
            }
            if order.poll(Some(key), bytes, turn, context).is_ready() {
                *turn = None;
                *held_bytes = share.held.bytes();
                let begun = pace.insert(Pace::begin(now, passed_bytes, *grace));
                order.judge(key, Some(begun.slow_from()));
                return Look::Granted;
            }
            match order.is_evicted(key, Some(context)) {
                true => Look::Evicted,
                false => {
                    let look = order.next_look().unwrap_or(now + AGAIN);
                    Look::Later(look.clamp(now + SOON, now + AGAIN))
                }
            }
        })
    }

    /// Whether it must release its bytes, after `passed_bytes` have passed in all. A waiter for bytes asks whenever it
    /// is woken.
    pub fn is_evicted(&mut self, passed_bytes: u64, now: Instant, context: &Context<'_>) -> bool {
        if self.held_bytes == 0 {
            return false;
        }
        let pace = self.pace.get_or_insert_with(|| Pace::begin(now, passed_bytes, self.grace));
        pace.pass(passed_bytes, self.held_bytes, now);
        let slow_from = Some(pace.slow_from());
        let key = self.share.key();
        self.share.pool.in_order(|order| {
            // While it waits for bytes it cannot be faster.
            if self.turn.is_none() {
                order.judge(key, slow_from);
            }
            order.is_evicted(key, Some(context))
        })
    }

    /// Whether it was evicted by the last look of any waiter.
    #[must_use]
    pub fn was_evicted(&self) -> bool {
        let key = self.share.key();
        self.share.pool.in_order(|order| order.is_evicted(key, None))
    }

    /// Suspends the judgement of its pace while nothing passes for a reason other than a slow peer. It resumes when
    /// the share [begins](Self::begin), or when it is checked for eviction.
    pub fn rest(&mut self) {
        if self.pace.take().is_some() {
            self.share.judge(None);
        }
    }

    /// Its bytes begin to pass at that instant.
    pub fn begin(&mut self, at: Instant) {
        let pace = self.pace.insert(Pace::begin(at, 0, self.grace));
        self.share.judge(Some(pace.slow_from()));
    }

    /// Releases all but `bytes` bytes.
    pub fn release_beyond(&mut self, bytes: u64) {
        if bytes == 0 {
            return self.release();
        }
        let spare = self.held_bytes.saturating_sub(bytes);
        self.held_bytes -= spare;
        if spare > 0 {
            self.share.release(spare);
        }
    }

    /// Releases everything, and its turn if it waits: all has passed, or never will.
    pub fn release(&mut self) {
        if self.held_bytes == 0 && self.turn.is_none() {
            return;
        }
        (self.held_bytes, self.turn, self.pace) = (0, None, None);
        self.timer = Timer::default();
        self.share.pool.in_order(|order| order.release_all(self.share.key()));
    }
}
