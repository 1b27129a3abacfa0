//! Table of the pending requests of a connection, and the correlations that lead from an answer to
//! its request. The links and the transports share it. Invariant: a slot is reused only after its
//! request was removed.

use std::collections::HashSet;
use std::sync::Arc;

use peeklock_core::admission::Permit;

/// Request whose answer is awaited.
pub struct PendingRequest<T> {
    /// Id that the client gave the request; 0 if it has none.
    pub id: u32,
    /// Number of the link on which it was issued.
    pub link: u32,
    /// Path of the entity, for error messages.
    pub path: Arc<str>,
    /// Expected answer, with the parts that have arrived.
    pub expect: T,
    /// Permit of the request, returned when this is dropped.
    pub permit: Option<Arc<Permit>>,
}

/// All pending requests of a connection. The correlation of a command consists of its slot here and
/// its index within the request.
pub struct PendingTable<T> {
    slots: Vec<Option<PendingRequest<T>>>,
    free: Vec<usize>,
    /// Ids that clients gave to their requests.
    ids: HashSet<u32>,
}

impl<T> Default for PendingTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: HashSet::new() }
    }
}

impl<T> PendingTable<T> {
    /// Adds a request; returns its slot.
    pub fn insert(&mut self, pending: PendingRequest<T>) -> usize {
        if pending.id != 0 {
            self.ids.insert(pending.id);
        }
        match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.slots.get_mut(slot) {
                    *place = Some(pending);
                }
                slot
            }
            None => {
                self.slots.push(Some(pending));
                self.slots.len() - 1
            }
        }
    }

    /// The request in a slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&PendingRequest<T>> {
        self.slots.get(slot)?.as_ref()
    }

    /// The request in a slot, mutable.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut PendingRequest<T>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Removes a request and frees its slot.
    pub fn remove(&mut self, slot: usize) -> Option<PendingRequest<T>> {
        let pending = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        if pending.id != 0 {
            self.ids.remove(&pending.id);
        }
        Some(pending)
    }

    /// Whether a request with this id is unanswered.
    #[must_use]
    pub fn awaits(&self, id: u32) -> bool {
        id != 0 && self.ids.contains(&id)
    }

    /// Number of requests whose expected answer satisfies `is_kind`.
    pub fn count(&self, is_kind: impl Fn(&T) -> bool) -> usize {
        self.slots.iter().flatten().filter(|pending| is_kind(&pending.expect)).count()
    }

    /// Number of pending requests.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no request is pending.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Correlation of a command.
#[must_use]
pub fn correlation(slot: usize, index: usize) -> u64 {
    ((slot as u64) << 32) | (index as u64 & u64::from(u32::MAX))
}

/// Slot and index of a correlation.
#[must_use]
pub fn slot_and_index(correlation: u64) -> (usize, usize) {
    let part = |bits: u64| usize::try_from(bits & u64::from(u32::MAX)).unwrap_or(usize::MAX);
    (part(correlation >> 32), part(correlation))
}
