//! Remembers the grants of an access, within a bound in bytes. Forgotten ones are requested again.
//! Each access has one. A grant that has ended is never used again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::grant::Entitlement;

/// Maximum bytes of remembered grants of entities without a handle: about sixty entities.
const BYTES_MAX: usize = 16 << 10;
/// Approximate bytes of an entry without its path.
const ENTRY_BYTES: usize = 256;

/// Grants by the path of their entity.
#[derive(Default)]
pub(super) struct GrantCache {
    entitlements: HashMap<Box<str>, Arc<Entitlement>>,
    bytes: usize,
}

impl GrantCache {
    pub(super) fn get(&self, resource: &str) -> Option<Arc<Entitlement>> {
        self.entitlements.get(resource).cloned()
    }

    /// Remembers a grant. At the bound, first forgets those without a handle.
    pub(super) fn insert(&mut self, resource: &str, entitlement: &Arc<Entitlement>) {
        if self.bytes + cost(resource) > BYTES_MAX {
            self.forget_unused();
        }
        if self.entitlements.insert(resource.into(), Arc::clone(entitlement)).is_none() {
            self.bytes += cost(resource);
        }
    }

    /// Forgets grants without a handle, but keeps the namespace, which never has one: its entry
    /// identifies the principal.
    pub(super) fn forget_unused(&mut self) {
        self.forget(str::is_empty);
    }

    /// Forgets all grants without a handle, including the namespace: the principal has new
    /// credentials, which are not yet checked.
    pub(super) fn forget_all_unused(&mut self) {
        self.forget(|_| false);
    }

    fn forget(&mut self, stays: impl Fn(&str) -> bool) {
        self.entitlements
            .retain(|resource, entitlement| stays(resource) || Arc::strong_count(entitlement) > 1);
        self.bytes = self.entitlements.keys().map(|resource| cost(resource)).sum();
        if self.entitlements.capacity() > 2 * (self.entitlements.len() + BYTES_MAX / ENTRY_BYTES) {
            self.entitlements.shrink_to_fit();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Entitlement>)> {
        self.entitlements.iter().map(|(resource, entitlement)| (&**resource, entitlement))
    }
}

const fn cost(resource: &str) -> usize {
    resource.len() + ENTRY_BYTES
}
