//! Lists subscriptions of a topic.

use serde::{Deserialize, Serialize};

use super::SubscriptionView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::manage::json_inside;
use crate::operation::{ListOf, Notice};

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubscriptionList {
    pub(crate) subscriptions: Vec<SubscriptionView>,
}

json_inside!(SubscriptionList);

impl Conversation {
    pub(in crate::operation) fn list_subscriptions(&mut self, asked: Asked, list: ListOf) -> Done {
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
