//! Reads a subscription and its runtime counts.

use super::SubscriptionView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::{Notice, PathOnly};

impl Conversation {
    pub(in crate::operation) fn get_subscription(
        &mut self,
        asked: Asked,
        PathOnly { path }: PathOnly,
    ) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_subscription(&path).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }
}
