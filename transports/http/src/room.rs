//! Memory for answers and commands, which connections share. A request reserves it before it
//! changes anything; a slow client loses it to others that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock_core::Entity;
use peeklock_core::admission::{PacedShare, Permit, Pool};
use peeklock_core::command::Command;
use peeklock_core::error::Rejection;

use crate::error::Refusal;
use crate::site::Site;

/// Bytes of an answer that every connection may have without a reservation.
const FREE_BYTES: u64 = 16 << 10;
/// Bytes that are reserved before the size of an answer is known: enough for a list, or for most
/// messages.
const ANSWER_BYTES: u64 = 64 << 10;
/// Maximum wait of a request for memory. Until then the request holds only locks, which are
/// released if it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the broker's memory for commands, for at most [`PATIENCE`].
pub(crate) async fn admit(entity: &Entity, commands: &[Command]) -> Result<Permit, Refusal> {
    let permit = tokio::time::timeout(PATIENCE, entity.admit(commands)).await;
    permit.map_err(|_| {
        let detail =
            "there is no memory for more commands: `broker_inbound_bytes_max` is in use; retry \
             later";
        Rejection::server_busy(detail).into()
    })
}

/// Reserved memory for an answer.
pub(crate) struct AnswerRoom {
    pool: Arc<Pool>,
    share: PacedShare,
}

impl AnswerRoom {
    /// Reserves memory before the answer is made and before its operation is carried out.
    pub(crate) async fn take(site: &Site) -> Result<Self, Refusal> {
        let pool = Arc::clone(&site.outbound);
        let mut room = Self { share: pool.paced_share(), pool };
        room.fit_messages(ANSWER_BYTES).await?;
        Ok(room)
    }

    /// Reserves memory for an answer of `bytes` bytes; none if every connection may have that much.
    pub(crate) async fn of(site: &Site, bytes: u64) -> Result<Option<Self>, Refusal> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let pool = Arc::clone(&site.outbound);
        let mut room = Self { share: pool.paced_share(), pool };
        room.fit_messages(bytes).await?;
        Ok(Some(room))
    }

    /// Whether at least half of the pool is free, so that the reservation may stay while no message
    /// is available.
    pub(crate) fn is_spare(&self) -> bool {
        self.pool.free_bytes() > self.pool.bytes_max() / 2
    }

    /// Releases the reservation for a while.
    pub(crate) fn leave(&mut self) {
        self.share.release();
    }

    /// Ensures a reservation of at least `bytes` for messages that were received under lock or
    /// peeked. A larger reservation is made after the current one is released, so that no two
    /// requests wait for each other.
    pub(crate) async fn fit_messages(&mut self, bytes: u64) -> Result<(), Refusal> {
        let bytes = bytes.min(self.pool.bytes_max());
        if bytes <= self.share.held_bytes() {
            return Ok(());
        }
        self.share.release();
        if self.share.wait(bytes, 0, Instant::now() + PATIENCE).await.is_err() {
            let detail = "there is no memory for the response, because other clients do not read \
                theirs; retry later";
            return Err(Rejection::server_busy(detail).into());
        }
        // The pace of the reader counts only from the first byte of the answer.
        self.share.rest();
        Ok(())
    }

    /// Reduces the reservation to the known size of the answer.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.share.release_beyond(bytes);
    }

    /// Keeps the memory for an answer of this size until it is written.
    pub(crate) fn for_answer(mut self, bytes: usize) -> PacedShare {
        let bytes = bytes as u64;
        self.share.release_beyond(if bytes > FREE_BYTES { bytes } else { 0 });
        self.share
    }
}
