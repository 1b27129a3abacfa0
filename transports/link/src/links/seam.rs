//! What links ask of a broker; tests put another in its place. Of a broker nothing of it is done here: a handle is an
//! `Entity` of the core, in `broker/entity.rs`.

use std::sync::Arc;

use peeklock_core::contract::Action;
use peeklock_core::ids::{ReceiverId, Ticket};
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Request, Watch, Way};
use peeklock_core::{Broker, Entity};

use crate::link::Role;

/// A handle on an entity: where what is asked of it goes in.
pub trait Handle: Clone {
    /// The sub-queue that it stands for.
    fn sub_queue(&self) -> SubQueue;

    /// Hands requests in, in order, and returns at once.
    fn submit(&self, group: Vec<Request>);

    /// The same for the holder of a session.
    #[must_use]
    fn by_way_of(&self, way: Option<Way>) -> Self;

    /// Has a link told when its role is not granted any more, although nothing is pushed over it; and when the
    /// entity is deleted, as long as what is returned is kept.
    fn watch(&self, role: Role, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch;
}

/// What gives names to commands and receivers.
pub trait Issuer {
    /// Its handles.
    type Entity: Handle;

    /// The first of so many consecutive names for commands.
    fn tickets(&self, count: u64) -> Ticket;

    /// A name for a receiver link, never given before.
    fn receiver_id(&self) -> ReceiverId;
}

impl Handle for Entity {
    fn sub_queue(&self) -> SubQueue {
        Self::sub_queue(self)
    }

    fn submit(&self, group: Vec<Request>) {
        Self::submit(self, group);
    }

    fn watch(&self, role: Role, receiver: ReceiverId, outlet: &Arc<dyn Outlet>) -> Watch {
        let purpose = match role {
            Role::Sender => Action::Send,
            Role::Receiver => Action::Receive,
            Role::Browser => Action::Peek,
        };
        Self::watch(self, purpose, receiver, outlet)
    }

    fn by_way_of(&self, way: Option<Way>) -> Self {
        Self::by_way_of(self, way)
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
