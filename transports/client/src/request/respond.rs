//! The responder: sends the result of a handler back to the requester. Handlers of requests return
//! through it. Each request gets at most one response.

use std::marker::PhantomData;
use std::sync::Arc;

use peeklock_core::condition::Condition;
use peeklock_core::error::BrokerError;
use peeklock_core::message::{Message, MessageId};
use peeklock_core::time::TimeSpan;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Failure, LastSender};
use crate::port::BoxFuture;
use crate::{
    Client, Delivery, Handler, Job, JobError, JobType, Received, Refusal, SessionDelivery,
    job_message,
};

/// Delay of a request whose reply does not fit into the reply queue. Without it the request would
/// be repeated immediately, with all work of its handler, and become a dead letter before any reply
/// is taken.
const NO_ROOM_PAUSE: TimeSpan = TimeSpan::from_seconds(5);

/// Reason why a handler has no reply to a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResponseError {
    /// Sent to the requester; the request is completed.
    Failed(Failure),
    /// Settlement of the request, which may lead to a redelivery. Nothing is sent to the requester.
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

/// Abandons the request: a retry may succeed.
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
    /// Converts a function from jobs to replies into a handler for [`Client::consume`] and
    /// [`Client::consume_sessions`]. A reply goes to the ReplyTo of its request, into the session
    /// that the request names, with the request's MessageId as CorrelationId (SES-34). It is sent
    /// before the request is completed, so a request that is delivered twice may have two replies.
    /// A request without ReplyTo is handled without a reply.
    ///
    /// The requester gets a [`Failure`] if the handler returns one, if the request cannot be read,
    /// which is also dead-lettered, and if the reply is too large for its queue (`ReplyTooLarge`).
    /// If the reply queue has no room, the attempt fails and the request is delivered again some
    /// seconds later. The senders of requests choose the reply queue, so this client should have
    /// the Send right only on reply queues.
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
    ) -> BoxFuture<'static, Result<(), Refusal>> {
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
    type Handling = BoxFuture<'static, Result<(), Refusal>>;

    fn handle(&self, delivery: Delivery) -> Self::Handling {
        self.respond(
            Address::of(&delivery.message),
            Job::of(delivery.message, None, delivery.origin),
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
    type Handling = BoxFuture<'static, Result<(), Refusal>>;

    fn handle(&self, delivery: SessionDelivery) -> Self::Handling {
        let job = Job::of(delivery.message.clone(), Some(delivery.session), delivery.origin);
        self.respond(Address::of(&delivery.message), job)
    }
}

/// Converts the result of a handler to a reply, or to the settlement of the request.
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

/// Destination of the reply to a request, and properties that it copies.
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
            // The time to live of the request is the requester's timeout. Without one the reply may
            // be read at any time.
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
    /// Sends a reply if the request has an address. A transient error causes a redelivery of the
    /// request.
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
            // There may be room after replies were taken (ERR-08).
            Err(error) if error.condition() == Condition::QuotaExceeded => {
                tracing::warn!(%error, "a request waits, because there is no space for its reply");
                Err(Refusal::retry_after(NO_ROOM_PAUSE))
            }
            Err(error) if error.retryable() => Err(error.into()),
            Err(error) => {
                // The reply queue is gone, or the client lacks the right: no retry would succeed.
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
