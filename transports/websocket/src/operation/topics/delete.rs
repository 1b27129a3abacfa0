//! Deletes a topic with its subscriptions.

use peeklock_core::description::EntityKind;

use crate::connection::{Asked, Conversation, Done};
use crate::operation::PathOnly;

impl Conversation {
    pub(in crate::operation) fn delete_topic(&mut self, asked: Asked, only: PathOnly) -> Done {
        self.delete(asked, only, EntityKind::Topic)
    }
}
