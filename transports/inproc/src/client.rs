//! Where handles come from.

use peeklock_core::Broker;
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::BrokerError;

use crate::{Admin, Receiver, Sender};

/// Opens handles on a broker of this process. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    broker: Broker,
}

impl Client {
    /// A client of this broker.
    #[must_use]
    pub fn new(broker: &Broker) -> Self {
        Self { broker: broker.clone() }
    }

    /// A sender to a queue, with at most 256 sends in flight; see [`Sender::with_in_flight_max`].
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn sender(&self, path: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.broker.entity(path)?))
    }

    /// A receiver on a queue or sub-queue, in peek-lock mode (RCV-05).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn receiver(&self, path: &str) -> Result<Receiver, BrokerError> {
        self.receiver_in(path, ReceiveMode::PeekLock)
    }

    /// A receiver in either mode (RCV-01). Receive-and-delete is for data of low value only: a
    /// message that was handed out is gone, whatever becomes of it (RCV-04).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn receiver_in(&self, path: &str, mode: ReceiveMode) -> Result<Receiver, BrokerError> {
        Ok(Receiver::new(self.broker.entity(path)?, mode))
    }

    /// Management of entities.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(self.broker.clone())
    }

    /// The broker.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }
}
