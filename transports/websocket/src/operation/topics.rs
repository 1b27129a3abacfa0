//! Management of topics.

use serde::{Deserialize, Serialize};

use super::manage::{json_inside, patch};
use super::{ListQueues, Notice, PathOnly};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::text::Instant;

pub(crate) use peeklock_json::{TopicProperties, TopicView};

bodies! {
    struct CreateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
    }

    struct UpdateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }
}

/// A page of topics in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopicList {
    pub(crate) topics: Vec<TopicView>,
}

json_inside!(TopicProperties, TopicView, TopicList);

impl Conversation {
    pub(super) fn create_topic(&mut self, asked: Asked, create: CreateTopic) -> Done {
        let properties = create.properties.to_update()?;
        self.manage(asked, |access| async move {
            let described = access.create_topic(&create.path, properties).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }

    pub(super) fn get_topic(&mut self, asked: Asked, PathOnly { path }: PathOnly) -> Done {
        self.manage(asked, |access| async move {
            let described = access.describe_topic(&path).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }

    pub(super) fn update_topic(&mut self, asked: Asked, update: UpdateTopic) -> Done {
        let properties = update.properties.to_update()?;
        let patch = patch(update.properties.cleared(), update.version);
        self.manage(asked, move |access| async move {
            let described = access.patch(&update.path, &properties, patch).await?;
            Ok(Notice::Topic(Box::new(TopicView::from(described))))
        })
    }

    pub(super) fn list_topics(&mut self, asked: Asked, list: &ListQueues) -> Done {
        let (skip, top) = self.page(list.skip, list.top);
        self.manage_in_turn(asked, move |access| async move {
            let turn = access.turn_at_topics().await?;
            let topics = turn.page(skip, top).await?;
            let topics = topics.into_iter().map(TopicView::from).collect();
            Ok((Notice::Topics(TopicList { topics }), turn.into_turn()))
        })
    }
}
