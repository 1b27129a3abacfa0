//! What an access remembers of what was granted, within a bound: the rest is asked for again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::grant::Entitlement;

/// What is remembered of entities that no handle is on, in bytes: some sixty of them.
const BYTES_MAX: usize = 16 << 10;
/// What one takes beside its path.
const ENTRY_BYTES: usize = 256;

/// What was granted, by the path of the entity.
#[derive(Default)]
pub(super) struct Remembered {
    held: HashMap<Box<str>, Arc<Entitlement>>,
    bytes: usize,
}

impl Remembered {
    pub(super) fn get(&self, resource: &str) -> Option<Arc<Entitlement>> {
        self.held.get(resource).cloned()
    }

    /// Remembers one, and forgets those that no handle is on if they are too many.
    pub(super) fn insert(&mut self, resource: &str, held: &Arc<Entitlement>) {
        if self.bytes + cost(resource) > BYTES_MAX {
            self.forget_unused();
        }
        if self.held.insert(resource.into(), Arc::clone(held)).is_none() {
            self.bytes += cost(resource);
        }
    }

    /// Forgets what no handle is on, but for the namespace, which none ever is: by that its principal is known.
    pub(super) fn forget_unused(&mut self) {
        self.forget(str::is_empty);
    }

    /// The same for a principal that shows something else, of whom that is not said yet.
    pub(super) fn forget_unused_of_before(&mut self) {
        self.forget(|_| false);
    }

    fn forget(&mut self, stays: impl Fn(&str) -> bool) {
        self.held.retain(|resource, held| stays(resource) || Arc::strong_count(held) > 1);
        self.bytes = self.held.keys().map(|resource| cost(resource)).sum();
        if self.held.capacity() > 2 * (self.held.len() + BYTES_MAX / ENTRY_BYTES) {
            self.held.shrink_to_fit();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Entitlement>)> {
        self.held.iter().map(|(resource, held)| (&**resource, held))
    }
}

const fn cost(resource: &str) -> usize {
    resource.len() + ENTRY_BYTES
}
