//! Creates a subscription.

use super::{SubscriptionProperties, SubscriptionView};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::{bodies, json};
use crate::operation::{Notice, RuleForm};

bodies! {
    struct CreateSubscription {
        /// The path of the topic.
        topic: String,
        name: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// Its rules; without any it gets `$Default`, which selects every message.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        rules: Vec<RuleForm>,
    }
}

impl Conversation {
    pub(in crate::operation) fn create_subscription(
        &mut self,
        asked: Asked,
        create: CreateSubscription,
    ) -> Done {
        let CreateSubscription { topic, name, properties, rules } = create;
        let update = properties.to_update()?;
        let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
        self.manage(asked, |access| async move {
            let described = access.create_subscription(&topic, &name, update, rules).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }
}
