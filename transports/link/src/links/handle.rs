//! Traits for the parts of a broker that links use, so that tests can replace the broker. The
//! implementations for the broker only forward; the handle is `Entity` in `broker/entity.rs` of the
//! core.

use std::sync::Arc;

use peeklock_core::contract::Action;
use peeklock_core::ids::{ReceiverId, Ticket};
use peeklock_core::inspect::LinkRole;
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Request, SessionEntrance, Watch};
use peeklock_core::{Broker, Entity};

/// Handle on an entity, to which commands are submitted.
pub trait Handle: Clone {
    /// Sub-queue that the handle addresses.
    fn sub_queue(&self) -> SubQueue;

    /// Submits requests in order; does not block.
    fn submit(&self, group: Vec<Request>);

    /// Handle for the holder of a session, which submits to the session's own actor.
    #[must_use]
    fn with_session_entrance(&self, session_entrance: Option<SessionEntrance>) -> Self;

    /// Name of the policy that grants the use of the handle, if there is one.
    fn policy(&self) -> Option<Arc<str>> {
        None
    }

    /// Registers a link that may have no flow. `outlet` receives [`Released::Detached`] when the
    /// right that `role` needs ends. While the returned value is kept, it also receives
    /// [`Released::Closed`] when the entity is deleted.
    ///
    /// [`Released::Detached`]: peeklock_core::request::Released::Detached
    /// [`Released::Closed`]: peeklock_core::request::Released::Closed
    fn watch(&self, role: LinkRole, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch;
}

/// Source of tickets for commands and ids for receivers.
pub trait Issuer {
    /// Type of its entity handles.
    type Entity: Handle;

    /// Reserves `count` consecutive tickets; returns the first.
    fn tickets(&self, count: u64) -> Ticket;

    /// Returns a receiver id that was never used before.
    fn receiver_id(&self) -> ReceiverId;
}

impl Handle for Entity {
    fn sub_queue(&self) -> SubQueue {
        Self::sub_queue(self)
    }

    fn submit(&self, group: Vec<Request>) {
        Self::submit(self, group);
    }

    fn policy(&self) -> Option<Arc<str>> {
        Self::policy(self)
    }

    fn watch(&self, role: LinkRole, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch {
        let purpose = match role {
            LinkRole::Sender => Action::Send,
            LinkRole::Receiver => Action::Receive,
            LinkRole::Browser => Action::Peek,
        };
        Self::watch(self, purpose, receiver, outlet)
    }

    fn with_session_entrance(&self, session_entrance: Option<SessionEntrance>) -> Self {
        Self::with_session_entrance(self, session_entrance)
    }
}

impl Issuer for Broker {
    type Entity = Entity;

    fn tickets(&self, count: u64) -> Ticket {
        Self::tickets(self, count)
    }

    fn receiver_id(&self) -> ReceiverId {
        Self::receiver_id(self)
    }
}
