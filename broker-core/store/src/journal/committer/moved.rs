//! The committer's part in moving records: it writes them again at the end of the log, so that the
//! keeper can release their segment.

use std::sync::Arc;

use super::super::format::{CONTENT_HEAD, FrameKind, PLACE_BYTES, RECORD_HEAD_MAX};
use super::super::queue::{Move, MoveContent, MovedRecord};
use super::Committer;
use super::encode::{NewContent, write_put, write_put_known};
use crate::StoreError;

/// Writes the records that are still current.
pub(super) fn write(committer: &mut Committer, mut moved: Move) -> Result<(), StoreError> {
    let (group, index) = (&mut committer.group, &*committer.index);
    for item in &mut moved.items {
        item.users.retain(|user| index.get(user.key.as_bytes()) == Some(user.expected));
        if let MoveContent::Parts { places, .. } = &item.content {
            // Their segments were held for this move. After the commit, the records hold them.
            group.used_parts.extend(places.iter().copied());
        }
    }
    moved.items.retain(|item| !item.users.is_empty());
    if moved.items.is_empty() {
        return Ok(());
    }
    let payload_max: usize = moved
        .items
        .iter()
        .map(|item| {
            let content = match &item.content {
                MoveContent::Stays => 0,
                MoveContent::New(bytes) => bytes.len() + CONTENT_HEAD,
                MoveContent::Parts { .. } => 0,
            };
            content + item.users.iter().map(|user| record_max(user, &item.content)).sum::<usize>()
        })
        .sum();
    committer.log.frame(FrameKind::Moved, payload_max as u64, |payload| {
        for item in moved.items {
            let mut users = item.users.into_iter();
            let known = match item.content {
                MoveContent::Stays => None,
                MoveContent::New(bytes) => users.next().map(|user| {
                    let content = NewContent::Here(&bytes);
                    write_put(user.key, &user.value, content, payload, group)
                }),
                MoveContent::Parts { places, length } => users.next().map(|user| {
                    index.add_large(Arc::from(places.as_slice()));
                    let content = NewContent::Parts { places, length };
                    write_put(user.key, &user.value, content, payload, group)
                }),
            };
            for user in users {
                let content = known.or_else(|| user.expected.content_at());
                write_put_known(user.key, &user.value, content, payload, group, index);
            }
        }
    })
}

fn record_max(user: &MovedRecord, content: &MoveContent) -> usize {
    let places = match content {
        MoveContent::Parts { places, .. } => places.len(),
        MoveContent::Stays | MoveContent::New(_) => user
            .expected
            .content_length()
            .map_or(1, |length| super::super::format::part_count(length).max(1)),
    };
    RECORD_HEAD_MAX + user.key.as_bytes().len() + user.value.len() + places * PLACE_BYTES
}
