//! Room for answers and commands, which connections share: taken before something is carried out, and released by a slow
//! client for others that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peeklock_core::Entity;
use peeklock_core::admission::{PacedShare, Permit, Pool};
use peeklock_core::command::Command;
use peeklock_core::error::Rejection;

use crate::error::Refusal;
use crate::site::Site;

/// What an answer needs no room for; every connection may have so much.
const FREE_BYTES: u64 = 16 << 10;
/// What room is taken for before the size of an answer is known: a list, or most messages.
const ANSWER_BYTES: u64 = 64 << 10;
/// How long a request waits for room. Nothing was taken for it but locks, which are released.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the broker's room for commands, as long as for any other.
pub(crate) async fn admit(entity: &Entity, commands: &[Command]) -> Result<Permit, Refusal> {
    let permit = tokio::time::timeout(PATIENCE, entity.admit(commands)).await;
    permit.map_err(|_| {
        let detail =
            "there is no memory for more commands: `broker_inbound_bytes_max` is in use; retry \
             later";
        Rejection::server_busy(detail).into()
    })
}

/// Room for an answer.
pub(crate) struct AnswerRoom {
    pool: Arc<Pool>,
    share: PacedShare,
}

impl AnswerRoom {
    /// Takes room before the answer is made, and before anything is carried out for it.
    pub(crate) async fn take(site: &Site) -> Result<Self, Refusal> {
        let pool = Arc::clone(&site.outbound);
        let mut room = Self { share: pool.paced_share(), pool };
        room.fit_messages(ANSWER_BYTES).await?;
        Ok(room)
    }

    /// Room for an answer of so many bytes; none for what every connection may have.
    pub(crate) async fn of(site: &Site, bytes: u64) -> Result<Option<Self>, Refusal> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let pool = Arc::clone(&site.outbound);
        let mut room = Self { share: pool.paced_share(), pool };
        room.fit_messages(bytes).await?;
        Ok(Some(room))
    }

    /// Whether little enough is taken that it may be kept while nothing is there to be written.
    pub(crate) fn is_spare(&self) -> bool {
        self.pool.free_bytes() > self.pool.bytes_max() / 2
    }

    /// Gives it back for a while.
    pub(crate) fn leave(&mut self) {
        self.share.release();
    }

    /// Has room for at least so much of messages that were received under lock, or looked at. Who needs more
    /// gives back what it has before it waits, so that nobody waits for it meanwhile.
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
        // It is judged by the pace of its reader, from when that has something to read.
        self.share.rest();
        Ok(())
    }

    /// Gives back what is more than so much: it is known how large the answer is.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.share.release_beyond(bytes);
    }

    /// The room for an answer of this size, until it was written.
    pub(crate) fn for_answer(mut self, bytes: usize) -> PacedShare {
        let bytes = bytes as u64;
        self.share.release_beyond(if bytes > FREE_BYTES { bytes } else { 0 });
        self.share
    }
}
