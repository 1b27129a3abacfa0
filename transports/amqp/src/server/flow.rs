//! Bytes of a connection both ways, and its instants.

use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use peeklock_core::admission::PacedShare;
use tokio::time::Sleep;

use super::removed::{Leaving, Lost};
use super::site::Site;

/// Time for which a large content may stand still while another waits to begin: its client would begin it again.
const LARGE_GRACE: Duration = Duration::from_secs(10);
/// How often locks that have ended are looked for, and whether the client takes what is written.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Bytes that have arrived and were not carried out.
pub(super) struct Inflow {
    pub(super) input: BytesMut,
    /// Room for messages that have not arrived whole, and the bytes of them that have arrived.
    pub(super) share: PacedShare,
    pub(super) assembled_bytes: u64,
    /// Room for a large message, and the number of large ones that are not stored.
    pub(super) large_share: PacedShare,
    pub(super) large_count: usize,
}

impl Inflow {
    pub(super) fn new(site: &Site) -> Self {
        Self {
            input: BytesMut::new(),
            share: site.inbound.paced_share(),
            assembled_bytes: 0,
            large_share: site.large_inbound.patient_share(LARGE_GRACE),
            large_count: 0,
        }
    }
}

/// Bytes on their way to the client.
#[derive(Default)]
pub(super) struct Outflow {
    /// Bytes that its client has taken in all.
    pub(super) taken_bytes: u64,
    /// The number of the large content that it holds, and since when.
    pub(super) large_since: Option<(u64, Instant)>,
    /// Messages that were received for good and are written nowhere, and those that are being written.
    pub(super) lost: Lost,
    pub(super) leaving: Leaving,
    /// Whether bytes were written that the system may not have yet.
    pub(super) is_unflushed: bool,
    pub(super) stalled_since: Option<Instant>,
    /// Whether nothing can be written any more: requests that were read are carried out all the same.
    pub(super) write_closed: bool,
}

/// The instants of a connection.
pub(super) struct Clock {
    pub(super) began: Instant,
    /// Until when requests that came before the end may wait for room, once it has come.
    pub(super) over_until: Option<Instant>,
    pub(super) timer: Pin<Box<Sleep>>,
    /// When locks that have ended are looked for next, and the like.
    pub(super) next_tick: Instant,
    /// Whether bytes were read since the clock was last asked.
    pub(super) has_read: bool,
    /// Whether nothing is read for want of room, or of an answer: its client cannot be heard.
    pub(super) read_blocked: bool,
}

impl Clock {
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
