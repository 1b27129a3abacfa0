//! Changes a queue.

use super::{QueueProperties, QueueView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::Notice;
use crate::operation::manage::patch;

bodies! {
    struct UpdateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

impl Conversation {
    pub(in crate::operation) fn update_queue(&mut self, asked: Asked, update: UpdateQueue) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }
}
