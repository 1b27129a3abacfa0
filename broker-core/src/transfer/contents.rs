//! Work on a list in transit, independent of its driver: turns the messages of the source into
//! arrivals once there is room, and computes the result for the source.

use std::sync::Arc;

use super::claim::TransferEnd;
use super::{Arrival, Departure, HandOver, OriginContents, PinnedMessage};
use crate::admission::loaded_bytes;
use crate::condition::Condition;
use crate::content_ref::ContentRef;
use crate::edge::Edge;
use crate::ids::SequenceNumber;
use crate::message::{Content, Overlay};
use crate::path::SubQueue;
use crate::store::{Key, Store, StoreError};

/// Bytes of headers and overlays that are read before other tasks of the thread get a turn.
const READ_BYTES_PER_TURN: u64 = 64 << 10;

/// Returns the bytes of room that the messages of a list need while they are loaded.
#[must_use]
pub fn room_of(list: &HandOver<PinnedMessage>) -> u64 {
    let sizes = list.messages.iter().map(|one| u64::from(one.message.facts.size));
    loaded_bytes(list.messages.len(), sizes.sum())
}

/// Replaces contents in memory that are also on a medium by references: a list that waits for room
/// must hold no contents.
pub fn release_contents(list: &mut HandOver<PinnedMessage>, store: &dyn Store) {
    let (mut keys, mut contents) = (Vec::new(), Vec::new());
    for PinnedMessage { message, origin, .. } in &mut list.messages {
        keys.clear();
        keys.push(origin.key);
        keys.extend_from_slice(&origin.overlays);
        store.pin_unloaded(&keys, &mut contents);
        // A message with a missing record keeps its pinned contents.
        if contents.iter().all(Option::is_some) {
            let mut again = contents.drain(..).flatten();
            if let Some(content) = again.next() {
                message.content = content;
                message.overlays = again.collect();
            }
        }
        contents.clear();
    }
}

/// Loads the contents of a list. If the store does not share contents, the destination gets them in
/// order to store them again.
///
/// # Errors
/// A content that the store cannot read.
pub async fn load(
    list: &HandOver<PinnedMessage>,
    edge: &Edge,
    store: &dyn Store,
) -> Result<Vec<Arrival>, StoreError> {
    let shares_contents = store.shares_contents();
    let dead_letter_source =
        (list.sub_queue == SubQueue::DeadLetter).then(|| Arc::clone(&list.source));
    let mut arrivals = Vec::with_capacity(list.messages.len());
    let mut read_bytes = 0u64;
    for pinned in &list.messages {
        let PinnedMessage { message, hops, copies_spent, never_duplicate, time_to_live, origin } =
            pinned;
        let content = Content::parse(message.content.load().await?)
            .map_err(|error| StoreError::Damaged(error.to_string().into()))?;
        let overlays = load_overlays(&message.overlays).await?;
        let set = overlays.iter().map(|overlay| u64::from(overlay.size_bytes()));
        read_bytes += u64::from(content.header_size()) + set.sum::<u64>();
        if read_bytes > READ_BYTES_PER_TURN {
            read_bytes = 0;
            tokio::task::yield_now().await;
        }
        let mut origin = origin.clone();
        if !shares_contents {
            let content = content.as_bytes().clone();
            let overlays = overlays.iter().map(|overlay| overlay.as_bytes().clone()).collect();
            origin.contents = Some(Box::new(OriginContents { content, overlays }));
        }
        let mut inbound = edge.take_over(content, &overlays, *never_duplicate);
        let own = inbound.envelope.time_to_live;
        let lowered = time_to_live.filter(|lowered| own.is_some_and(|own| own > *lowered));
        inbound.envelope.time_to_live = lowered.or(own);
        arrivals.push(Arrival {
            message: inbound,
            overlays,
            lowered_time_to_live: lowered,
            enqueued_sequence: match message.facts.enqueued_sequence {
                SequenceNumber(0) => message.facts.sequence,
                original => original,
            },
            hops: hops.saturating_add(1),
            copies_spent: *copies_spent,
            dead_letter_source: dead_letter_source.clone(),
            origin,
        });
    }
    Ok(arrivals)
}

async fn load_overlays(overlays: &[ContentRef]) -> Result<Vec<Overlay>, StoreError> {
    let mut loaded = Vec::with_capacity(overlays.len());
    for overlay in overlays {
        loaded.push(Overlay::from_bytes(overlay.load().await?));
    }
    Ok(loaded)
}

/// Returns the results of the messages at these keys, after their list has ended. Without an answer
/// of the destination `exist` decides, which asks the store for these keys: a message whose record
/// is gone at the source has arrived.
///
/// # Errors
/// A store that cannot decide. The messages may be in either entity, so the source must be restored
/// from its records before it does anything else with them.
pub async fn departures(
    keys: &[Key],
    end: TransferEnd,
    exist: impl Future<Output = Result<Vec<bool>, StoreError>>,
) -> Result<Vec<Departure>, StoreError> {
    let reason = match end {
        Some(Ok(admissions)) if admissions.len() == keys.len() => {
            return Ok(admissions.into_iter().map(Departure::from).collect());
        }
        Some(Err(reason)) => Some(reason),
        Some(Ok(_)) | None => None,
    };
    // Only a missing or deleted entity refuses permanently without having judged the messages.
    let absent = reason.filter(|reason| reason.condition() == Condition::EntityNotFound);
    let departures = exist.await?.into_iter().map(|exists| match &absent {
        _ if !exists => Departure::Taken,
        Some(absent) => Departure::NotAdmitted(absent.clone()),
        None => Departure::Unknown,
    });
    Ok(departures.collect())
}
