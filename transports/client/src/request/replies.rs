//! The task that takes replies out of the requester's session, and gives each reply to its waiting
//! request.

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

/// Maximum number of replies per receive.
const REPLIES_AT_ONCE: u32 = 32;
/// Time limit of a receive, which is then repeated.
const RECEIVE_WAIT: TimeSpan = TimeSpan::from_seconds(60);
/// Pause before a lost session is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The reply queue and session of a requester.
pub(super) struct Replies {
    pub(super) client: Client,
    pub(super) queue: Box<str>,
    pub(super) session: Box<str>,
    /// Properties of the queue if it must be created.
    pub(super) made: QueueUpdate,
    pub(super) waiting: Arc<Waiters>,
}

impl Replies {
    /// Locks the session, and creates an absent queue first.
    pub(super) async fn open(&self) -> Result<SessionReceiver, BrokerError> {
        match self.client.accept_session(&self.queue, &self.session).await {
            Err(error) if error.condition() == Condition::EntityNotFound => {}
            accepted => return accepted,
        }
        let made = self.client.admin().create_queue_with(&self.queue, self.made.clone()).await;
        match made {
            Ok(_) => {}
            // Another requester created it first.
            Err(error) if error.condition() == Condition::EntityAlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.client.accept_session(&self.queue, &self.session).await
    }

    /// Runs until it is stopped, or the session is lost permanently. All waiting requests get that
    /// error.
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
                        // If this cannot be answered, no session is held either.
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
                Err(error) if self.is_transient(&error) => {
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

    /// Returns whether the session may become available later. A session that a lost connection
    /// held is locked until the grace period is over. A queue that is being deleted neither exists
    /// nor can be created. A broker that is stopping reports the call as cancelled. A closed client
    /// refuses every call.
    fn is_transient(&self, error: &BrokerError) -> bool {
        let condition = error.condition();
        let can_pass =
            matches!(condition, Condition::SessionCannotBeLocked | Condition::EntityNotFound)
                || (error.retryable() && condition != Condition::OperationCancelled);
        can_pass && !self.client.port().is_closed()
    }

    /// Takes replies until the session is lost.
    async fn take(&self, session: &SessionReceiver) -> BrokerError {
        let _guard = session.keep_locked();
        loop {
            let replies = match session.receive_many(REPLIES_AT_ONCE, RECEIVE_WAIT).await {
                Ok(replies) => replies,
                Err(error) => return error,
            };
            let tokens: Vec<_> = replies.iter().filter_map(Received::lock_token).collect();
            for reply in replies {
                self.waiting.give(reply);
            }
            // A reply that cannot be completed is delivered again, and then no request waits for
            // it.
            let _settled = session.complete_many(&tokens).await;
        }
    }
}

/// Error text for requests that wait when the requester is closed.
const CLOSED: &str = "the requester is closed";

/// A reply, or the reason for its absence.
type ReplyResult = Result<Received, Arc<BrokerError>>;

/// Waiting requests by id. The limit of the requester bounds their number.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Table>);

#[derive(Default)]
struct Table {
    count: u64,
    by_id: HashMap<String, oneshot::Sender<ReplyResult>>,
    ended: Option<Arc<BrokerError>>,
}

impl Waiters {
    /// Registers a new request, with the id that its message must have.
    pub(super) fn enter(&self, session: &str) -> Result<WaitingRequest<'_>, Arc<BrokerError>> {
        let mut table = self.table();
        if let Some(why) = &table.ended {
            return Err(Arc::clone(why));
        }
        table.count += 1;
        let id = format!("{session}-{}", table.count);
        let (sender, reply) = oneshot::channel();
        table.by_id.insert(id.clone(), sender);
        Ok(WaitingRequest { waiting: self, id, reply })
    }

    fn give(&self, reply: Received) {
        let id = match &reply.message().correlation_id {
            Some(MessageId::String(id)) => id.clone(),
            _ => String::new(),
        };
        let waits = self.table().by_id.remove(&id);
        if waits.is_none_or(|sender| sender.send(Ok(reply)).is_err()) {
            tracing::debug!(id, "no request waits for a reply; it is dropped");
        }
    }

    fn end(&self, why: Arc<BrokerError>) {
        let mut table = self.table();
        for (_, sender) in table.by_id.drain() {
            // The request may have been dropped at this moment.
            let _gone = sender.send(Err(Arc::clone(&why)));
        }
        table.ended = Some(why);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiting request; dropping it abandons the reply.
pub(super) struct WaitingRequest<'w> {
    waiting: &'w Waiters,
    id: String,
    reply: oneshot::Receiver<ReplyResult>,
}

impl WaitingRequest<'_> {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn reply(&mut self) -> ReplyResult {
        match (&mut self.reply).await {
            Ok(sender) => sender,
            // The sender is dropped unused only when the runtime ends.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.waiting.table().by_id.remove(&self.id);
    }
}
