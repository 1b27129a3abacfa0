//! Commands under way: what each answers, and the place of its answer.

use std::collections::HashSet;
use std::sync::Arc;

use peeklock_core::permits::Permit;

/// A request whose answer is awaited.
pub struct Pending<T> {
    /// The id that the client gave it.
    pub id: u32,
    /// The link that it was asked on.
    pub link: u32,
    /// The entity, for errors.
    pub path: Arc<str>,
    /// What is awaited, and what of it has come.
    pub expect: T,
    /// Given back when this is dropped.
    pub permit: Option<Arc<Permit>>,
}

/// All requests of a connection whose answers are awaited. The correlation of a command is its place
/// here and its index within the request.
pub struct PendingTable<T> {
    slots: Vec<Option<Pending<T>>>,
    free: Vec<usize>,
    /// The ids that clients gave them.
    ids: HashSet<u32>,
}

impl<T> Default for PendingTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: HashSet::new() }
    }
}

impl<T> PendingTable<T> {
    /// Adds a request; returns its place.
    pub fn insert(&mut self, pending: Pending<T>) -> usize {
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

    /// The request at a place.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&Pending<T>> {
        self.slots.get(slot)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Pending<T>> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes a request out; its place is free.
    pub fn remove(&mut self, slot: usize) -> Option<Pending<T>> {
        let pending = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        if pending.id != 0 {
            self.ids.remove(&pending.id);
        }
        Some(pending)
    }

    /// Whether a request with this id is not answered yet.
    #[must_use]
    pub fn awaits(&self, id: u32) -> bool {
        id != 0 && self.ids.contains(&id)
    }

    /// How many requests await something of this kind.
    pub fn count(&self, is_kind: impl Fn(&T) -> bool) -> usize {
        self.slots.iter().flatten().filter(|pending| is_kind(&pending.expect)).count()
    }

    /// How many requests are under way.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The correlation of a command.
#[must_use]
pub fn correlation(slot: usize, index: usize) -> u64 {
    ((slot as u64) << 32) | (index as u64 & u64::from(u32::MAX))
}

/// Place and index of a correlation.
#[must_use]
pub fn place(correlation: u64) -> (usize, usize) {
    let part = |bits: u64| usize::try_from(bits & u64::from(u32::MAX)).unwrap_or(usize::MAX);
    (part(correlation >> 32), part(correlation))
}
