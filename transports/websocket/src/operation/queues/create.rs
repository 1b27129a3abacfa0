//! Creates a queue.

use super::{QueueProperties, QueueView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Notice;

bodies! {
    struct CreateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
    }
}

impl Conversation {
    pub(in crate::operation) fn create_queue(&mut self, asked: Asked, create: CreateQueue) -> Done {
        let properties = create.properties.to_update()?;
        self.manage(asked, |access| async move {
            let described = access.create_queue(&create.path, properties).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }
}
