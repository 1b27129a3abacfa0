//! Settings of a connection: values that it announces to its peer, and its limits. The server
//! derives it from its settings, and tests set it directly.

use std::num::NonZero;
use std::time::Duration;

use crate::sasl::mechanism;

/// Values that a connection announces to its peer, and its limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the broker's container.
    pub container_id: Box<str>,
    /// Offered SASL mechanisms, in this order (AMQP-03).
    pub mechanisms: Vec<&'static str>,
    /// Whether a client must authenticate with SASL (AMQP-04).
    pub sasl_required: bool,
    /// Maximum size of a received frame in bytes (AMQP-05).
    pub frame_bytes_max: u32,
    /// Maximum size of a sent frame in bytes, if the peer takes larger ones.
    pub frame_sent_bytes_max: u32,
    /// Highest channel; allows this number plus one sessions (AMQP-05).
    pub channel_max: u16,
    /// Highest handle; allows this number plus one links in a session (AMQP-30).
    pub handle_max: u32,
    /// Maximum number of links of all sessions, until
    /// [`Connection::allow`](super::Connection::allow) changes it.
    pub link_count_max: usize,
    /// Maximum number of sessions, until [`Connection::allow`](super::Connection::allow) changes
    /// it.
    pub session_count_max: usize,
    /// Time without received bytes after which the connection is closed (AMQP-06).
    pub idle_time_out: Duration,
    /// Maximum time until the peer's `open` arrives.
    pub opening_max: Duration,
    /// Maximum time until the peer answers a `close`.
    pub closing_max: Duration,
    /// First delivery-count of links on which the client receives. The sending side may choose any;
    /// it wraps at 2³² (AMQP-09).
    pub initial_delivery_count: u32,
    /// Number of transfers that a session takes before it announces a new window (AMQP-30).
    pub incoming_window: u32,
    /// Maximum number of unanswered deliveries from the client in a session; at this number its
    /// window stays closed (AMQP-40).
    pub unanswered_max: u32,
    /// Maximum number of unsettled deliveries to the client in a session.
    pub unsettled_max: usize,
    /// Maximum message size in bytes on links that are accepted without a limit of their own
    /// (AMQP-34).
    pub message_bytes_max: NonZero<u64>,
    /// Maximum number of bytes that wait to be written; from this number on nothing is read or
    /// delivered.
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
