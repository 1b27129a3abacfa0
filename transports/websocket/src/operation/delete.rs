//! Deletes messages that no receiver has locked. `operation.rs` calls it. Locked messages are never
//! deleted.

use peeklock_core::Entity;
use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::Timestamp;
use peeklock_link::{Link, MessageSource};

use super::{Notice, PendingAnswer, unexpected};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;

bodies! {
    struct Deleted {
        count: u64,
    }
}

impl Conversation {
    fn delete_count_max(&self) -> u32 {
        u32::try_from(self.engine.broker.settings().limits.batch_delete_count_max)
            .unwrap_or(u32::MAX)
    }
}

/// Makes the command that removes available messages from the source of a link (DEL-01, DEL-07).
const fn delete_batch(
    link: &Link<Entity>,
    count_max: u32,
    enqueued_before: Option<Timestamp>,
) -> Command {
    match link.source {
        MessageSource::Session(_) => {
            link.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before })
        }
        MessageSource::Queue | MessageSource::NotAssigned => {
            Command::DeleteBatch { count_max, enqueued_before }
        }
    }
}

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
    pub(super) fn delete_batch(&mut self, admitted: AdmittedRequest, delete: &DeleteBatch) -> Done {
        let count_max = delete.max_count.unwrap_or_else(|| self.delete_count_max());
        let enqueued_before = delete.enqueued_before_utc.map(|Instant(at)| at);
        let link = self.receiver(delete.link)?;
        let command = delete_batch(link, count_max, enqueued_before);
        self.command(admitted, delete.link, command, PendingAnswer::One(Self::deleted))
    }

    fn deleted(&mut self, _: u32, outcome: Outcome, _: &str) -> Result<Notice, Rejection> {
        let Outcome::Deleted(count) = outcome else { return Err(unexpected()) };
        Ok(Notice::Deleted(Deleted { count }))
    }
}

bodies! {
    struct Purge {
        link: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        enqueued_before_utc: Option<Instant>,
    }
}

impl Conversation {
    /// Deletes all available messages that were enqueued before an instant (DEL-06).
    pub(super) fn purge(&mut self, admitted: AdmittedRequest, purge: &Purge) -> Done {
        let link = self.receiver(purge.link)?;
        let entity = link.entity.clone();
        let before =
            purge.enqueued_before_utc.map_or_else(|| self.engine.broker.now(), |Instant(at)| at);
        let command = delete_batch(link, self.delete_count_max(), Some(before));
        self.spawn_background(admitted, move || async move {
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
    /// Deletes available messages of all unlocked sessions (DEL-07).
    pub(super) async fn delete_unlocked(
        &mut self,
        admitted: AdmittedRequest,
        delete: DeleteUnlocked,
    ) -> Done {
        let entity = self.engine.access.entity(&delete.path, Action::DeleteUnlocked).await?;
        let command = Command::DeleteBatchUnlocked {
            count_max: delete.max_count.unwrap_or_else(|| self.delete_count_max()),
            enqueued_before: delete.enqueued_before_utc.map(|Instant(at)| at),
        };
        self.spawn_background(admitted, move || async move {
            match entity.call(command).await? {
                Outcome::Deleted(count) => Ok(Notice::Deleted(Deleted { count })),
                _ => Err(entity.refuse(unexpected())),
            }
        })
    }
}

bodies! {
    struct DeleteDeferred {
        link: u32,
        sequence_number: u64,
    }
}

impl Conversation {
    pub(super) fn delete_deferred(
        &mut self,
        admitted: AdmittedRequest,
        delete: &DeleteDeferred,
    ) -> Done {
        let sequence = SequenceNumber(delete.sequence_number);
        self.command(
            admitted,
            delete.link,
            Command::DeleteDeferred { sequence },
            PendingAnswer::DONE,
        )
    }
}
