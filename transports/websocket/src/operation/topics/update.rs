//! Changes a topic.

use super::{TopicProperties, TopicView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::Notice;
use crate::operation::manage::patch;

bodies! {
    struct UpdateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

impl Conversation {
    pub(in crate::operation) fn update_topic(&mut self, asked: Asked, update: UpdateTopic) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }
}
