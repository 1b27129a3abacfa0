//! Typed access to the state of a session as JSON. It adds methods to
//! [`SessionReceiver`](crate::SessionReceiver).

use std::sync::Arc;

use peeklock_core::error::{BrokerError, Quoted};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Refusal, SessionReceiver};

/// Reason why the state of a session cannot be read or set as a value of a type.
///
/// In a handler, `?` abandons the message, because the stored state may be at fault instead of the
/// message. MaxDeliveryCount bounds the number of attempts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// An error of [`SessionReceiver::state`] or [`SessionReceiver::set_state`].
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The state is not the JSON of the type.
    #[error("the state of session {} is not the expected JSON: {source}", Quoted(session))]
    Read {
        /// The id of the session.
        session: Arc<str>,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The value cannot be written as JSON; the state is unchanged.
    #[error("the state of session {} cannot be written as JSON: {source}", Quoted(session))]
    Write {
        /// The id of the session.
        session: Arc<str>,
        /// The error of the serializer.
        #[source]
        source: serde_json::Error,
    },
}

/// Abandons the message, because the stored state may be at fault.
impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::from_error(error)
    }
}

impl SessionReceiver {
    /// Reads the state of the session as a value of a type; `None` if it is not set (SES-24).
    ///
    /// # Errors
    /// [`StateError::Broker`] as for [`SessionReceiver::state`]; [`StateError::Read`] if the state
    /// is not JSON of the type.
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
    /// use peeklock::SessionDelivery;
    /// use peeklock::message::Message;
    /// use peeklock::testing::{TestDelivery, TestSession};
    ///
    /// #[derive(Default, serde::Serialize, serde::Deserialize)]
    /// struct Progress {
    ///     steps: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let count = |step: SessionDelivery| async move {
    ///     let mut progress: Progress = step.session.state_json().await?.unwrap_or_default();
    ///     progress.steps += 1;
    ///     step.session.set_state_json(&progress).await?;
    ///     Ok(())
    /// };
    /// let order = TestSession::new("order-7");
    /// for step in ["picked", "paid"] {
    ///     TestDelivery::of(Message::new(step)).given_in(&order, &count).await;
    /// }
    /// assert_eq!(order.state().unwrap(), r#"{"steps":2}"#);
    /// # }
    /// ```
    pub async fn state_json<T: DeserializeOwned>(&self) -> Result<Option<T>, StateError> {
        let Some(state) = self.state().await? else { return Ok(None) };
        let value = serde_json::from_slice(&state).map(Some);
        value.map_err(|source| StateError::Read { session: Arc::clone(&self.session), source })
    }

    /// Sets the state of the session to the JSON of a value. It stays for the next holder (SES-25).
    /// [`SessionReceiver::set_state`] with `None` clears it.
    ///
    /// # Errors
    /// [`StateError::Broker`] as for [`SessionReceiver::set_state`]; [`StateError::Write`] if the
    /// value cannot be written as JSON.
    pub async fn set_state_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), StateError> {
        let state = serde_json::to_vec(value)
            .map_err(|source| StateError::Write { session: Arc::clone(&self.session), source })?;
        Ok(self.set_state(Some(state.into())).await?)
    }
}
