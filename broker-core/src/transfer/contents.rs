//! Work on a list in transit, independent of its driver: turns the messages of the source into
//! arrivals once there is room, and computes the result for the source.

use std::sync::Arc;

use super::body_change::BodyChange;
use super::claim::TransferEnd;
use super::{Arrival, Departure, HandOver, OriginContents, PinnedMessage};
use crate::admission::loaded_bytes;
use crate::command::{BodyEdit, LAST_ERROR_PROPERTY, PATCHED_BODY_BYTES_MAX};
use crate::condition::Condition;
use crate::content_ref::ContentRef;
use crate::edge::Edge;
use crate::ids::{SequenceNumber, TrackingId};
use crate::message::{
    Content, DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, MergePatch, Overlay,
    PropertyChange, SettableProperty, Value,
};
use crate::path::SubQueue;
use crate::store::{Key, Store, StoreError};
use crate::time::TimeSpan;

/// Bytes of headers, overlays and patched bodies that are read before other tasks of the thread get
/// a turn.
const READ_BYTES_PER_TURN: u64 = 64 << 10;
/// Bytes of a content from which its body is patched on another thread.
const PATCHED_ELSEWHERE_BYTES: u32 = 32 << 10;
/// Application properties that a resubmitted message loses (CON-16).
pub(crate) const DEAD_LETTER_FACTS: [&str; 3] =
    [DEAD_LETTER_REASON, DEAD_LETTER_ERROR_DESCRIPTION, LAST_ERROR_PROPERTY];

/// Returns the bytes of room that the messages of a list need while they are loaded.
#[must_use]
pub fn room_of(list: &HandOver<PinnedMessage>) -> u64 {
    let body = new_body(list);
    let sizes = list.messages.iter().map(|one| {
        let size = u64::from(one.message.facts.size);
        size + match body {
            None => 0,
            Some(BodyEdit::Whole(bytes)) => bytes.len() as u64,
            Some(BodyEdit::MergePatch(patch)) => {
                size.min(u64::from(PATCHED_BODY_BYTES_MAX)) + patch.len() as u64
            }
        }
    });
    let once = match body {
        // The patch that is read, and for one message at a time the joined body and the new one.
        Some(BodyEdit::MergePatch(patch)) => {
            let patch = (1 + MergePatch::BYTES_PER_BYTE) * patch.len() as u64;
            patch + 2 * u64::from(PATCHED_BODY_BYTES_MAX)
        }
        Some(BodyEdit::Whole(_)) | None => 0,
    };
    loaded_bytes(list.messages.len(), sizes.sum::<u64>() + once)
}

/// Reason that a message of a job is not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The store cannot read it.
    Store(StoreError),
    /// The merge patch of the job does not apply to its body.
    NotJson,
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
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

/// Loads the contents of a list that no job sends. If the store does not share contents, the
/// destination gets them in order to store them again.
///
/// # Errors
/// A content that the store cannot read.
pub async fn load(
    list: &HandOver<PinnedMessage>,
    edge: &Edge,
    store: &dyn Store,
) -> Result<Vec<Arrival>, StoreError> {
    let mut arrivals = Vec::with_capacity(list.messages.len());
    let mut read_bytes = 0;
    for pinned in &list.messages {
        let content = load_content(pinned, &mut read_bytes).await?;
        arrivals.push(arrival(list, pinned, content, edge, store, &mut read_bytes).await?);
    }
    Ok(arrivals)
}

/// Loads the contents of a list of a job, with a result for each message. Ends after an error that
/// may pass. The messages arrive as new ones: without hops, copies made, and a time to live that
/// other entities have lowered.
pub async fn load_each(
    list: &HandOver<PinnedMessage>,
    edge: &Edge,
    store: &dyn Store,
) -> Vec<Result<Arrival, LoadError>> {
    let mut arrivals = Vec::with_capacity(list.messages.len());
    let mut read_bytes = 0u64;
    let body = new_body(list).map(BodyChange::new);
    for pinned in &list.messages {
        let loading = async {
            let mut content = load_content(pinned, &mut read_bytes).await?;
            if let Some(body) = &body {
                // A message that stays counts too.
                read_bytes += u64::from(content.size().min(PATCHED_BODY_BYTES_MAX));
                content = change_body(content, body).await?;
            }
            Ok(arrival(list, pinned, content, edge, store, &mut read_bytes).await?)
        };
        let arrival = loading.await;
        let may_pass = matches!(arrival, Err(LoadError::Store(StoreError::Unavailable(_))));
        arrivals.push(arrival);
        if may_pass {
            break;
        }
    }
    arrivals
}

/// New body of the messages of a list.
fn new_body(list: &HandOver<PinnedMessage>) -> Option<&BodyEdit> {
    list.route.as_ref()?.edit.as_ref()?.body.as_ref()
}

/// Loads the content of a message, after a turn of other tasks if many bytes were read.
async fn load_content(pinned: &PinnedMessage, read_bytes: &mut u64) -> Result<Content, StoreError> {
    if *read_bytes > READ_BYTES_PER_TURN {
        *read_bytes = 0;
        tokio::task::yield_now().await;
    }
    let content = Content::parse(pinned.message.content.load().await?);
    content.map_err(|error| StoreError::Damaged(error.to_string().into()))
}

/// Makes the arrival of a message with this content.
async fn arrival(
    list: &HandOver<PinnedMessage>,
    pinned: &PinnedMessage,
    content: Content,
    edge: &Edge,
    store: &dyn Store,
    read_bytes: &mut u64,
) -> Result<Arrival, StoreError> {
    let shares_contents = store.shares_contents();
    let resubmits = list.route.as_ref().is_some_and(|route| route.is_resubmit);
    let edit = list.route.as_ref().and_then(|route| route.edit.as_ref());
    let is_forwarded = list.route.is_none();
    let PinnedMessage { message, hops, copies_spent, never_duplicate, time_to_live, origin } =
        pinned;
    let mut overlays = load_overlays(&message.overlays).await?;
    let set = overlays.iter().map(|overlay| u64::from(overlay.size_bytes()));
    *read_bytes += u64::from(content.header_size()) + set.sum::<u64>();
    let mut dead_letter_source =
        (list.sub_queue == SubQueue::DeadLetter && !resubmits).then(|| Arc::clone(&list.source));
    if resubmits {
        // Its way, if the job names no destination.
        dead_letter_source = Overlay::dead_letter_source_of(overlays.iter()).map(Arc::from);
        let view = content.property_view();
        let of_sender = DEAD_LETTER_FACTS.into_iter();
        let of_sender = of_sender.filter(|fact| view.keys().any(|key| key == *fact));
        overlays = without_dead_letter_facts(of_sender, &overlays).into_iter().collect();
    }
    if let Some(edit) = edit {
        overlays.push(edit.changes.clone());
        overlays.extend(edit.new_id.then(|| new_id(edge)));
        // An edit of the body only sets no property.
        let set = Overlay::combine(&overlays).filter(|set| !set.is_empty());
        overlays = set.into_iter().collect();
    }
    let mut origin = origin.clone();
    if !shares_contents || resubmits || edit.is_some() {
        let is_new = !shares_contents || new_body(list).is_some();
        let content = is_new.then(|| content.as_bytes().clone());
        let overlays = overlays.iter().map(|overlay| overlay.as_bytes().clone()).collect();
        origin.contents = Some(Box::new(OriginContents { content, overlays }));
    }
    let mut inbound = edge.take_over(content, &overlays, *never_duplicate);
    let own = inbound.envelope.time_to_live;
    let is_lower = |lowered: &TimeSpan| is_forwarded && own.is_some_and(|own| own > *lowered);
    let lowered = time_to_live.filter(is_lower);
    inbound.envelope.time_to_live = lowered.or(own);
    if !is_forwarded {
        // It was enqueued, so this instant has passed, also if an operator changed it.
        inbound.envelope.scheduled_enqueue_time = None;
    }
    Ok(Arrival {
        message: inbound,
        overlays,
        lowered_time_to_live: lowered,
        enqueued_sequence: match message.facts.enqueued_sequence {
            _ if !is_forwarded => SequenceNumber(0),
            SequenceNumber(0) => message.facts.sequence,
            original => original,
        },
        hops: if is_forwarded { hops.saturating_add(1) } else { 0 },
        copies_spent: if is_forwarded { *copies_spent } else { 0 },
        dead_letter_source,
        origin,
        resent: None,
    })
}

/// Returns the properties of a message in addition to its content, without the facts of its
/// dead-lettering and a lowered time to live (CON-16). `of_sender` are the facts that the content
/// may have. The entity in which the message was dead-lettered is not a property of the message.
pub(crate) fn without_dead_letter_facts(
    of_sender: impl Iterator<Item = &'static str>,
    overlays: &[Overlay],
) -> Option<Overlay> {
    let is_fact = |key: &str| DEAD_LETTER_FACTS.contains(&key);
    let of_sender: Vec<&str> = of_sender.collect();
    let set = Overlay::combine(overlays);
    let kept = set.iter().flat_map(Overlay::changes).filter(|change| match change {
        PropertyChange::Set(key, _) | PropertyChange::Remove(key) => !is_fact(key),
        PropertyChange::SetBroker(property, _) => *property != SettableProperty::TimeToLive,
    });
    let overlay =
        Overlay::of_changes(kept.chain(of_sender.into_iter().map(PropertyChange::Remove)));
    (!overlay.is_empty()).then_some(overlay)
}

/// Changes the body of a content.
async fn change_body(content: Content, body: &BodyChange) -> Result<Content, LoadError> {
    let changed = if body.is_patch() && content.size() >= PATCHED_ELSEWHERE_BYTES {
        let body = body.clone();
        let changing = tokio::task::spawn_blocking(move || body.content_after(content));
        changing.await.map_err(|error| StoreError::Unavailable(error.to_string().into()))?
    } else {
        body.content_after(content)
    };
    changed.ok_or(LoadError::NotJson)
}

/// Returns an overlay that sets a new MessageId, a GUID (RFC 9562, version 4, variant 1).
fn new_id(edge: &Edge) -> Overlay {
    let bits = edge.entropy().next_u128() & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let id = Value::from(TrackingId(bits).to_string());
    Overlay::of_changes([PropertyChange::SetBroker(SettableProperty::MessageId, id.borrow())])
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
