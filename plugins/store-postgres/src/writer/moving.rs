//! Large contents, which are written before their batch, and records that are written again.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_store_log::{ContentAt, LogPosition, LogSegment as _, PART_BYTES};

use super::{APPEND_BYTES_MAX, Writer};
use crate::append::{NewContent, is_large};
use crate::shard::{MovedContent, MovedRecord};

impl Writer {
    /// Stores a large content before its batch. Its leaves are held until the batch is applied.
    /// Returns fewer places if batches are not stored any more.
    pub(super) async fn write_parts(&mut self, content: &Bytes) -> Vec<LogPosition> {
        let mut places = Vec::new();
        let mut at = 0;
        while at < content.len() {
            let end = (at + PART_BYTES).min(content.len());
            let Ok(append) = self.append().await else { break };
            places.push(append.add_part(content.slice(at..end)));
            append.leaf.add_use();
            at = end;
            if append.bytes() > APPEND_BYTES_MAX {
                self.flush().await;
            }
        }
        places
    }

    /// Writes records again that are still current.
    pub(super) async fn write_moved(&mut self, moved: Vec<MovedContent>) {
        let index = Arc::clone(&self.shard.index);
        let is_current = |user: &MovedRecord| index.get(user.key.as_bytes()) == Some(user.expected);
        for item in moved {
            if !item.users.iter().any(is_current) {
                continue;
            }
            let mut places = Vec::new();
            if let Some(content) = item.content.as_ref().filter(|content| is_large(content)) {
                places = self.write_parts(content).await;
                self.group.used_parts.extend(&places);
            }
            let Ok(append) = self.append().await else { return };
            let mut known: Option<ContentAt> = None;
            for user in item.users {
                // Another shard may have removed the key while an append or a table was awaited,
                // and this append may begin with the removal. From here on nothing is awaited:
                // later removals follow the append.
                if !is_current(&user) {
                    continue;
                }
                match (&item.content, known) {
                    (Some(content), None) => {
                        let content = if places.is_empty() {
                            NewContent::Here(content)
                        } else {
                            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
                            NewContent::Parts { places: places.clone(), length }
                        };
                        known = Some(append.put_new(user.key, &user.value, content));
                    }
                    _ => {
                        let content = known.or_else(|| user.expected.content_at());
                        append.put_known(user.key, &user.value, content, &index);
                    }
                }
            }
        }
    }
}
