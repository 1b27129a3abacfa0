//! The port of a client in the broker's process: requests become commands to the entities.
//! [`Client::new`](crate::Client::new) uses it.

mod deliveries;
mod link;

use std::sync::Arc;

use peeklock_core::activity::PendingWork;
use peeklock_core::clients::{ClientGuard, LinkIdentity};
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::contract::Action;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::inspect::LinkRole;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{PartOutcome, Reach, TransactionId, Transactions};
use peeklock_core::{Access, Broker, Entity};

pub use self::deliveries::PushedLink;
use self::link::EntityLink;
use crate::Client;
use crate::port::{
    AcceptedSession, BoxAnswer, BoxFuture, Deliveries, Link, Managed, Management, Port,
};

/// Port of a client in the process of its broker, with an access to it.
pub struct InProcess {
    access: Access,
    /// The client in the list of clients.
    client: ClientGuard,
    transactions: Transactions,
}

impl Client {
    /// Creates a client with all rights on a broker in this process. It needs no actix runtime, and
    /// its use is not authenticated (SEC-17).
    #[must_use]
    pub fn new(broker: &Broker) -> Self {
        Self::with_access(broker.full_access())
    }

    /// Creates a client with the rights of a principal (SEC-17). Its handles follow a newer token
    /// ([`Access::renew`]), and end with the grant (SEC-15).
    #[must_use]
    pub fn with_access(access: Access) -> Self {
        Self::over(InProcess::over(access))
    }
}

impl Port for InProcess {
    fn now(&self) -> Timestamp {
        self.access.broker().now()
    }

    fn refuse(&self, rejection: Rejection, entity: &str) -> BrokerError {
        self.access.broker().refuse(rejection, entity)
    }

    fn sender(&self, path: &str, via: Option<&str>) -> Result<Arc<dyn Link>, BrokerError> {
        let Some(via) = via else {
            let entity = self.access.entity_now(path, Action::Send)?;
            let mut link = self.link(entity, ReceiveMode::PeekLock);
            self.list(&mut link, LinkRole::Sender);
            return Ok(Arc::new(link));
        };
        let entity = self.access.entity_now(via, Action::SendVia)?;
        let (entity, destination) = self.access.transfer_destination_now(path, &entity)?;
        let mut link = self.link(entity, ReceiveMode::PeekLock);
        link.destination = Some(destination);
        self.list(&mut link, LinkRole::Sender);
        Ok(Arc::new(link))
    }

    fn receiver(&self, path: &str, mode: ReceiveMode) -> Result<Arc<dyn Link>, BrokerError> {
        let mut link = self.link(self.access.entity_now(path, Action::Receive)?, mode);
        link.holder = Some(self.access.broker().receiver_id());
        self.list(&mut link, LinkRole::Receiver);
        Ok(Arc::new(link))
    }

    fn session<'a>(
        &'a self,
        path: &'a str,
        session_id: Option<&'a str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> BoxAnswer<'a, AcceptedSession> {
        Box::pin(async move {
            let entity = self.access.entity(path, Action::AcceptSession).await?;
            let mut link = self.link(entity, mode);
            let receiver = self.access.broker().receiver_id();
            let session = session_id.map(Box::from);
            let command = Command::AcceptSession { session, receiver, mode, wait };
            match link.entity.call(command).await? {
                Outcome::SessionAccepted { session, locked_until, session_entrance, .. } => {
                    link.entity = link.entity.with_session_entrance(session_entrance);
                    link.holder = Some(receiver);
                    link.session = Some(Arc::clone(&session));
                    self.list(&mut link, LinkRole::Receiver);
                    Ok(AcceptedSession { link: Arc::new(link), session_id: session, locked_until })
                }
                other => Err(link.unexpected(&other)),
            }
        })
    }

    fn deliveries<'a>(
        &'a self,
        path: &'a str,
        unsettled_max: u32,
    ) -> BoxAnswer<'a, Box<dyn Deliveries>> {
        Box::pin(async move {
            Ok(Box::new(self.pushed(path, unsettled_max).await?) as Box<dyn Deliveries>)
        })
    }

    fn manage<'a>(&'a self, path: &'a str, request: Management) -> BoxAnswer<'a, Managed> {
        Box::pin(self.access.manage(path, request))
    }

    fn begin(&self, reach: Reach) -> BoxAnswer<'_, TransactionId> {
        let begun = self.transactions.begin(reach);
        Box::pin(async move { begun.map_err(|rejection| self.refuse(rejection, "")) })
    }

    fn commit(&self, transaction: TransactionId, _: u32) -> BoxAnswer<'_, Vec<PartOutcome>> {
        Box::pin(async move {
            let ending = self.transactions.commit(transaction);
            self.transactions.forget(transaction);
            let ending = ending.map_err(|rejection| self.refuse(rejection, ""))?;
            let Some(ending) = ending else { return Ok(Vec::new()) };
            match ending.entity.call(ending.command).await? {
                Outcome::Committed(parts) => Ok(parts),
                other => {
                    let detail = format!("unexpected answer {other:?}");
                    Err(ending.entity.refuse(Rejection::internal(detail)))
                }
            }
        })
    }

    fn roll_back(&self, transaction: TransactionId) -> BoxAnswer<'_, ()> {
        let ended = self.transactions.roll_back(transaction);
        self.transactions.forget(transaction);
        Box::pin(async move { ended.map_err(|rejection| self.refuse(rejection, "")) })
    }

    fn forget(&self, transaction: TransactionId) {
        self.transactions.forget(transaction);
    }

    fn reached(&self, is_reached: bool) -> BoxFuture<'_, ()> {
        if is_reached { Box::pin(std::future::ready(())) } else { Box::pin(std::future::pending()) }
    }

    fn pending_work(&self) -> Option<PendingWork> {
        self.access.broker().pending_work()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl InProcess {
    /// The port of a client with the rights of `access`.
    #[must_use]
    pub fn over(access: Access) -> Arc<Self> {
        let transactions = Transactions::new(access.broker());
        let client = access.broker().client("in-process", None);
        Arc::new(Self { access, client, transactions })
    }

    /// Attaches a link with pushed deliveries.
    ///
    /// # Errors
    /// When the entity is absent, or the access to it.
    pub async fn pushed(&self, path: &str, unsettled_max: u32) -> Result<PushedLink, BrokerError> {
        let entity = self.access.entity(path, Action::Receive).await?;
        let mut link = self.link(entity, ReceiveMode::PeekLock);
        link.holder = Some(self.access.broker().receiver_id());
        self.list(&mut link, LinkRole::Receiver);
        PushedLink::attach(link, unsettled_max).await
    }

    /// Adds a link to the list of clients (CON-24).
    fn list(&self, link: &mut EntityLink, role: LinkRole) {
        self.client.note_activity(self.access.broker().now());
        let identity = LinkIdentity {
            receiver: link.holder.unwrap_or_else(|| self.access.broker().receiver_id()),
            path: link.entity.path().into(),
            role,
            mode: (role == LinkRole::Receiver).then_some(link.mode()),
            policy: link.entity.policy(),
        };
        link.listed = self.client.link(identity);
        if let (Some(listed), Some(session)) = (&link.listed, &link.session) {
            listed.set_session(session);
        }
    }

    /// Returns a link that only sends.
    fn link(&self, entity: Entity, mode: ReceiveMode) -> EntityLink {
        EntityLink::new(entity, self.transactions.clone(), mode)
    }
}
