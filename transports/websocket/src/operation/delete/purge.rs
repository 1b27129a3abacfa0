//! Deletes all available messages.

use peeklock_core::command::Outcome;

use super::{Deleted, delete_batch};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::{Notice, unexpected};

bodies! {
    struct Purge {
        link: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }
}

impl Conversation {
    /// Deletes all available messages that were enqueued before an instant (DEL-06).
    pub(in crate::operation) fn purge(&mut self, asked: Asked, purge: &Purge) -> Done {
        let link = self.receiver(purge.link)?;
        let entity = link.entity.clone();
        let before =
            purge.enqueued_before_utc.map_or_else(|| self.engine.broker.now(), |Instant(at)| at);
        let command = delete_batch(link, self.delete_count_max(), Some(before));
        self.apart(asked, move || async move {
            let mut deleted = 0;
            loop {
                match entity.call(command.clone()).await? {
                    Outcome::Deleted(0) => return Ok(Notice::Deleted(Deleted { count: deleted })),
                    Outcome::Deleted(count) => deleted += count,
                    _ => return Err(entity.refuse(unexpected())),
                }
            }
        })
    }
}
