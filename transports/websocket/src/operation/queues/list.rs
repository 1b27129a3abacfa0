//! Lists queues.

use serde::{Deserialize, Serialize};

use super::QueueView;
use crate::connection::{Asked, Conversation, Done};
use crate::operation::manage::json_inside;
use crate::operation::{ListQueues, Notice};

/// A page of queues in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<QueueView>,
}

json_inside!(QueueList);

impl Conversation {
    pub(in crate::operation) fn list_queues(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_queues().await?;
            let queues = turn.page(skip, top).await?;
            let queues = queues.into_iter().map(QueueView::from).collect();
            Ok((Notice::Queues(QueueList { queues }), turn.into_turn()))
        })
    }
}
