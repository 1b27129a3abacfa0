//! Creates a topic.

use super::{TopicProperties, TopicView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Notice;

bodies! {
    struct CreateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
    }
}

impl Conversation {
    pub(in crate::operation) fn create_topic(&mut self, asked: Asked, create: CreateTopic) -> Done {
        let properties = create.properties.to_update()?;
        self.manage(asked, |access| async move {
            let described = access.create_topic(&create.path, properties).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }
}
