//! Reads a queue and its runtime counts.

use super::QueueView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::{Notice, PathOnly};

impl Conversation {
    pub(in crate::operation) fn get_queue(
        &mut self,
        asked: Asked,
        PathOnly { path }: PathOnly,
    ) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_queue(&path).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }
}
