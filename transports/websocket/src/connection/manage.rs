//! Management of queues, and whatever else takes more than one command: carried out apart, so that
//! the conversation goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::Access;
use peeklock_core::command::Outcome;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_link::Mail;

use super::Conversation;
use super::inbound::{Asked, Done};
use super::pending::Expect;
use crate::frame::queue::{QueueList, QueueView};
use crate::frame::text::Instant;
use crate::frame::{CreateQueue, Deleted, ListQueues, Notice, Purge, UpdateQueue, WireError};

/// An update without a version is tried against so many versions by others.
const CONFLICTS_MAX: usize = 16;

/// Something to be done apart.
pub(super) struct Work {
    slot: usize,
    work: Pin<Box<dyn Future<Output = Result<Notice, BrokerError>> + Send>>,
}

/// What was done apart is answered with.
pub(super) struct Own {
    slot: usize,
    notice: Box<Notice>,
}

impl Conversation {
    /// Has something done apart; its answer comes by mail.
    pub(super) fn apart(
        &mut self,
        asked: Asked,
        work: impl Future<Output = Result<Notice, BrokerError>> + Send + 'static,
    ) {
        let slot = self.links.ask_of("".into(), asked.id, Some(asked.permit), Expect::Own);
        self.apart.push(Work { slot, work: Box::pin(work) });
        self.begin_apart();
    }

    /// Begins what waits, while there is room for its answers and little is under way.
    pub(super) fn begin_apart(&mut self) {
        while let Some(Work { slot, work }) = self.apart.begin(self.may_answer()) {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move {
                let notice = match work.await {
                    Ok(notice) => notice,
                    Err(error) => Notice::Error(WireError::from(&error)),
                };
                mailbox.put(Mail::Own(Own { slot, notice: Box::new(notice) }));
            });
        }
    }

    /// Something was done apart.
    pub(super) fn done_apart(&mut self, own: Own) {
        self.apart.done();
        if let Some((id, _, _)) = self.links.answered(own.slot) {
            self.say(id, *own.notice);
        }
    }

    pub(super) fn create_queue(&mut self, asked: Asked, create: CreateQueue) -> Done {
        let properties = create.properties.to_update()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            let described = access.create_queue(&create.path, properties).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        });
        Ok(())
    }

    pub(super) fn get_queue(&mut self, asked: Asked, path: &str) -> Done {
        let (access, path) = (self.access.clone(), path.to_owned());
        self.apart(asked, async move {
            let described = access.describe_queue(&path).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        });
        Ok(())
    }

    pub(super) fn update_queue(&mut self, asked: Asked, update: UpdateQueue) -> Done {
        update.properties.to_update()?;
        let access = self.access.clone();
        self.apart(asked, async move {
            access.allow(Action::Update, &update.path).await?;
            updated(update.version, || try_update(&access, &update)).await
        });
        Ok(())
    }

    /// Deletes an entity of that kind with everything in it.
    pub(super) fn delete(&mut self, asked: Asked, path: &str, kind: EntityKind) -> Done {
        let (access, path) = (self.access.clone(), path.to_owned());
        self.apart(asked, async move {
            access.delete(&path, kind).await?;
            Ok(Notice::Done(Default::default()))
        });
        Ok(())
    }

    pub(super) fn list_queues(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let access = self.access.clone();
        let (skip, top) = self.page(list.skip, list.top);
        self.apart(asked, async move {
            let queues = access.queues(skip, top).await?;
            let queues = queues.into_iter().map(QueueView::from).collect();
            Ok(Notice::Queues(QueueList { queues }))
        });
        Ok(())
    }

    /// What of a list is asked for, as far as one answer has it (ENT-30).
    pub(super) fn page(&self, skip: u32, top: Option<u32>) -> (usize, usize) {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let most = self.broker.settings().limits.list_count_max.max(1);
        (count(skip), top.map_or(most, count).min(most))
    }

    /// Deletes all available messages that were enqueued before an instant (DEL-06).
    pub(super) fn purge(&mut self, asked: Asked, purge: &Purge) -> Done {
        let link = self.receiver(purge.link)?;
        let entity = link.entity.clone();
        let before = purge.enqueued_before_utc.map_or_else(|| self.broker.now(), |Instant(at)| at);
        let command = super::session::delete_batch(link, self.delete_count_max(), Some(before));
        self.apart(asked, async move {
            let mut deleted = 0;
            loop {
                match entity.call(command.clone()).await? {
                    Outcome::Deleted(0) => return Ok(Notice::Deleted(Deleted { count: deleted })),
                    Outcome::Deleted(count) => deleted += count,
                    _ => return Err(entity.refuse(Rejection::internal("unexpected answer"))),
                }
            }
        });
        Ok(())
    }
}

/// What an update comes to. One without a version that met another one is tried again.
pub(super) async fn updated<F: Future<Output = Result<Notice, BrokerError>>>(
    version: Option<Instant>,
    attempt: impl Fn() -> F,
) -> Result<Notice, BrokerError> {
    let mut attempts = 1;
    loop {
        match attempt().await {
            Err(error)
                if error.condition() == Condition::UpdateConflict
                    && version.is_none()
                    && attempts < CONFLICTS_MAX =>
            {
                attempts += 1;
            }
            answer => return answer,
        }
    }
}

async fn try_update(access: &Access, update: &UpdateQueue) -> Result<Notice, BrokerError> {
    let (path, broker) = (&update.path, access.broker());
    let current = access.describe_queue(path).await?;
    let mut properties = update.properties.clone();
    properties.keep(&current);
    let properties = properties.to_update().map_err(|rejection| broker.refuse(rejection, path))?;
    let read_at = update.version.map_or(current.updated_at, |Instant(at)| at);
    let described = access.update_queue(path, properties, Some(read_at)).await?;
    Ok(Notice::Queue(Box::new(QueueView::from(described))))
}
