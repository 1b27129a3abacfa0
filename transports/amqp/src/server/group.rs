//! Transaction groups: sessions with a coordinator. Their transactions have the entity of the first
//! link as root (AMQP-98).
//!
//! The root is the queue or topic of a link, for any of its subscriptions and sub-queues. It stays
//! the root until the session ends, even after its links are detached, since clients attach them
//! again.

use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::transaction::SPANS_SEVERAL;

use super::book::{TransactionRoot, is_same, root_path};
use super::conversation::Conversation;
use super::node::Node;
use crate::connection::{LinkId, SessionId};

impl Conversation {
    /// Makes a session a group when a coordinator is attached to it, possibly after other links.
    pub(super) fn begin_group(&mut self, session: SessionId) {
        self.book.groups.0.entry(session).or_default();
        self.note_root(session);
    }

    /// Stores the root of a group once its first link is attached.
    pub(super) fn note_root(&mut self, session: SessionId) {
        if self.book.groups.0.get(&session).is_none_or(Option::is_some) {
            return;
        }
        let Some((root, true)) = self.first_link(session) else { return };
        self.book.groups.0.insert(session, Some(root));
    }

    /// Returns the root of a group. While the first link waits for an answer, this is the entity of
    /// that link.
    pub(super) fn group_root(&self, session: SessionId) -> Option<TransactionRoot> {
        match self.book.groups.0.get(&session)? {
            Some(root) => Some(root.clone()),
            None => Some(self.first_link(session)?.0),
        }
    }

    /// Forgets the root of a group after its entity was deleted: the next link becomes the first.
    pub(super) fn forget_root(&mut self, session: SessionId) {
        if let Some(root) = self.book.groups.0.get_mut(&session) {
            *root = None;
        }
    }

    /// Refuses a receiver of another entity than the root, since a transaction of the group could
    /// not settle its messages.
    pub(super) async fn check_group(
        &mut self,
        session: SessionId,
        entity: &Entity,
    ) -> Result<(), Rejection> {
        let own = root_path(entity)?;
        let mut gone: Option<Arc<str>> = None;
        loop {
            let Some(TransactionRoot { path: root, named }) = self.group_root(session) else {
                return Ok(());
            };
            if is_same(&own, &root) {
                return Ok(());
            }
            let is_known_gone = gone.as_ref().is_some_and(|gone| is_same(gone, &root));
            let found = self.access_at(&named).entity_of_a_transaction(&root).await;
            let is_gone = found.is_err_and(|gone| gone.condition() == Condition::EntityNotFound);
            if is_known_gone || !is_gone {
                return Err(Rejection::invalid_operation(format!(
                    "{SPANS_SEVERAL}: the first link of this session is for `{root}`, so that `{own}` has to be \
                     received from by another client, or without transactions across entities"
                )));
            }
            self.forget_root(session);
            gone = Some(root);
        }
    }

    /// Returns the entity of the first sender or receiver of a session, and whether it is attached.
    /// Management nodes and browsers do not take part in transactions.
    fn first_link(&self, session: SessionId) -> Option<(TransactionRoot, bool)> {
        let range = LinkId { session, generation: 0 }..=LinkId { session, generation: u64::MAX };
        self.nodes.range(range).find_map(|(_, node)| {
            let (number, is_attached) = match node {
                Node::Sender(sender) => (sender.number, true),
                Node::Receiver(receiver) => (receiver.number, receiver.answer.is_none()),
                Node::Browser(_) | Node::Coordinator(_) | Node::Requests(_) | Node::Replies(_) => {
                    return None;
                }
            };
            let entity = &self.engine.links.get(number)?.entity;
            let root =
                TransactionRoot { path: root_path(entity).ok()?, named: entity.path().into() };
            Some((root, is_attached))
        })
    }
}
