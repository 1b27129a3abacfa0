//! Takes replies out of a session, and hands each to who waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::MessageId;
use peeklock_core::time::TimeSpan;
use tokio::sync::oneshot;

use crate::{Client, Received, SessionReceiver};

/// Replies that are taken at once.
const REPLIES_AT_ONCE: u32 = 32;
/// How long one receive waits; then it is made again.
const RECEIVE_WAIT: TimeSpan = TimeSpan::from_seconds(60);
/// The pause before a session that was lost is asked for again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where replies come to.
pub(super) struct Replies {
    pub(super) client: Client,
    pub(super) queue: Box<str>,
    pub(super) session: Box<str>,
    /// As what the queue is made, if it is not there.
    pub(super) made: QueueUpdate,
    pub(super) waiting: Arc<Waiters>,
}

impl Replies {
    /// Locks the session, of a queue that is made if it is not there.
    pub(super) async fn open(&self) -> Result<SessionReceiver, BrokerError> {
        match self.client.accept_session(&self.queue, &self.session).await {
            Err(error) if error.condition() == Condition::EntityNotFound => {}
            accepted => return accepted,
        }
        let made = self.client.admin().create_queue_with(&self.queue, self.made.clone()).await;
        match made {
            Ok(_) => {}
            // Another requester was faster.
            Err(error) if error.condition() == Condition::EntityAlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.client.accept_session(&self.queue, &self.session).await
    }

    /// Runs until it is stopped, or no session can be had any more, which all are told who wait.
    pub(super) async fn run(self, opened: SessionReceiver, stopped: oneshot::Receiver<()>) {
        let refused = |condition: Condition| {
            let rejection = peeklock_core::error::Rejection::new(condition, CLOSED);
            self.client.port().refuse(rejection, &self.queue)
        };
        let ended = self.take_until(opened, stopped).await;
        let why = ended.unwrap_or_else(|| refused(Condition::OperationCancelled));
        self.waiting.end(Arc::new(why));
    }

    async fn take_until(
        &self,
        opened: SessionReceiver,
        mut stopped: oneshot::Receiver<()>,
    ) -> Option<BrokerError> {
        let mut opened = Some(opened);
        loop {
            if let Some(session) = opened.take() {
                let error = tokio::select! {
                    biased;
                    _ = &mut stopped => {
                        // If that cannot be answered any more, nothing is held either.
                        let _closed = session.close().await;
                        return None;
                    }
                    error = self.take(&session) => error,
                };
                tracing::debug!(%error, "the session of replies is lost");
            }
            let again = tokio::select! {
                biased;
                _ = &mut stopped => return None,
                again = self.open() => again,
            };
            match again {
                Ok(session) => opened = Some(session),
                Err(error) if self.passes(&error) => {
                    tracing::debug!(%error, "the session of replies cannot be locked at the moment");
                    tokio::select! {
                        biased;
                        _ = &mut stopped => return None,
                        () = tokio::time::sleep(RETRY_PAUSE) => {}
                    }
                }
                Err(error) => return Some(error),
            }
        }
    }

    /// Whether the session may be had later. One that a lost connection held is locked until its grace is over; a queue
    /// that is being deleted is neither there nor can it be made; a broker that is being stopped says that the call was
    /// cancelled; a client that is closed refuses whatever it is asked.
    fn passes(&self, error: &BrokerError) -> bool {
        let condition = error.condition();
        let can_pass =
            matches!(condition, Condition::SessionCannotBeLocked | Condition::EntityNotFound)
                || (error.retryable() && condition != Condition::OperationCancelled);
        can_pass && !self.client.port().is_closed()
    }

    /// Takes replies until the session is lost.
    async fn take(&self, session: &SessionReceiver) -> BrokerError {
        let _kept = session.keep_locked();
        loop {
            let replies = match session.receive_many(REPLIES_AT_ONCE, RECEIVE_WAIT).await {
                Ok(replies) => replies,
                Err(error) => return error,
            };
            let tokens: Vec<_> = replies.iter().filter_map(Received::lock_token).collect();
            for reply in replies {
                self.waiting.give(reply);
            }
            // One that cannot be completed comes again, and nobody waits for it then.
            let _settled = session.complete_many(&tokens).await;
        }
    }
}

/// What those are told who wait when the requester is closed.
const CLOSED: &str = "the requester is closed";

/// A reply, or why there is none.
type Told = Result<Received, Arc<BrokerError>>;

/// Who waits for replies, by the id of the request. As many as there are places.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Table>);

#[derive(Default)]
struct Table {
    count: u64,
    by_id: HashMap<String, oneshot::Sender<Told>>,
    ended: Option<Arc<BrokerError>>,
}

impl Waiters {
    /// Waits for the reply to a request that is to be sent with the id given.
    pub(super) fn enter(&self, session: &str) -> Result<Waits<'_>, Arc<BrokerError>> {
        let mut table = self.table();
        if let Some(why) = &table.ended {
            return Err(Arc::clone(why));
        }
        table.count += 1;
        let id = format!("{session}-{}", table.count);
        let (told, reply) = oneshot::channel();
        table.by_id.insert(id.clone(), told);
        Ok(Waits { waiting: self, id, reply })
    }

    fn give(&self, reply: Received) {
        let id = match &reply.message().correlation_id {
            Some(MessageId::String(id)) => id.clone(),
            _ => String::new(),
        };
        let waits = self.table().by_id.remove(&id);
        if waits.is_none_or(|told| told.send(Ok(reply)).is_err()) {
            tracing::debug!(id, "no request waits for a reply; it is dropped");
        }
    }

    fn end(&self, why: Arc<BrokerError>) {
        let mut table = self.table();
        for (_, told) in table.by_id.drain() {
            // It has given up at this moment.
            let _gone = told.send(Err(Arc::clone(&why)));
        }
        table.ended = Some(why);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits; dropping it gives the reply up.
pub(super) struct Waits<'w> {
    waiting: &'w Waiters,
    id: String,
    reply: oneshot::Receiver<Told>,
}

impl Waits<'_> {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn reply(&mut self) -> Told {
        match (&mut self.reply).await {
            Ok(told) => told,
            // Nobody forgets one untold, except with the runtime.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.waiting.table().by_id.remove(&self.id);
    }
}
