//! Clients, holders of locks, and counts of all entities (CON-04, CON-24). Rights are not checked.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Broker, Entity};
use crate::clients::ClientGuard;
use crate::error::BrokerError;
use crate::findings::{ClientId, ClientPage, ClientQuery, HolderFacts};
use crate::ids::ReceiverId;
use crate::survey::{ReadableKeys, Survey};

impl Broker {
    /// Registers a client that has connected, for lists of clients and of locks. A transport keeps
    /// the guard as long as the connection.
    #[must_use]
    pub fn client(&self, transport: &'static str, peer: Option<SocketAddr>) -> ClientGuard {
        self.shared.clients.connect(transport, peer, self.now())
    }

    /// Returns a page of the connected clients, with all their links.
    pub async fn clients(&self, query: &ClientQuery) -> ClientPage {
        self.shared.clients.page(query, &ReadableKeys::ALL).await
    }

    /// Closes the connection of a client. Its deliveries do not count as failed (SET-31).
    ///
    /// # Errors
    /// `EntityNotFound` if it is not connected; `InvalidOperation` if it has no connection.
    pub fn close_client(&self, id: ClientId) -> Result<(), BrokerError> {
        self.shared.clients.close(id).map_err(|rejection| self.refuse(rejection, ""))
    }

    /// Returns the client of a receiver that holds a lock; none if it is not known any more.
    #[must_use]
    pub fn holder(&self, of: ReceiverId) -> Option<HolderFacts> {
        self.shared.clients.holder(of)
    }

    /// Returns the counts and rates of all entities, less than a second old. No entity is asked.
    pub(crate) async fn survey(&self) -> Arc<Survey> {
        let shared = &self.shared;
        shared.surveys.latest(&shared.directory, &*shared.clock).await
    }
}

impl Entity {
    /// Name of the policy that grants the use of this handle, if there is one.
    #[must_use]
    pub fn policy(&self) -> Option<Arc<str>> {
        self.pass()?.entitlement.policy()
    }
}
