//! What management of entities has in common. Both encodings carry descriptions as JSON.

use peeklock_core::description::{Cleared, EntityKind, Patch};
use serde::de::DeserializeOwned;

use super::Notice;
use crate::connection::{Asked, Conversation, Done};
use crate::error::FrameError;
use crate::frame::bodies;
use crate::frame::text::Instant;

bodies! {
    struct PathOnly {
        path: String,
    }

    struct ListQueues {
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct ListOf {
        /// The path of the topic, or of the subscription whose rules are asked for.
        path: String,
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }
}

/// Management is rare: in the binary form it is the same JSON, behind its length.
macro_rules! json_inside {
    ($($name:ident),*) => {$(
        impl crate::frame::wire::Wire for $name {
            const BYTES_MIN: usize = 4;

            fn write(&self, out: &mut Vec<u8>) {
                crate::frame::wire::write_part(out, |out| {
                    // Writing numbers and text into memory cannot fail.
                    serde_json::to_writer(out, self).unwrap_or_default();
                });
            }

            fn read(
                reader: &mut crate::frame::wire::Reader<'_>,
            ) -> Result<Self, crate::error::FrameError> {
                let length = reader.length()?;
                crate::operation::manage::from_json(reader.take(length)?)
            }

            fn skim(
                reader: &mut crate::frame::wire::Reader<'_>,
                announced: &mut crate::frame::announce::Announced,
            ) -> Result<(), crate::error::FrameError> {
                let length = reader.length()?;
                let section = reader.take(length)?;
                announced.made_bytes += crate::frame::announce::made_of_json(section);
                Ok(())
            }
        }
    )*};
}

pub(super) use json_inside;

pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|error| FrameError::Json(error.to_string()))
}

impl Conversation {
    /// Deletes an entity of that kind with everything in it.
    pub(super) fn delete(&mut self, asked: Asked, only: PathOnly, kind: EntityKind) -> Done {
        self.manage(asked, move |access| async move {
            access.delete(&only.path, kind).await?;
            Ok(Notice::Done(Default::default()))
        })
    }

    /// What of a list is asked for, as far as one answer has it (ENT-30).
    pub(super) fn page(&self, skip: u32, top: Option<u32>) -> (usize, usize) {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let most = self.engine.broker.settings().limits.list_count_max.max(1);
        (count(skip), top.map_or(most, count).min(most))
    }
}

/// How an update is taken that has read this version.
pub(super) fn patch(cleared: Cleared, version: Option<Instant>) -> Patch {
    Patch { cleared, read_at: version.map(|Instant(at)| at) }
}
