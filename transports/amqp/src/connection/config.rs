//! What a connection promises, and its bounds.

use std::num::NonZero;
use std::time::Duration;

use crate::sasl::mechanism;

/// What a connection promises its peer, and what it may hold.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the broker calls itself.
    pub container_id: Box<str>,
    /// Mechanisms that are offered, in this order (AMQP-03).
    pub mechanisms: Vec<&'static str>,
    /// Whether a client may leave out saying who it is (AMQP-04).
    pub sasl_required: bool,
    /// The largest frame that is taken (AMQP-05).
    pub frame_bytes_max: u32,
    /// The largest frame that is sent, if the peer takes larger ones.
    pub frame_sent_bytes_max: u32,
    /// The highest channel: one more sessions than this (AMQP-05).
    pub channel_max: u16,
    /// The highest handle: one more links in a session than this (AMQP-30).
    pub handle_max: u32,
    /// Links of all sessions together, until [`Connection::allow`](super::Connection::allow) changes it.
    pub link_count_max: usize,
    /// Sessions, until that changes it.
    pub session_count_max: usize,
    /// After how long a silence the peer is gone (AMQP-06).
    pub idle_time_out: Duration,
    /// How long the peer may take until its `open` is here.
    pub opening_max: Duration,
    /// How long the peer may take to answer a `close`.
    pub closing_max: Duration,
    /// The delivery-count of a link on which the client receives, before anything is delivered: it is the sender's
    /// to choose, and goes round at 2³² (AMQP-09).
    pub initial_delivery_count: u32,
    /// How many transfers a session takes before it is told of more room (AMQP-30).
    pub incoming_window: u32,
    /// Deliveries of a session that its client has sent and that are not answered; above this its window
    /// stays shut (AMQP-40).
    pub unanswered_max: u32,
    /// Deliveries of a session that its client was sent and has not settled.
    pub unsettled_max: usize,
    /// The largest message, on links that are accepted without a limit of their own (AMQP-34).
    pub message_bytes_max: NonZero<u64>,
    /// Bytes that wait to be written; above this nothing is read and nothing delivered.
    pub output_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            container_id: "peeklock".into(),
            mechanisms: vec![
                mechanism::MSSBCBS,
                mechanism::PLAIN,
                mechanism::ANONYMOUS,
                mechanism::EXTERNAL,
            ],
            sasl_required: true,
            frame_bytes_max: 64 << 10,
            frame_sent_bytes_max: 1 << 20,
            channel_max: 4_999,
            handle_max: 4_999,
            link_count_max: 4_096,
            session_count_max: 1_024,
            idle_time_out: Duration::from_secs(240),
            opening_max: Duration::from_secs(20),
            closing_max: Duration::from_secs(5),
            initial_delivery_count: 0,
            incoming_window: 2_048,
            unanswered_max: 4_096,
            unsettled_max: 8_192,
            message_bytes_max: NonZero::new(1 << 20).unwrap_or(NonZero::<u64>::MIN),
            output_bytes_max: 256 << 10,
        }
    }
}
