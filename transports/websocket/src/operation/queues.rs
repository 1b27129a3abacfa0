//! Management of queues.

use serde::{Deserialize, Serialize};

use super::manage::{json_inside, patch};
use super::{ListQueues, Notice, PathOnly};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;

pub(crate) use peeklock_json::{QueueProperties, QueueView};

bodies! {
    struct CreateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
    }

    struct UpdateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

/// A page of queues in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<QueueView>,
}

json_inside!(QueueProperties, QueueView, QueueList);

impl Conversation {
    pub(super) fn create_queue(&mut self, asked: Asked, create: CreateQueue) -> Done {
        let properties = create.properties.to_update()?;
        self.manage(asked, |access| async move {
            let described = access.create_queue(&create.path, properties).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }

    pub(super) fn get_queue(&mut self, asked: Asked, PathOnly { path }: PathOnly) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_queue(&path).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }

    pub(super) fn update_queue(&mut self, asked: Asked, update: UpdateQueue) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Queue(Box::new(QueueView::from(described))))
        })
    }

    pub(super) fn list_queues(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_queues().await?;
            let queues = turn.page(skip, top).await?;
            let queues = queues.into_iter().map(QueueView::from).collect();
            Ok((Notice::Queues(QueueList { queues }), turn.into_turn()))
        })
    }
}
