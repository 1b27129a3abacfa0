//! Changes a subscription.

use super::{SubscriptionProperties, SubscriptionView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;
use crate::operation::Notice;
use crate::operation::manage::patch;

bodies! {
    struct UpdateSubscription {
        path: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

impl Conversation {
    pub(in crate::operation) fn update_subscription(
        &mut self,
        asked: Asked,
        update: UpdateSubscription,
    ) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }
}
