//! Opening and closing of connections (AMQP 2.4). After this side has sent `close`, it only waits
//! for the peer's `close`, for a limited time.

use std::time::Duration;

use super::{Connection, Event, Fault, ProtocolStage};
use crate::error::AmqpError;
use crate::frame::FRAME_BYTES_MIN;
use crate::performative::{Close, Open};

/// Shortest idle timeout of a peer, in milliseconds; a shorter one would require too many frames.
const IDLE_TIME_OUT_MS_MIN: u32 = 100;

impl Connection {
    pub(super) fn take_open(&mut self, open: Box<Open>) -> Result<(), Fault> {
        self.send_open();
        let frame_bytes_max = open.max_frame_size.unwrap_or(u32::MAX);
        if frame_bytes_max < FRAME_BYTES_MIN {
            return Err(Fault::Connection(AmqpError::invalid_field(format!(
                "max-frame-size {frame_bytes_max} is below {FRAME_BYTES_MIN}"
            ))));
        }
        // Some clients send 0 for no timeout.
        let idle_time_out = open.idle_time_out.filter(|milliseconds| *milliseconds > 0);
        if let Some(short) = idle_time_out.filter(|short| *short < IDLE_TIME_OUT_MS_MIN) {
            return Err(Fault::Connection(AmqpError::invalid_field(format!(
                "idle-time-out {short} is below {IDLE_TIME_OUT_MS_MIN}"
            ))));
        }
        self.wire.frame_bytes_max =
            frame_bytes_max.min(self.config.frame_sent_bytes_max.max(FRAME_BYTES_MIN));
        self.peer_channel_max = open.channel_max.unwrap_or(u16::MAX);
        self.clock.keep_alive_interval =
            idle_time_out.map(|milliseconds| Duration::from_millis(u64::from(milliseconds) / 2));
        self.clock.until = None;
        self.events.push_back(Event::Opened(open));
        Ok(())
    }

    fn send_open(&mut self) {
        let idle = self.config.idle_time_out.as_millis();
        self.wire.frame(
            0,
            &Open {
                container_id: self.config.container_id.clone(),
                max_frame_size: Some(self.config.frame_bytes_max.max(FRAME_BYTES_MIN)),
                channel_max: Some(self.config.channel_max),
                idle_time_out: u32::try_from(idle).ok().filter(|milliseconds| *milliseconds > 0),
                ..Open::default()
            },
        );
        self.phase = ProtocolStage::Open;
    }

    pub(super) fn take_close(&mut self, error: Option<AmqpError>) {
        if self.phase == ProtocolStage::Open {
            let live = self.sessions.iter().filter(|(_, session)| !session.ending);
            let live: Vec<_> = live.map(|(channel, session)| session.id(*channel)).collect();
            live.into_iter().for_each(|session| self.answer_detaches(session));
            self.wire.frame(0, &Close { error: None });
            self.forget(error, true);
        }
        self.phase = ProtocolStage::Closed;
        self.clock.until = None;
    }

    /// Closes the connection (AMQP-91). Frames of the peer are ignored until its `close` arrives.
    pub fn close(&mut self, error: Option<AmqpError>, now: Duration) {
        if self.phase == ProtocolStage::Opening {
            // The standard allows `close` only after `open`.
            self.send_open();
        }
        if self.phase != ProtocolStage::Open {
            return match error {
                Some(error) => self.close_without_waiting(error),
                None => {
                    self.close_without_waiting(AmqpError::illegal_state("connection is not open"))
                }
            };
        }
        self.wire.frame(0, &Close { error: error.map(AmqpError::with_transience) });
        self.phase = ProtocolStage::Closing;
        self.clock.until = Some(now.saturating_add(self.config.closing_max));
        self.sessions.clear();
        self.unsent_links.clear();
        self.current_disposition = None;
        self.forget_links();
    }

    /// Closes the connection because of an error of the peer.
    pub(super) fn close_because(&mut self, error: AmqpError, now: Duration) {
        self.close(Some(error.clone()), now);
        if self.phase == ProtocolStage::Closing {
            self.forget(Some(error), false);
        }
    }

    /// Ends the connection without waiting, since its bytes cannot be understood. An open
    /// connection gets the reason.
    pub(super) fn close_without_waiting(&mut self, error: AmqpError) {
        match self.phase {
            ProtocolStage::Closed => return,
            ProtocolStage::Opening => {
                self.send_open();
                self.wire.frame(0, &Close { error: Some(error.clone().with_transience()) });
            }
            ProtocolStage::Open => {
                self.wire.frame(0, &Close { error: Some(error.clone().with_transience()) })
            }
            _ => {}
        }
        let was_closing = self.phase == ProtocolStage::Closing;
        self.phase = ProtocolStage::Closed;
        self.clock.until = None;
        if !was_closing {
            self.forget(Some(error), false);
        }
    }

    fn forget(&mut self, error: Option<AmqpError>, by_client: bool) {
        self.sessions.clear();
        self.unsent_links.clear();
        self.current_disposition = None;
        self.forget_links();
        self.events.push_back(Event::Closed { error, by_client });
    }

    const fn forget_links(&mut self) {
        self.link_count = 0;
        self.links_bytes = 0;
    }

    /// Returns the highest channel of this side.
    pub(crate) fn channel_max(&self) -> u16 {
        self.config.channel_max
    }

    /// Returns whether the peer takes frames on a channel.
    pub(crate) const fn peer_takes(&self, channel: u16) -> bool {
        channel <= self.peer_channel_max
    }
}
