//! Answers requests: what a handler returns goes to who asked.

use std::marker::PhantomData;
use std::sync::Arc;

use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;
use peeklock_core::message::{Message, MessageId};
use peeklock_core::time::TimeSpan;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Failure, LastSender};
use crate::port::Waiting;
use crate::{
    Client, Delivery, Handler, Job, JobError, JobType, Received, Refusal, SessionDelivery,
    job_message,
};

/// For how long a request rests for whose reply its queue has no room. At once it would come again as often as it may within a
/// moment, each time with all that its handler does, and be a dead letter before anybody has taken a reply.
const NO_ROOM_PAUSE: TimeSpan = TimeSpan::from_seconds(5);

/// Why a handler has no reply to a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResponseError {
    /// The requester is told, and the request is done with.
    Failed(Failure),
    /// The requester is told nothing for now: this becomes of the request, which comes again or does not.
    Refused(Refusal),
}

impl From<Failure> for ResponseError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Refusal> for ResponseError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What a broker refuses may go well at the next attempt: the request is abandoned.
impl From<BrokerError> for ResponseError {
    fn from(error: BrokerError) -> Self {
        Self::Refused(error.into())
    }
}

/// A handler that sends replies; made by [`Client::responder`].
pub struct Responder<T, H> {
    handler: H,
    replier: Replier,
    of: PhantomData<fn() -> T>,
}

impl Client {
    /// Makes a function from jobs to replies into a handler for [`Client::consume`] and [`Client::consume_sessions`].
    /// A reply goes to the ReplyTo of its request, into the session that it names, with its MessageId as
    /// CorrelationId (SES-34), and before the request is completed; so a request that comes twice may be replied to twice.
    /// A request without ReplyTo is handled and not replied to.
    ///
    /// A [`Failure`] is told to the requester, and so is a request that cannot be read, which is
    /// dead-lettered besides, and a reply that is larger than its queue takes (`ReplyTooLarge`). A reply for which its queue
    /// has no room is a failed attempt: the request comes again some seconds later. Whoever may send requests says where this client sends to: it should have the Send right
    /// on reply queues and nothing more.
    ///
    /// ```
    /// # use peeklock_client::{Client, ConsumerOptions, Failure, Job, JobType, ResponseError};
    /// # #[derive(serde::Deserialize)]
    /// # struct Order { cups: u32 }
    /// # impl JobType for Order { const NAME: &'static str = "order"; }
    /// # #[derive(serde::Serialize)]
    /// # struct Total { cents: u32 }
    /// # impl JobType for Total { const NAME: &'static str = "total"; }
    /// # async fn serve(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let price = client.responder(|order: Job<Order>| async move {
    ///     if order.value.cups > 9 {
    ///         return Err(Failure::new("OutOfStock", "there is not so much coffee").into());
    ///     }
    ///     Ok::<_, ResponseError>(Total { cents: order.value.cups * 250 })
    /// });
    /// let consumer = client.consume("orders", price, ConsumerOptions::default()).await?;
    /// # consumer.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn responder<T, R, H, F>(&self, handler: H) -> Responder<T, H>
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, ResponseError>> + Send + 'static,
    {
        let replier = Replier { client: self.clone(), senders: Arc::default() };
        Responder { handler, replier, of: PhantomData }
    }
}

impl<T, R, H, F> Responder<T, H>
where
    T: JobType + DeserializeOwned + 'static,
    R: JobType + Serialize + Send + 'static,
    H: Fn(Job<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ResponseError>> + Send + 'static,
{
    fn respond(
        &self,
        address: Option<Address>,
        job: Result<Job<T>, JobError>,
    ) -> Waiting<'static, Result<(), Refusal>> {
        let replier = self.replier.clone();
        match job {
            Ok(job) => {
                let handling = (self.handler)(job);
                Box::pin(async move {
                    let reply = reply_of(handling.await)?;
                    replier.send(address, reply).await
                })
            }
            Err(error) => Box::pin(async move {
                let failure = Failure::new(error.reason(), error.to_string());
                replier.send(address, job_message(&failure)?).await?;
                Err(error.into())
            }),
        }
    }
}

impl<T, R, H, F> Handler<Delivery> for Responder<T, H>
where
    T: JobType + DeserializeOwned + 'static,
    R: JobType + Serialize + Send + 'static,
    H: Fn(Job<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ResponseError>> + Send + 'static,
{
    type Handling = Waiting<'static, Result<(), Refusal>>;

    fn handle(&self, delivery: Delivery) -> Self::Handling {
        self.respond(
            Address::of(&delivery.message),
            Job::read(delivery.message, None, delivery.origin),
        )
    }
}

impl<T, R, H, F> Handler<SessionDelivery> for Responder<T, H>
where
    T: JobType + DeserializeOwned + 'static,
    R: JobType + Serialize + Send + 'static,
    H: Fn(Job<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, ResponseError>> + Send + 'static,
{
    type Handling = Waiting<'static, Result<(), Refusal>>;

    fn handle(&self, delivery: SessionDelivery) -> Self::Handling {
        let job = Job::read(delivery.message.clone(), Some(delivery.session), delivery.origin);
        self.respond(Address::of(&delivery.message), job)
    }
}

/// What is sent for what a handler has come to, or what else becomes of the request.
fn reply_of<R: JobType + Serialize>(
    response: Result<R, ResponseError>,
) -> Result<Message, Refusal> {
    match response {
        Ok(reply) => job_message(&reply).or_else(|error| {
            Ok(job_message(&Failure::new("ReplyNotWritable", error.source.to_string()))?)
        }),
        Err(ResponseError::Failed(failure)) => Ok(job_message(&failure)?),
        Err(ResponseError::Refused(refusal)) => Err(refusal),
    }
}

/// Where the reply to a request goes, and what it carries.
struct Address {
    queue: String,
    session: Option<String>,
    correlation: Option<MessageId>,
    expires_at: Option<peeklock_core::time::Timestamp>,
}

impl Address {
    fn of(request: &Received) -> Option<Self> {
        let message = request.message();
        Some(Self {
            queue: message.reply_to.clone()?,
            session: message.reply_to_session_id.clone(),
            correlation: message.message_id.clone(),
            // Who waits says so by the time to live of the request; one that sets none may ask for the reply at any time.
            expires_at: request.own_time_to_live().and(request.expires_at()),
        })
    }
}

#[derive(Clone)]
struct Replier {
    client: Client,
    senders: Arc<LastSender>,
}

impl Replier {
    /// Sends a reply, if somebody wants one. What may go well later has the request come again.
    async fn send(&self, address: Option<Address>, reply: Message) -> Result<(), Refusal> {
        let Some(address) = address else { return Ok(()) };
        let sent = match self.send_to(&address, reply).await {
            Err(error) if error.condition() == Condition::MessageSizeExceeded => {
                let failure = Failure::new("ReplyTooLarge", error.detail());
                self.send_to(&address, job_message(&failure)?).await
            }
            sent => sent,
        };
        match sent {
            // There may be room when somebody has taken replies (ERR-08).
            Err(error) if error.condition() == Condition::QuotaExceeded => {
                tracing::warn!(%error, "a request waits, because there is no space for its reply");
                Err(Refusal::retry_after(NO_ROOM_PAUSE))
            }
            Err(error) if error.retryable() => Err(error.into()),
            Err(error) => {
                // The reply queue is gone, or closed to this client: no attempt will do better.
                tracing::warn!(%error, "a reply is dropped");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn send_to(&self, address: &Address, reply: Message) -> Result<(), BrokerError> {
        let expires_at = address.expires_at;
        let reply = Message {
            session_id: address.session.clone(),
            correlation_id: address.correlation.clone(),
            time_to_live: expires_at
                .map(|at| at.since(self.client.now()).max(TimeSpan::from_ms(1))),
            ..reply
        };
        self.senders.to(&self.client, &address.queue)?.send(reply).await.map(drop)
    }
}
