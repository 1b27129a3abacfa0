//! Request and reply as a call (SES-34): the requester. `respond.rs` has the responder,
//! `replies.rs` the distribution of replies.
//!
//! ```text
//!  requester ──► request: ReplyTo, ReplyToSessionId, MessageId ──► queue ──► Responder ──► handler
//!      ▲                                                                          │
//!      └── session of its own ◄── reply: SessionId, CorrelationId ◄── reply queue ┘
//! ```
//!
//! A task of the requester takes all replies out of its session; replies without a waiting request
//! are dropped.

mod replies;
mod respond;

use std::sync::{Arc, Mutex, PoisonError};

use peeklock_core::description::QueueUpdate;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::time::TimeSpan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot, watch};

use self::replies::{Replies, Waiters};
pub use self::respond::{Responder, ResponseError};
use crate::{Client, JobError, JobType, Received, Refusal, Sender, job_message};

/// Options of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequesterOptions {
    /// Maximum number of requests that wait for replies at a time; a further request waits for a
    /// place, within its timeout. At least 1; 256 by default.
    pub waiting_max: usize,
    /// AutoDeleteOnIdle of the reply queue if the requester creates it: at least 5 minutes
    /// (TMP-03), which is the default.
    pub reply_queue_idle: TimeSpan,
}

impl Default for RequesterOptions {
    fn default() -> Self {
        Self { waiting_max: 256, reply_queue_idle: TimeSpan::from_minutes(5) }
    }
}

impl RequesterOptions {
    /// Returns the defaults with another number of concurrent requests.
    ///
    /// ```
    /// # use peeklock_client as peeklock;
    /// use peeklock::RequesterOptions;
    ///
    /// assert_eq!(RequesterOptions::at_once(8).waiting_max, 8);
    /// ```
    #[must_use]
    pub fn at_once(waiting_max: usize) -> Self {
        Self { waiting_max, ..Self::default() }
    }
}

/// Reason why a request has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request could not be sent.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The request cannot be written as JSON.
    #[error("the request cannot be written: {0}")]
    Body(#[source] serde_json::Error),
    /// No reply arrived in time. The request may have been handled.
    #[error("no reply arrived in time")]
    Timeout,
    /// The responder returned a failure instead of a reply.
    #[error("the responder failed: {0}")]
    Failed(#[source] Failure),
    /// The reply is not of the expected type.
    #[error("the reply cannot be read: {0}")]
    Reply(#[source] JobError),
    /// The requester receives no more replies, for this reason: its queue or its client is gone.
    #[error("cannot receive replies: {0}")]
    Closed(#[source] Arc<BrokerError>),
}

/// Abandons the message of the handler that made the request.
impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::from_error(error)
    }
}

/// Answer of a responder that has no reply.
///
/// ```
/// # use peeklock_client as peeklock;
/// use peeklock::Failure;
///
/// let failure = Failure::new("OutOfStock", "there is no coffee left");
/// assert_eq!(failure.to_string(), "OutOfStock: there is no coffee left");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}: {description}")]
pub struct Failure {
    /// Reason, for programs.
    pub reason: String,
    /// Description, for people.
    pub description: String,
}

impl Failure {
    /// Creates a failure with a reason for programs and a description for people.
    #[must_use]
    pub fn new(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self { reason: reason.into(), description: description.into() }
    }
}

impl JobType for Failure {
    const NAME: &'static str = "peeklock.failure";
}

/// Sends requests to responders and waits for their replies. Cheap to clone; clones share the
/// session for replies, and the limit on waiting requests. Dropping the last clone gives the
/// session back.
///
/// Requests carry their timeout as TimeToLive, and replies the remaining time. Late messages are
/// dropped by the requester or by the broker.
#[derive(Clone)]
pub struct Requester {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    reply_to: Box<str>,
    session: Box<str>,
    waiting: Arc<Waiters>,
    places: Semaphore,
    senders: LastSender,
    /// Dropped to stop the task that takes replies.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: watch::Receiver<bool>,
}

impl Client {
    /// Opens a requester that receives replies from a queue with sessions. Many requesters can
    /// share the queue: each has its own session. An absent queue is created as a temporary one
    /// that is deleted when unused for a while (TMP-20); that needs the Manage right. Call it
    /// inside a tokio or actix runtime; the requester runs a task there.
    ///
    /// # Errors
    /// `InvalidOperation` for a queue without sessions (SES-09); as for
    /// [`crate::Admin::create_queue_with`].
    ///
    /// ```
    /// # use peeklock_client::{Client, JobType, RequesterOptions};
    /// # use peeklock_core::time::TimeSpan;
    /// # #[derive(serde::Serialize)]
    /// # struct Order { cups: u32 }
    /// # impl JobType for Order { const NAME: &'static str = "order"; }
    /// # #[derive(serde::Deserialize)]
    /// # struct Total { cents: u32 }
    /// # impl JobType for Total { const NAME: &'static str = "total"; }
    /// # async fn ask(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let requester = client.requester("replies", RequesterOptions::default()).await?;
    /// let wait = TimeSpan::from_seconds(5);
    /// let total: Total = requester.request("orders", &Order { cups: 2 }, wait).await?;
    /// println!("{} cents", total.cents);
    /// requester.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn requester(
        &self,
        reply_to: &str,
        options: RequesterOptions,
    ) -> Result<Requester, BrokerError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            let detail = format!("cannot get random bytes: {error}");
            self.port().refuse(Rejection::internal(detail), reply_to)
        })?;
        let session = format!("{:032x}", u128::from_be_bytes(random));
        let waiting = Arc::new(Waiters::default());
        let replies = Replies {
            client: self.clone(),
            queue: reply_to.into(),
            session: session.as_str().into(),
            made: QueueUpdate {
                requires_session: Some(true),
                auto_delete_on_idle: Some(options.reply_queue_idle),
                ..QueueUpdate::default()
            },
            waiting: Arc::clone(&waiting),
        };
        let opened = replies.open().await?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = watch::channel(false);
        tokio::spawn(async move {
            replies.run(opened, stopped).await;
            // Ignores the absence of a receiver.
            end.send_replace(true);
        });
        let shared = Shared {
            client: self.clone(),
            reply_to: reply_to.into(),
            session: session.into(),
            waiting,
            places: Semaphore::new(options.waiting_max.clamp(1, Semaphore::MAX_PERMITS)),
            senders: LastSender::default(),
            stop: Mutex::new(Some(stop)),
            ended,
        };
        Ok(Requester { shared: Arc::new(shared) })
    }
}

impl Requester {
    /// Sends a job to a queue or topic and waits for its reply, in total for at most `timeout`,
    /// which is at least 1 ms. Dropping the future abandons the reply.
    ///
    /// # Errors
    /// Returns [`RequestError`]. Only after `Failed` and `Reply` the request was certainly handled.
    ///
    /// ```
    /// # use peeklock_client::{JobType, RequestError, Requester};
    /// # use peeklock_core::time::TimeSpan;
    /// # #[derive(serde::Serialize)]
    /// # struct Order { cups: u32 }
    /// # impl JobType for Order { const NAME: &'static str = "order"; }
    /// # #[derive(serde::Deserialize)]
    /// # struct Total { cents: u32 }
    /// # impl JobType for Total { const NAME: &'static str = "total"; }
    /// # async fn ask(requester: Requester) {
    /// let wait = TimeSpan::from_seconds(5);
    /// match requester.request::<_, Total>("orders", &Order { cups: 2 }, wait).await {
    ///     Ok(total) => println!("{} cents", total.cents),
    ///     Err(RequestError::Failed(failure)) if failure.reason == "OutOfStock" => println!("none left"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// # }
    /// ```
    pub async fn request<T, R>(
        &self,
        queue: &str,
        job: &T,
        timeout: impl Into<TimeSpan>,
    ) -> Result<R, RequestError>
    where
        T: JobType + Serialize,
        R: JobType + DeserializeOwned,
    {
        let timeout = timeout.into().max(TimeSpan::from_ms(1));
        let Shared { reply_to, session, .. } = &*self.shared;
        let message = job_message(job)
            .map_err(|error| RequestError::Body(error.source))?
            .with_reply_to(&**reply_to)
            .with_reply_to_session_id(&**session)
            .with_time_to_live(timeout);
        let asked = self.ask(queue, message);
        let reply = tokio::time::timeout(timeout.to_std(), asked).await;
        let reply = reply.map_err(|_| RequestError::Timeout)??;
        if reply.message().subject.as_deref() == Some(Failure::NAME) {
            return Err(reply.job().map_or_else(RequestError::Reply, RequestError::Failed));
        }
        reply.job().map_err(RequestError::Reply)
    }

    async fn ask(
        &self,
        queue: &str,
        message: peeklock_core::message::Message,
    ) -> Result<Received, RequestError> {
        let Shared { client, waiting, places, senders, .. } = &*self.shared;
        // The semaphore is never closed.
        let _place = places.acquire().await.ok();
        let mut waits = waiting.enter(&self.shared.session).map_err(RequestError::Closed)?;
        let message = message.with_message_id(waits.id());
        senders.to(client, queue)?.send(message).await?;
        waits.reply().await.map_err(RequestError::Closed)
    }

    /// Gives the session back. Later requests of clones fail, because the requester is closed.
    pub async fn close(self) {
        self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A runtime that is shutting down ends the task without a report.
        self.shared.ended.clone().wait_for(|ended| *ended).await.ok();
    }
}

/// Cache of the last sender: most messages go to the same entity.
#[derive(Default)]
struct LastSender(Mutex<Option<Sender>>);

impl LastSender {
    fn to(&self, client: &Client, path: &str) -> Result<Sender, BrokerError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = last.as_ref().filter(|sender| sender.path() == path) {
            return Ok(sender.clone());
        }
        let sender = client.sender(path)?;
        *last = Some(sender.clone());
        Ok(sender)
    }
}
