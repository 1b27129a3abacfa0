//! Transactions (AMQP-95 to AMQP-100), and the outcomes of a commit, which AMQP does not return.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::slice::from_ref;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::codec::list::{List, write_list};
use peeklock_amqp::message::{Declare, Discharge};
use peeklock_amqp::state::{DeliveryState, Outcome, Transactional};
use peeklock_amqp_testing::client::link;
use peeklock_core::message::Message;

use super::connection::{APART, Connection};
use super::link::Link;
use super::message::unexpected;
use crate::subject::Answer;

/// The delivery state for an operation in a transaction.
pub fn within(txn_id: &Bytes) -> DeliveryState {
    let txn_id = txn_id.clone();
    DeliveryState::Transactional(Box::new(Transactional { txn_id, outcome: None }))
}

/// An open transaction.
pub struct Open {
    pub txn_id: Bytes,
    pub channel: u16,
    /// Whether it may cross entities.
    pub is_across: bool,
    /// The first link of its session, whose entity is the root (AMQP-98).
    first: Option<Link>,
    pub parts: Vec<Part>,
}

impl Open {
    /// The number of scheduled messages.
    pub fn scheduled_count(&self) -> u64 {
        let messages = self.parts.iter().flat_map(|part| part.messages().0);
        messages.filter(|message| message.scheduled_enqueue_time.is_some()).count() as u64
    }
}

/// An operation in a transaction.
pub enum Part {
    Send(String, Message),
    SendBatch(String, Vec<Message>),
    /// A send to another entity through this one.
    SendOn(String, Message),
    Settle(String),
    Renew(String),
    Cancel(String),
}

impl Part {
    /// The messages that it sends, and whether they stay at the entity of the operation.
    pub fn messages(&self) -> (&[Message], bool) {
        match self {
            Self::Send(_, message) => (from_ref(message), true),
            Self::SendBatch(_, messages) => (messages, true),
            Self::SendOn(_, message) => (from_ref(message), false),
            Self::Settle(_) | Self::Renew(_) | Self::Cancel(_) => (&[], true),
        }
    }

    pub fn path(&self) -> &str {
        match self {
            Self::Send(path, _)
            | Self::SendBatch(path, _)
            | Self::SendOn(path, _)
            | Self::Settle(path)
            | Self::Renew(path)
            | Self::Cancel(path) => path,
        }
    }
}

/// The coordinators of a connection, and their transactions.
#[derive(Default)]
pub struct Transactions {
    coordinators: RefCell<HashMap<u16, Rc<Link>>>,
    open: RefCell<HashMap<u64, Open>>,
    begun: Cell<u64>,
}

impl Transactions {
    pub async fn begin(&self, connection: &Rc<Connection>, is_across: bool) -> Answer<u64> {
        let channel = if is_across { connection.begin() } else { APART };
        let coordinator = self.coordinator(connection, channel).await?;
        let Outcome::Declared(declared) = ask(&coordinator, &Declare::default()).await? else {
            return Err(unexpected("declare is answered by declared"));
        };
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let open =
            Open { txn_id: declared.txn_id, channel, is_across, first: None, parts: Vec::new() };
        self.open.borrow_mut().insert(number, open);
        Ok(number)
    }

    /// The AMQP id of a transaction.
    pub fn txn_id(&self, number: u64) -> Bytes {
        self.open.borrow()[&number].txn_id.clone()
    }

    /// The session for an operation. A transaction across entities has its own session; its first
    /// entity is its root.
    pub async fn channel(
        &self,
        connection: &Rc<Connection>,
        number: u64,
        root: &str,
    ) -> Answer<Option<u16>> {
        let (channel, is_first) = match &self.open.borrow()[&number] {
            open if open.is_across => (open.channel, open.first.is_none()),
            _ => return Ok(None),
        };
        if is_first {
            let attach = |name: &str, handle| link::sender(name, handle, root);
            let first = Link::attach(connection, channel, attach).await?;
            self.open.borrow_mut().get_mut(&number).unwrap().first = Some(first);
        }
        Ok(Some(channel))
    }

    /// Records an operation of a transaction.
    pub fn joined(&self, number: u64, part: Part) {
        self.open.borrow_mut().get_mut(&number).unwrap().parts.push(part);
    }

    /// Removes and returns a transaction that is to end.
    pub fn take(&self, number: u64) -> Open {
        self.open.borrow_mut().remove(&number).unwrap()
    }

    /// Commits or rolls back a transaction.
    pub async fn discharge(
        &self,
        connection: &Rc<Connection>,
        open: &Open,
        fail: bool,
    ) -> Answer<()> {
        let coordinator = self.coordinator(connection, open.channel).await?;
        match ask(&coordinator, &Discharge { txn_id: open.txn_id.clone(), fail }).await? {
            Outcome::Accepted => Ok(()),
            other => Err(unexpected(&format!("discharge: {other:?}"))),
        }
    }

    async fn coordinator(&self, connection: &Rc<Connection>, channel: u16) -> Answer<Rc<Link>> {
        let attached = self.coordinators.borrow().get(&channel).cloned();
        if let Some(coordinator) = attached {
            return Ok(coordinator);
        }
        let coordinator = Rc::new(Link::attach(connection, channel, link::coordinator).await?);
        self.coordinators.borrow_mut().insert(channel, Rc::clone(&coordinator));
        Ok(coordinator)
    }
}

/// Sends a request to a coordinator.
async fn ask<L: List>(coordinator: &Link, body: &L) -> Answer<Outcome> {
    let mut message = BytesMut::from(&[0x00, 0x53, 0x77][..]);
    write_list(&mut message, body);
    coordinator.send(0, None, &message).await
}
