//! The transactions of a connection, and the groups of its sessions that have a coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::path::EntityAddress;
use peeklock_core::transaction::TransactionId;

use crate::connection::{LinkId, ReceivedId, SessionId};

/// Facts of the transactions of a connection that the engine does not need.
#[derive(Default)]
pub(super) struct Book {
    pub(super) open: BTreeMap<TransactionId, Open>,
    /// Commits that wait for operations to be answered, one of a transaction at most.
    pub(super) waiting: Vec<Committing>,
    pub(super) groups: Groups,
}

impl Book {
    /// Whether a commit of it waits.
    pub(super) fn is_ending(&self, id: TransactionId) -> bool {
        self.waiting.iter().any(|committing| committing.id == id)
    }

    /// The transaction of an id as it is written; one that nobody was given names none.
    pub(super) fn id(txn_id: &[u8]) -> TransactionId {
        TransactionId(<[u8; 8]>::try_from(txn_id).map_or(0, u64::from_be_bytes))
    }
}

/// A transaction that was declared.
pub(super) struct Open {
    pub(super) coordinator: LinkId,
    /// The queue or topic that it covers, once it has an operation (TXN-08, AMQP-98).
    pub(super) root: Option<Arc<str>>,
    /// A send was refused, which some clients do not notice: it is rolled back (AMQP-100).
    pub(super) is_doomed: bool,
    /// What its client has settled for good: rolled back, nobody else would give it back (TXN-04).
    pub(super) forgotten: Vec<Forgotten>,
}

/// A commit that waits for a permit, or for operations to be answered.
pub(super) struct Committing {
    pub(super) delivery: ReceivedId,
    pub(super) id: TransactionId,
}

/// A delivery that its client has settled for good.
pub(super) struct Forgotten {
    pub(super) token: LockToken,
    pub(super) entity: Entity,
}

/// The transaction groups of a connection, by their sessions. At most one for each session.
#[derive(Default)]
pub(super) struct Groups(pub(super) BTreeMap<SessionId, Option<Root>>);

impl Groups {
    /// Forgets the group of a session.
    pub(super) fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// The entity that the transactions of a group cover.
#[derive(Clone)]
pub(super) struct Root {
    /// The path of the queue or topic.
    pub(super) path: Arc<str>,
    /// The path that the first link named, whose token grants access to it. A client shows a token for this path only.
    pub(super) named: Arc<str>,
}

/// The path of the queue or topic that an entity belongs to.
pub(super) fn root_path(entity: &Entity) -> Result<Arc<str>, Rejection> {
    Ok(EntityAddress::parse(entity.path())?.entity.root().into())
}

/// Whether two paths name one queue or topic.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}
