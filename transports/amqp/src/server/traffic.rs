//! Bytes of a connection on their way in both directions, and its times. The turns of the
//! connection update them. Credit of links is in `node/receiver.rs` and `node/sender.rs`.

use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use peeklock_core::admission::PacedShare;
use tokio::time::Sleep;

use super::deleted::{LossCounter, UnflushedDeletions};
use super::listener_state::ListenerState;

/// Time for which a client may stall in a large message while another large message waits to begin.
/// After that the client must send its message again, so the time is long.
const LARGE_GRACE: Duration = Duration::from_secs(10);
/// Interval at which ended locks are removed and the progress of the client is checked.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Received bytes that were not carried out.
pub(super) struct Inflow {
    pub(super) input: BytesMut,
    /// Room for incomplete messages, and the number of their received bytes.
    pub(super) share: PacedShare,
    pub(super) assembled_bytes: u64,
    /// Room for a large message, and the number of large messages that are not stored yet.
    pub(super) large_share: PacedShare,
    pub(super) large_count: usize,
}

impl Inflow {
    pub(super) fn new(listener: &ListenerState) -> Self {
        Self {
            input: BytesMut::new(),
            share: listener.inbound.paced_share(),
            assembled_bytes: 0,
            large_share: listener.large_inbound.patient_share(LARGE_GRACE),
            large_count: 0,
        }
    }
}

/// Bytes that are being sent to the client.
#[derive(Default)]
pub(super) struct Outflow {
    /// Total number of bytes that were written to the socket.
    pub(super) written_bytes: u64,
    /// Number of the large content that the account holds, and since when.
    pub(super) large_since: Option<(u64, Instant)>,
    /// Messages that were received and deleted: the lost ones, and the ones that are being written.
    pub(super) lost: LossCounter,
    pub(super) unflushed_deletions: UnflushedDeletions,
    /// Whether bytes were written that the operating system may not have yet.
    pub(super) is_unflushed: bool,
    pub(super) stalled_since: Option<Instant>,
    /// Whether nothing can be written any more. Requests that were read are still carried out.
    pub(super) write_closed: bool,
}

/// Times of a connection.
pub(super) struct ConnectionTimes {
    pub(super) began: Instant,
    /// End of the wait for room after the connection is over, for requests from before.
    pub(super) over_until: Option<Instant>,
    pub(super) timer: Pin<Box<Sleep>>,
    /// Time of the next regular check.
    pub(super) next_tick: Instant,
    /// Whether bytes were read since the timer was last polled.
    pub(super) has_read: bool,
    /// Whether reading waits for room or for an answer, so that the client cannot show activity.
    pub(super) read_blocked: bool,
}

impl ConnectionTimes {
    pub(super) fn new(opening_timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            began: now,
            over_until: None,
            timer: Box::pin(tokio::time::sleep(opening_timeout)),
            next_tick: now + TICK,
            has_read: false,
            read_blocked: false,
        }
    }
}
