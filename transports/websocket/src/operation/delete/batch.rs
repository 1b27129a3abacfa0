//! Deletes available messages.

use peeklock_core::command::Outcome;
use peeklock_core::error::Rejection;

use super::{Deleted, delete_batch};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::{Expect, Notice, unexpected};

bodies! {
    struct DeleteBatch {
        link: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_count: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }
}

impl Conversation {
    pub(in crate::operation) fn delete_batch(
        &mut self,
        asked: Asked,
        delete: &DeleteBatch,
    ) -> Done {
        let count_max = delete.max_count.unwrap_or_else(|| self.delete_count_max());
        let enqueued_before = delete.enqueued_before_utc.map(|Instant(at)| at);
        let link = self.receiver(delete.link)?;
        let command = delete_batch(link, count_max, enqueued_before);
        self.command(asked, delete.link, command, Expect::One(Self::deleted))
    }

    fn deleted(&mut self, _: u32, outcome: Outcome, _: &str) -> Result<Notice, Rejection> {
        let Outcome::Deleted(count) = outcome else { return Err(unexpected()) };
        Ok(Notice::Deleted(Deleted { count }))
    }
}
