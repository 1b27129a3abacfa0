//! Jobs of sessions: a [`Job`](super::Job) that always has its session. Handlers of consumers of
//! sessions receive it.

use std::sync::Arc;

use peeklock_core::error::BrokerError;
use serde::de::DeserializeOwned;

use super::{FromDelivery, JobError, JobType};
use crate::consumer::Origin;
use crate::{Received, Refusal, SessionDelivery, SessionReceiver, Transaction};

/// A message of a session with a typed value for a handler, which returns `Ok` to complete it, or
/// `Err` with another settlement. It is a [`Job`](super::Job) for handlers that process only
/// sessions: it always has its session. The next message of the session arrives after this one is
/// settled (SES-19, SES-20).
///
/// Actors receive it as an actor message, and functions as an argument; [`jobs`](crate::jobs)
/// converts both to handlers for [`Client::consume_sessions`](crate::Client::consume_sessions).
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_client_testing as testing; }
/// use peeklock::testing::{TestDelivery, TestSession};
/// use peeklock::{JobType, Refusal, SessionJob, jobs};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Payment {
///     cents: u32,
/// }
///
/// impl JobType for Payment {
///     const NAME: &'static str = "payment";
/// }
///
/// async fn book(payment: SessionJob<Payment>) -> Result<(), Refusal> {
///     let before: u32 = payment.session.state_json().await?.unwrap_or_default();
///     payment.session.set_state_json(&(before + payment.value.cents)).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (account, book) = (TestSession::new("ann"), jobs(book));
/// for cents in [250, 300] {
///     TestDelivery::of_job(&Payment { cents })?.given_in(&account, &book).await;
/// }
/// assert_eq!(account.state().unwrap(), "550");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct SessionJob<T> {
    /// The value that was sent.
    pub value: T,
    /// The message with the value. A job does not deref to it: `job.message.delivery_count()`.
    pub message: Received,
    /// Its session, which the consumer holds; see [`SessionDelivery::session`].
    pub session: Arc<SessionReceiver>,
    origin: Origin,
}

impl<T> SessionJob<T> {
    /// As [`SessionDelivery::transaction`].
    ///
    /// # Errors
    /// As there.
    pub async fn transaction(&self) -> Result<Transaction, BrokerError> {
        self.origin.transaction(&self.message).await
    }

    /// As [`SessionDelivery::complete`].
    ///
    /// # Errors
    /// As there.
    pub async fn complete(&self) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Ok(())).await
    }

    /// As [`SessionDelivery::refuse`].
    ///
    /// # Errors
    /// As there.
    pub async fn refuse(&self, refusal: Refusal) -> Result<(), BrokerError> {
        self.origin.settle(&self.message, Err(refusal)).await
    }
}

impl<T: JobType + DeserializeOwned> SessionJob<T> {
    /// Reads a job from a delivery of a session.
    ///
    /// # Errors
    /// When the message is no job of this type.
    pub fn read(delivery: SessionDelivery) -> Result<Self, JobError> {
        let SessionDelivery { message, session, origin } = delivery;
        Ok(Self { value: message.job()?, message, session, origin })
    }
}

impl<T: JobType + DeserializeOwned> FromDelivery<SessionDelivery> for SessionJob<T> {
    fn from_delivery(delivery: SessionDelivery) -> Result<Self, Refusal> {
        Ok(Self::read(delivery)?)
    }
}
