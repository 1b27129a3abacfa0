//! Deletes available messages of all sessions that nobody holds.

use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;

use super::Deleted;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::{Notice, unexpected};

bodies! {
    struct DeleteUnlocked {
        path: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_count: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }
}

impl Conversation {
    /// Deletes available messages of all sessions that nobody holds (DEL-07).
    pub(in crate::operation) async fn delete_unlocked(
        &mut self,
        asked: Asked,
        delete: DeleteUnlocked,
    ) -> Done {
        let entity = self.engine.access.entity(&delete.path, Action::DeleteUnlocked).await?;
        let command = Command::DeleteBatchUnlocked {
            count_max: delete.max_count.unwrap_or_else(|| self.delete_count_max()),
            enqueued_before: delete.enqueued_before_utc.map(|Instant(at)| at),
        };
        self.apart(asked, move || async move {
            match entity.call(command).await? {
                Outcome::Deleted(count) => Ok(Notice::Deleted(Deleted { count })),
                _ => Err(entity.refuse(unexpected())),
            }
        })
    }
}
