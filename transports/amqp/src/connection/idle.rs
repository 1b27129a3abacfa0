//! Time: silence on both sides, and how long opening and closing may take (AMQP 2.4.5, AMQP-06).

use std::time::Duration;

use super::{Connection, Phase};
use crate::error::{AmqpError, condition};

/// When what was heard and said, and until when something must have happened.
#[derive(Debug)]
pub(super) struct Clock {
    heard_at: Duration,
    spoke_at: Duration,
    /// How much input was there and not understood.
    left_bytes: usize,
    /// How often at least something is to be said.
    pub(super) speak_every: Option<Duration>,
    /// Until when the connection must be open, or closed.
    pub(super) until: Option<Duration>,
}

impl Clock {
    pub(super) const fn new(opening_max: Duration) -> Self {
        Self {
            heard_at: Duration::ZERO,
            spoke_at: Duration::ZERO,
            left_bytes: 0,
            speak_every: None,
            until: Some(opening_max),
        }
    }

    /// So much input is there.
    pub(super) const fn heard(&mut self, input_bytes: usize, now: Duration) {
        if input_bytes > self.left_bytes {
            self.heard_at = now;
        }
    }

    /// So much of it was not understood yet.
    pub(super) const fn left(&mut self, input_bytes: usize) {
        self.left_bytes = input_bytes;
    }

    /// Something is being written.
    pub(super) const fn spoke(&mut self, now: Duration) {
        self.spoke_at = now;
    }
}

impl Connection {
    /// Nothing was read up to now, for a reason that is not the peer's: silence counts from here on (AMQP-06).
    pub const fn was_not_read(&mut self, now: Duration) {
        self.clock.heard_at = now;
    }

    /// When [`tick`](Self::tick) is to be called, unless something happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let speak = self.speak_at().filter(|_| self.is_open());
        let silence = self.silent_at().filter(|_| self.is_open());
        [self.clock.until, speak, silence].into_iter().flatten().min()
    }

    fn speak_at(&self) -> Option<Duration> {
        self.clock.speak_every.map(|every| self.clock.spoke_at.saturating_add(every))
    }

    fn silent_at(&self) -> Option<Duration> {
        let limit = self.config.idle_time_out;
        (!limit.is_zero()).then(|| self.clock.heard_at.saturating_add(limit))
    }

    /// Lets time pass: says something if it is due, and gives up whom nothing was heard of.
    pub fn tick(&mut self, now: Duration) {
        if self.clock.until.is_some_and(|until| now >= until) {
            return self.too_slow(now);
        }
        if !self.is_open() {
            return;
        }
        if self.silent_at().is_some_and(|at| now >= at) {
            let limit = self.config.idle_time_out.as_millis();
            let error = AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                format!("no frame arrived for {limit} ms"),
            );
            return self.close_because(error, now);
        }
        if self.speak_at().is_some_and(|at| now >= at) {
            // What waits to be written says as much.
            if self.wire.waiting_bytes() == 0 {
                self.wire.empty_frame();
            }
            self.clock.spoke(now);
        }
    }

    fn too_slow(&mut self, now: Duration) {
        self.clock.until = None;
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, "opening took too long");
        match self.phase {
            Phase::Opening => self.close_because(error, now),
            Phase::Closing => self.phase = Phase::Closed,
            _ => self.break_off(error),
        }
    }
}
