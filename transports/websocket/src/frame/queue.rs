//! Queues, topics, subscriptions and rules, which both encodings carry as JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::announce::{Announced, MADE_BYTES};
use super::bodies;
use super::text::Instant;
use super::topic::{
    Explained, RuleForm, RuleList, SubscriptionList, SubscriptionProperties, SubscriptionView,
    TopicList, TopicProperties, TopicView,
};
use super::wire::{Reader, Wire, skim_bytes, wire, write_part};
use crate::error::FrameError;

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

    struct ListQueues {
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }
}

/// A page of queues in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<QueueView>,
}

/// Management is rare: in the binary form it is the same JSON, behind its length.
macro_rules! json_inside {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            const BYTES_MIN: usize = 4;

            fn write(&self, out: &mut Vec<u8>) {
                write_part(out, |out| {
                    // Writing numbers and text into memory cannot fail.
                    serde_json::to_writer(out, self).unwrap_or_default();
                });
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let length = reader.length()?;
                from_json(reader.take(length)?)
            }

            fn skim(
                reader: &mut Reader<'_>,
                announced: &mut Announced,
            ) -> Result<(), FrameError> {
                announced.made_bytes += MADE_BYTES * skim_bytes(reader)? as u64;
                Ok(())
            }
        }
    )*};
}

json_inside!(QueueProperties, QueueView, QueueList);
json_inside!(TopicProperties, TopicView, TopicList);
json_inside!(SubscriptionProperties, SubscriptionView, SubscriptionList);
json_inside!(RuleForm, RuleList, Explained);

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|error| FrameError::Json(error.to_string()))
}
