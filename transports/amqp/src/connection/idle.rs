//! Timeouts: silence on both sides, and the time for opening and closing (AMQP 2.4.5, AMQP-06). The
//! driver of the connection passes the time in, and calls [`tick`](Connection::tick) at the
//! [`deadline`](Connection::deadline).

use std::time::Duration;

use super::{Connection, ProtocolStage};
use crate::error::{AmqpError, condition};

/// Times of the last received and sent bytes, and the deadline for opening or closing.
#[derive(Debug)]
pub(super) struct IdleClock {
    input_at: Duration,
    output_at: Duration,
    /// Number of received bytes that were not understood yet.
    unread_bytes: usize,
    /// Time without output after which an empty frame is sent: half of the timeout that the peer
    /// announced. `None` without such a timeout.
    pub(super) keep_alive_interval: Option<Duration>,
    /// Deadline by which the connection must be open, or closed.
    pub(super) until: Option<Duration>,
}

impl IdleClock {
    pub(super) const fn new(opening_max: Duration) -> Self {
        Self {
            input_at: Duration::ZERO,
            output_at: Duration::ZERO,
            unread_bytes: 0,
            keep_alive_interval: None,
            until: Some(opening_max),
        }
    }

    /// Records the number of unread input bytes; a higher number than before is activity of the
    /// peer.
    pub(super) const fn record_input(&mut self, input_bytes: usize, now: Duration) {
        if input_bytes > self.unread_bytes {
            self.input_at = now;
        }
    }

    /// Records the number of input bytes that were not understood yet.
    pub(super) const fn record_unread(&mut self, input_bytes: usize) {
        self.unread_bytes = input_bytes;
    }

    /// Records that bytes are written.
    pub(super) const fn record_output(&mut self, now: Duration) {
        self.output_at = now;
    }
}

impl Connection {
    /// Restarts the timeout for silence, since this side did not read until now (AMQP-06).
    pub const fn restart_idle_timeout(&mut self, now: Duration) {
        self.clock.input_at = now;
    }

    /// Time at which [`tick`](Self::tick) must be called, unless something happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let speak = self.keep_alive_at().filter(|_| self.is_open());
        let silence = self.timeout_at().filter(|_| self.is_open());
        [self.clock.until, speak, silence].into_iter().flatten().min()
    }

    fn keep_alive_at(&self) -> Option<Duration> {
        self.clock.keep_alive_interval.map(|every| self.clock.output_at.saturating_add(every))
    }

    fn timeout_at(&self) -> Option<Duration> {
        let limit = self.config.idle_time_out;
        (!limit.is_zero()).then(|| self.clock.input_at.saturating_add(limit))
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
        if self.timeout_at().is_some_and(|at| now >= at) {
            let limit = self.config.idle_time_out.as_millis();
            let error = AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                format!("no frame arrived for {limit} ms"),
            );
            return self.close_because(error, now);
        }
        if self.keep_alive_at().is_some_and(|at| now >= at) {
            // Waiting output keeps the connection alive just as well.
            if self.wire.waiting_bytes() == 0 {
                self.wire.empty_frame();
            }
            self.clock.record_output(now);
        }
    }

    fn too_slow(&mut self, now: Duration) {
        self.clock.until = None;
        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, "opening took too long");
        match self.phase {
            ProtocolStage::Opening => self.close_because(error, now),
            ProtocolStage::Closing => self.phase = ProtocolStage::Closed,
            _ => self.close_without_waiting(error),
        }
    }
}
