//! Management of subscriptions.

use serde::{Deserialize, Serialize};

use super::manage::{json_inside, patch};
use super::{ListOf, Notice, PathOnly, RuleForm};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::text::Instant;
use crate::frame::{bodies, json};

pub(crate) use peeklock_json::{SubscriptionProperties, SubscriptionView};

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

    struct UpdateSubscription {
        path: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubscriptionList {
    pub(crate) subscriptions: Vec<SubscriptionView>,
}

json_inside!(SubscriptionProperties, SubscriptionView, SubscriptionList);

impl Conversation {
    pub(super) fn create_subscription(&mut self, asked: Asked, create: CreateSubscription) -> Done {
        let CreateSubscription { topic, name, properties, rules } = create;
        let update = properties.to_update()?;
        let rules = rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>()?;
        self.manage(asked, |access| async move {
            let described = access.create_subscription(&topic, &name, update, rules).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }

    pub(super) fn get_subscription(&mut self, asked: Asked, PathOnly { path }: PathOnly) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_subscription(&path).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }

    pub(super) fn update_subscription(&mut self, asked: Asked, update: UpdateSubscription) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Subscription(Box::new(SubscriptionView::from(described))))
        })
    }

    pub(super) fn list_subscriptions(&mut self, asked: Asked, list: ListOf) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_subscriptions(&list.path).await?;
            let subscriptions = turn.page(skip, top).await?;
            let subscriptions = subscriptions.into_iter().map(SubscriptionView::from).collect();
            let list = SubscriptionList { subscriptions };
            Ok((Notice::Subscriptions(list), turn.into_turn()))
        })
    }
}
