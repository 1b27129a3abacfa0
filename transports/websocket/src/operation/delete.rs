//! Messages that nobody has received: one file for each operation that deletes them.

mod batch;
mod deferred;
mod purge;
mod unlocked;

use peeklock_core::Entity;
use peeklock_core::command::{Command, SessionCommand};
use peeklock_core::time::Timestamp;
use peeklock_link::{Link, Source};

pub(crate) use self::{batch::*, deferred::*, purge::*, unlocked::*};
use crate::connection::Conversation;
use crate::frame::bodies;

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

/// Removes available messages of what a link receives from (DEL-01, DEL-07).
const fn delete_batch(
    link: &Link<Entity>,
    count_max: u32,
    enqueued_before: Option<Timestamp>,
) -> Command {
    match link.source {
        Source::Session(_) => {
            link.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before })
        }
        Source::Queue | Source::Awaited => Command::DeleteBatch { count_max, enqueued_before },
    }
}
