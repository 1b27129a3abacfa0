//! Taps: messages that an entity accepts while a reader watches (CON-34).
//!
//! ```text
//!  reader ─► Access::tap ─► Taps::open ─► TapBuffer ◄── Shell::show_accepted: once a turn, after a
//!    ▲                                        │         stage is durable and before its messages
//!    └──────── heads, number omitted ◄────────┘         are handed out
//! ```
//!
//! A buffer keeps at most a second of messages, pinned and without their bodies. Messages beyond
//! the rate are only counted. Without an open tap, a turn costs one relaxed load.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_model::inspect::HeadFacts;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::command::ReceivedMessage;
use crate::content_ref::{ContentRef, StoredContent};
use crate::findings::{BODY_START_BYTES, TapId};
use crate::ids::{EntityId, SequenceNumber};
use crate::store::StoreError;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of messages that a tap shows in a second.
pub(crate) const HEADS_PER_SECOND: u64 = 50;
/// Maximum bytes of heads that a tap shows in a second.
pub(crate) const BYTES_PER_SECOND: u64 = 256 << 10;
/// Maximum number of messages that wait for their reader.
const WAITING_COUNT_MAX: usize = 100;
/// Maximum bytes of copied heads that wait for their reader.
const WAITING_BYTES_MAX: u64 = 256 << 10;
/// Time without a read after which a tap keeps no messages, and ends if its reader polls.
const UNREAD_MAX: TimeSpan = TimeSpan::from_seconds(10);
/// Bytes that are copied from a content in memory after its header: the start of the body, and the
/// heads of its sections.
const COPIED_BODY_BYTES: usize = 1 << 10;

/// Message in a tap.
pub(crate) type TapMessage = HeadFacts<ReceivedMessage>;

/// The open taps of a broker.
#[derive(Default)]
pub(crate) struct Taps {
    open_count: AtomicUsize,
    by_entity: Mutex<HashMap<EntityId, Vec<Arc<TapBuffer>>>>,
    /// Wakes the sweep of unread taps.
    opened: Notify,
}

/// Messages that wait for the reader of a tap.
pub(crate) struct TapBuffer {
    /// Name of the tap.
    pub(crate) id: TapId,
    /// The tapped entity.
    pub(crate) entity: EntityId,
    /// Whether the reader polls, so that its tap ends when it is not read for some time.
    is_polled: bool,
    state: Mutex<State>,
    arrived: Notify,
}

struct State {
    /// The highest number that was shown or counted.
    seen: SequenceNumber,
    waiting: VecDeque<TapMessage>,
    /// Bytes of copied heads in `waiting`.
    waiting_bytes: u64,
    omitted: u64,
    rate: RateAllowance,
    byte_rate: RateAllowance,
    read_at: Timestamp,
}

/// Messages taken from a buffer.
pub(crate) struct BufferedMessages {
    /// The messages in the order of their numbers.
    pub(crate) messages: Vec<TapMessage>,
    /// Number of messages that are not shown.
    pub(crate) omitted: u64,
}

/// Units that may be used in a second. Unused ones are kept for at most a second.
#[derive(Debug)]
pub(crate) struct RateAllowance {
    per_second: u64,
    left: u64,
    refilled_at: Timestamp,
}

impl RateAllowance {
    /// Returns a full allowance.
    pub(crate) const fn new(per_second: u64, now: Timestamp) -> Self {
        Self { per_second, left: per_second, refilled_at: now }
    }

    /// Returns the units that may be used now.
    pub(crate) fn left(&mut self, now: Timestamp) -> u64 {
        let ticks = u64::try_from(now.since(self.refilled_at).ticks()).unwrap_or_default();
        let second = TimeSpan::from_seconds(1).ticks().unsigned_abs();
        let gained = ticks.min(second) * self.per_second / second;
        if gained > 0 {
            self.left = (self.left + gained).min(self.per_second);
            self.refilled_at = now;
        }
        self.left
    }

    /// Uses units.
    pub(crate) const fn take(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
    }
}

impl Taps {
    /// Whether any entity has a tap.
    pub(crate) fn is_any_open(&self) -> bool {
        self.open_count.load(Ordering::Relaxed) > 0
    }

    /// Opens a tap that shows messages with numbers above `seen`; none if `count_max` are open.
    pub(crate) fn open(
        &self,
        (id, entity): (TapId, EntityId),
        seen: SequenceNumber,
        is_polled: bool,
        count_max: usize,
        now: Timestamp,
    ) -> Option<Arc<TapBuffer>> {
        let more = |count| (count < count_max).then_some(count + 1);
        self.open_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let state = State {
            seen,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            omitted: 0,
            rate: RateAllowance::new(HEADS_PER_SECOND, now),
            byte_rate: RateAllowance::new(BYTES_PER_SECOND, now),
            read_at: now,
        };
        let buffer = Arc::new(TapBuffer {
            id,
            entity,
            is_polled,
            state: Mutex::new(state),
            arrived: Notify::new(),
        });
        self.by_entity().entry(entity).or_default().push(Arc::clone(&buffer));
        self.opened.notify_one();
        Some(buffer)
    }

    /// Closes a tap, unless it is closed already.
    pub(crate) fn close(&self, buffer: &Arc<TapBuffer>) {
        let mut by_entity = self.by_entity();
        let Some(buffers) = by_entity.get_mut(&buffer.entity) else { return };
        let count = buffers.len();
        buffers.retain(|other| !Arc::ptr_eq(other, buffer));
        let closed = count - buffers.len();
        if buffers.is_empty() {
            by_entity.remove(&buffer.entity);
        }
        self.open_count.fetch_sub(closed, Ordering::Relaxed);
    }

    /// Returns the taps of an entity.
    pub(crate) fn of_entity(&self, entity: EntityId) -> Vec<Arc<TapBuffer>> {
        self.by_entity().get(&entity).cloned().unwrap_or_default()
    }

    /// Returns an open tap of an entity whose reader polls.
    pub(crate) fn polled(&self, entity: EntityId, id: TapId) -> Option<Arc<TapBuffer>> {
        let found = |buffer: &Arc<TapBuffer>| buffer.is_polled && buffer.id == id;
        self.of_entity(entity).into_iter().find(found)
    }

    /// Ends taps that nobody polls, and drops the messages of other taps that nobody reads.
    pub(crate) async fn run(&self, clock: &dyn Clock) {
        loop {
            self.opened.notified().await;
            while self.is_any_open() {
                clock.sleep_until(clock.now().plus(UNREAD_MAX)).await;
                self.sweep(clock.now());
            }
        }
    }

    fn sweep(&self, now: Timestamp) {
        let open: Vec<_> = self.by_entity().values().flatten().map(Arc::clone).collect();
        for buffer in open.iter().filter(|buffer| buffer.drop_unread(now)) {
            if buffer.is_polled {
                self.close(buffer);
            }
        }
    }

    fn by_entity(&self) -> MutexGuard<'_, HashMap<EntityId, Vec<Arc<TapBuffer>>>> {
        self.by_entity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TapBuffer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the highest number that was shown or counted, and the number of messages that can be
    /// added now.
    pub(crate) fn room(&self, now: Timestamp) -> (SequenceNumber, u64) {
        let mut state = self.state();
        if state.is_unread(now) || state.waiting_bytes >= WAITING_BYTES_MAX {
            return (state.seen, 0);
        }
        let places = WAITING_COUNT_MAX.saturating_sub(state.waiting.len()) as u64;
        let room = state.rate.left(now).min(places);
        (state.seen, room)
    }

    /// Adds messages of the `count` that were accepted up to number `last`. Messages without room
    /// are only counted.
    pub(crate) fn add(
        &self,
        messages: impl IntoIterator<Item = TapMessage>,
        (last, count): (SequenceNumber, u64),
        now: Timestamp,
    ) {
        let mut state = self.state();
        state.seen = state.seen.max(last);
        let mut added = 0;
        for message in messages {
            let (message, copied_bytes) = without_body(message);
            let places = WAITING_COUNT_MAX.saturating_sub(state.waiting.len());
            let is_room = state.rate.left(now) > 0 && places > 0 && !state.is_unread(now);
            let bytes = state.waiting_bytes.saturating_add(copied_bytes);
            if is_room && bytes <= WAITING_BYTES_MAX {
                state.rate.take(1);
                state.waiting_bytes = bytes;
                state.waiting.push_back(message);
                added += 1;
            }
        }
        state.omitted += count.saturating_sub(added);
        let has_some = !state.waiting.is_empty() || state.omitted > 0;
        drop(state);
        if has_some {
            self.arrived.notify_one();
        }
    }

    /// Takes everything that waits. Messages beyond the bytes of a second are only counted.
    pub(crate) fn take(&self, now: Timestamp) -> BufferedMessages {
        let mut state = self.state();
        state.read_at = now;
        state.waiting_bytes = 0;
        let mut waiting = BufferedMessages { messages: Vec::new(), omitted: 0 };
        for message in std::mem::take(&mut state.waiting) {
            let bytes = u64::from(message.header_size) + BODY_START_BYTES as u64;
            if bytes <= state.byte_rate.left(now) {
                state.byte_rate.take(bytes);
                waiting.messages.push(message);
            } else {
                waiting.omitted += 1;
            }
        }
        waiting.omitted += std::mem::take(&mut state.omitted);
        waiting
    }

    /// Whether a message waits or was counted.
    pub(crate) fn has_some(&self) -> bool {
        let state = self.state();
        !state.waiting.is_empty() || state.omitted > 0
    }

    /// Resolves when messages were added.
    pub(crate) fn arrived(&self) -> impl Future<Output = ()> {
        self.arrived.notified()
    }

    /// Drops the messages if nobody has read the tap for some time, and returns whether that is so.
    /// The messages count as not shown.
    fn drop_unread(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        if !state.is_unread(now) {
            return false;
        }
        state.omitted += state.waiting.len() as u64;
        state.waiting_bytes = 0;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
        true
    }
}

impl State {
    fn is_unread(&self, now: Timestamp) -> bool {
        now.since(self.read_at) > UNREAD_MAX
    }
}

/// Returns a message that holds no body in memory, and the bytes that were copied for it. A pinned
/// reference to content on a medium holds no memory and stays.
pub(crate) fn without_body(mut message: TapMessage) -> (TapMessage, u64) {
    let mut copied_bytes = 0;
    if let ContentRef::Loaded(bytes) = &message.message.content {
        let start = ContentStart::of(bytes, message.header_size);
        copied_bytes += start.bytes.len() as u64;
        message.message.content = ContentRef::Stored(Arc::new(start));
    }
    for overlay in &mut message.message.overlays {
        if let ContentRef::Loaded(bytes) = overlay {
            copied_bytes += bytes.len() as u64;
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }
    (message, copied_bytes)
}

/// The first bytes of a content in memory: enough for a head.
struct ContentStart {
    bytes: Bytes,
    length: u64,
}

impl ContentStart {
    fn of(content: &Bytes, header_size: u32) -> Self {
        let header_size = usize::try_from(header_size).unwrap_or(usize::MAX);
        let wanted = header_size.saturating_add(COPIED_BODY_BYTES);
        let start = content.get(..wanted).unwrap_or(content);
        Self { bytes: Bytes::copy_from_slice(start), length: content.len() as u64 }
    }
}

#[async_trait]
impl StoredContent for ContentStart {
    fn length(&self) -> u64 {
        self.length
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        match self.bytes.len() as u64 == self.length {
            true => Ok(self.bytes.clone()),
            false => Err(StoreError::Gone),
        }
    }

    async fn load_range(&self, from: u64, length: u64) -> Result<Bytes, StoreError> {
        let end = from.saturating_add(length).min(self.length);
        let (Ok(from), Ok(end)) = (usize::try_from(from), usize::try_from(end)) else {
            return Err(StoreError::Gone);
        };
        match end <= self.bytes.len() {
            true => Ok(self.bytes.slice(from.min(end)..end)),
            false => Err(StoreError::Gone),
        }
    }
}

#[cfg(test)]
mod tests;
