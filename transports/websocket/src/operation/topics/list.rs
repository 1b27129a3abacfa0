//! Lists topics.

use serde::{Deserialize, Serialize};

use super::TopicView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::manage::json_inside;
use crate::operation::{ListQueues, Notice};

/// A page of topics in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopicList {
    pub(crate) topics: Vec<TopicView>,
}

json_inside!(TopicList);

impl Conversation {
    pub(in crate::operation) fn list_topics(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_topics().await?;
            let topics = turn.page(skip, top).await?;
            let topics = topics.into_iter().map(TopicView::from).collect();
            Ok((Notice::Topics(TopicList { topics }), turn.into_turn()))
        })
    }
}
