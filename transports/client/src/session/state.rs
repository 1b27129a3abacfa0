//! The state of a session as JSON of a type.

use std::sync::Arc;

use peeklock_core::error::{BrokerError, Quoted};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Refusal, SessionReceiver};

/// Why the state of a session is not read, or not set, as a value of a type.
///
/// In a handler, `?` gives the message back: it may not be to blame for what is remembered of those before it. So
/// MaxDeliveryCount bounds how often that happens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// What [`SessionReceiver::state`] and [`SessionReceiver::set_state`] fail with.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The state is not the JSON of the type.
    #[error("the state of session {} is not the expected JSON: {source}", Quoted(session))]
    Read {
        /// The id of the session.
        session: Arc<str>,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The value cannot be written as JSON; the state is as before.
    #[error("the state of session {} cannot be written as JSON: {source}", Quoted(session))]
    Write {
        /// The id of the session.
        session: Arc<str>,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// Abandons the message: the state of the session may not be its fault.
impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::failed(error)
    }
}

impl SessionReceiver {
    /// Reads the state of the session as a value of a type; none at first (SES-24).
    ///
    /// # Errors
    /// [`StateError::Broker`] as for [`SessionReceiver::state`]; [`StateError::Read`] for a state that is not the JSON of
    /// the type.
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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

    /// Sets the state of the session to the JSON of a value. It stays for the next holder (SES-25);
    /// [`SessionReceiver::set_state`] with none clears it.
    ///
    /// # Errors
    /// [`StateError::Broker`] as for [`SessionReceiver::set_state`]; [`StateError::Write`] for a value that cannot be
    /// written as JSON.
    pub async fn set_state_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), StateError> {
        let state = serde_json::to_vec(value)
            .map_err(|source| StateError::Write { session: Arc::clone(&self.session), source })?;
        Ok(self.set_state(Some(state.into())).await?)
    }
}
