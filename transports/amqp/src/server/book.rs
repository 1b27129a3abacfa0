//! The transactions of a connection, and the transaction groups of its sessions. The coordinator
//! node and transactional transfers use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::path::EntityAddress;
use peeklock_core::transaction::TransactionId;

use crate::connection::{LinkId, ReceivedId, SessionId};

/// Data about the transactions of a connection that only AMQP needs.
#[derive(Default)]
pub(super) struct TransactionBook {
    pub(super) open: BTreeMap<TransactionId, DeclaredTransaction>,
    /// Commits that wait for answers to operations; at most one per transaction.
    pub(super) waiting: Vec<CommitRequest>,
    pub(super) groups: Groups,
}

impl TransactionBook {
    /// Returns whether a commit of the transaction waits.
    pub(super) fn is_ending(&self, id: TransactionId) -> bool {
        self.waiting.iter().any(|committing| committing.id == id)
    }

    /// Reads a transaction id. A malformed id becomes 0, which no transaction has.
    pub(super) fn id(txn_id: &[u8]) -> TransactionId {
        TransactionId(<[u8; 8]>::try_from(txn_id).map_or(0, u64::from_be_bytes))
    }
}

/// A declared transaction.
pub(super) struct DeclaredTransaction {
    pub(super) coordinator: LinkId,
    /// Queue or topic that it covers, known after its first operation (TXN-08, AMQP-98).
    pub(super) root: Option<Arc<str>>,
    /// Whether an operation was not carried out, such as a refused send, in a way that some clients
    /// do not notice. A commit then rolls the transaction back (AMQP-100).
    pub(super) must_roll_back: bool,
    /// Deliveries that the client has settled itself. After a rollback the broker must release them
    /// (TXN-04).
    pub(super) client_settled: Vec<ClientSettled>,
}

/// A commit that waits for a permit, or for answers to operations.
pub(super) struct CommitRequest {
    pub(super) delivery: ReceivedId,
    pub(super) id: TransactionId,
}

/// A delivery of a transaction that the client has settled itself.
pub(super) struct ClientSettled {
    pub(super) token: LockToken,
    pub(super) entity: Entity,
}

/// The transaction groups of a connection, by session; at most one per session.
#[derive(Default)]
pub(super) struct Groups(pub(super) BTreeMap<SessionId, Option<TransactionRoot>>);

impl Groups {
    /// Forgets the group of a session.
    pub(super) fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// The entity that the transactions of a group cover.
#[derive(Clone)]
pub(super) struct TransactionRoot {
    /// The path of the queue or topic.
    pub(super) path: Arc<str>,
    /// Path that the first link named. Its token grants the access; a client puts a token only for
    /// this path.
    pub(super) named: Arc<str>,
}

/// Returns the path of the queue or topic to which an entity belongs.
pub(super) fn root_path(entity: &Entity) -> Result<Arc<str>, Rejection> {
    Ok(EntityAddress::parse(entity.path())?.entity.root().into())
}

/// Returns whether two paths name the same queue or topic.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
}
