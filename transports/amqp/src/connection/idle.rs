//! Timeouts: silence on both sides, and the time for opening and closing (AMQP 2.4.5, AMQP-06). The
//! driver of the connection passes the time in, and calls [`tick`](Connection::tick) at the
//! [`deadline`](Connection::deadline).

use std::time::Duration;

use super::{Connection, Phase};
use crate::error::{AmqpError, condition};

/// Times of the last received and sent bytes, and the deadline for opening or closing.
#[derive(Debug)]
pub(super) struct Clock {
    heard_at: Duration,
    spoke_at: Duration,
    /// Number of received bytes that were not understood yet.
    left_bytes: usize,
    /// Longest time without a sent frame that the peer accepts.
    pub(super) speak_every: Option<Duration>,
    /// Deadline by which the connection must be open, or closed.
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

    /// Records the number of unread input bytes; a higher number than before is activity of the
    /// peer.
    pub(super) const fn heard(&mut self, input_bytes: usize, now: Duration) {
        if input_bytes > self.left_bytes {
            self.heard_at = now;
        }
    }

    /// Records the number of input bytes that were not understood yet.
    pub(super) const fn left(&mut self, input_bytes: usize) {
        self.left_bytes = input_bytes;
    }

    /// Records that bytes are written.
    pub(super) const fn spoke(&mut self, now: Duration) {
        self.spoke_at = now;
    }
}

impl Connection {
    /// Restarts the timeout for silence, since this side did not read until now (AMQP-06).
    pub const fn was_not_read(&mut self, now: Duration) {
        self.clock.heard_at = now;
    }

    /// Time at which [`tick`](Self::tick) must be called, unless something happens before.
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

    /// Handles elapsed time: sends an empty frame if one is due, and closes a connection whose peer
    /// is silent for too long.
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
            // Waiting output keeps the connection alive just as well.
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
