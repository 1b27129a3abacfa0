//! Reads a topic and its runtime counts.

use super::TopicView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::{Notice, PathOnly};

impl Conversation {
    pub(in crate::operation) fn get_topic(
        &mut self,
        asked: Asked,
        PathOnly { path }: PathOnly,
    ) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_topic(&path).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }
}
