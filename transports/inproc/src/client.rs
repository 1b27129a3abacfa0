//! Where handles come from.

use std::sync::Arc;

use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::contract::Action;
use peeklock_core::error::BrokerError;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{Reach, Transactions};
use peeklock_core::{Access, Broker};

use crate::{Admin, Receiver, Sender, SessionReceiver, Transaction};

/// Opens handles on a broker of this process. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    access: Access,
    transactions: Transactions,
}

impl Client {
    /// A client of this broker that may do everything.
    #[must_use]
    pub fn new(broker: &Broker) -> Self {
        Self::with_access(broker.full_access())
    }

    /// A client that may do what a principal may (SEC-17). Its handles follow a newer token
    /// ([`Access::renew`]), and end with what is granted (SEC-15).
    #[must_use]
    pub fn with_access(access: Access) -> Self {
        let transactions = Transactions::new(access.broker());
        Self { access, transactions }
    }

    /// A sender to a queue or topic, with at most 256 sends in flight; see
    /// [`Sender::with_in_flight_max`].
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub fn sender(&self, path: &str) -> Result<Sender, BrokerError> {
        Ok(Sender::new(self.access.entity_now(path, Action::Send)?))
    }

    /// A sender to the queue or topic `destination` whose messages are stored at the queue or topic
    /// `via` first and are moved by the broker (VIA-01). They are seen by no receiver of `via`, and
    /// published to nobody; one that cannot be moved goes into the transfer
    /// dead-letter queue of `via` (VIA-03).
    ///
    /// # Errors
    /// `EntityNotFound` if one of the two is not there (VIA-02), `InvalidOperation` if they are one.
    pub fn sender_via(&self, destination: &str, via: &str) -> Result<Sender, BrokerError> {
        let entity = self.access.entity_now(via, Action::SendVia)?;
        self.access.entity_now(destination, Action::BeSentTo)?;
        let destination = self.broker().transfer_destination(destination, &entity)?;
        Ok(Sender::new(entity).to(destination))
    }

    /// A receiver on a queue, a subscription (`<topic>/Subscriptions/<name>`) or a sub-queue, in
    /// peek-lock mode (RCV-05).
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
        Ok(Receiver::new(self.access.entity_now(path, Action::Receive)?, mode))
    }

    /// Locks a session of a queue or subscription in peek-lock mode, also one that has no message yet
    /// (SES-05).
    ///
    /// # Errors
    /// `EntityNotFound`; `SessionCannotBeLocked` if another receiver holds it (SES-06);
    /// `InvalidOperation` on a queue without sessions (SES-09); `ArgumentOutOfRange` for an id that is
    /// empty or longer than 128 characters.
    pub async fn accept_session(
        &self,
        path: &str,
        session_id: &str,
    ) -> Result<SessionReceiver, BrokerError> {
        self.accept_session_in(path, Some(session_id), ReceiveMode::PeekLock, TimeSpan::ZERO).await
    }

    /// Locks the session with the lowest available message, in peek-lock mode; waits for one up to
    /// `wait` (SES-07, SES-08). Dropping the future locks nothing.
    ///
    /// # Errors
    /// `ServiceTimeout` if there is none in time; `EntityNotFound`, `InvalidOperation`.
    pub async fn accept_next_session(
        &self,
        path: &str,
        wait: TimeSpan,
    ) -> Result<SessionReceiver, BrokerError> {
        self.accept_session_in(path, None, ReceiveMode::PeekLock, wait).await
    }

    /// Locks a session by id, or the next one if none is named, in either mode (SES-21).
    ///
    /// # Errors
    /// As for [`Client::accept_session`] and [`Client::accept_next_session`].
    pub async fn accept_session_in(
        &self,
        path: &str,
        session_id: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Result<SessionReceiver, BrokerError> {
        let entity = self.access.entity(path, Action::AcceptSession).await?;
        SessionReceiver::accept(entity, session_id, mode, wait).await
    }

    /// The ids of sessions of a queue in ascending order, `top` of them after `skip`; at most as many
    /// as a list may have (SES-29).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation`.
    pub async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        let entity = self.access.entity(path, Action::ListSessions).await?;
        crate::session::list(&entity, which, skip, top).await
    }

    /// Begins a transaction: sends and settlements that take effect together or not at all (TXN-01).
    /// All clones of a client together may have 1,000 of them open (TXN-17).
    ///
    /// # Errors
    /// `QuotaExceeded` if that many are open; `ArgumentError` in the Basic tier (ENT-02).
    pub fn begin_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(self.broker(), &self.transactions, Reach::OneEntity)
    }

    /// Begins a transaction that also sends to other queues and topics than the first one that it uses,
    /// by way of that one (TXN-09).
    ///
    /// # Errors
    /// As for [`Client::begin_transaction`].
    pub fn begin_cross_entity_transaction(&self) -> Result<Transaction, BrokerError> {
        Transaction::begin(self.broker(), &self.transactions, Reach::CrossEntity)
    }

    /// Management of entities.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(self.access.clone())
    }

    /// The broker.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        self.access.broker()
    }

    /// What it may do.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }
}
