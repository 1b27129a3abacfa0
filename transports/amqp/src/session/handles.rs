//! Handles: short names of links in frames. Each side assigns its own handle to a link, from its
//! `attach` to its `detach` (AMQP 2.6.2).

use std::collections::{BTreeMap, BTreeSet};

use super::Session;
use super::begin::unattached;
use crate::connection::{Fault, LinkId};
use crate::link::Link;

/// Handles of a session.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Generation of the link of each handle that the client assigned.
    of_client: BTreeMap<u32, u64>,
    /// Handles that this side assigned.
    ours: BTreeSet<u32>,
    /// Highest handle that the client takes.
    ours_max: u32,
}

impl Handles {
    /// Makes an empty table for a client whose highest handle is `ours_max`.
    pub(super) fn up_to(ours_max: u32) -> Self {
        Self { ours_max, ..Self::default() }
    }

    /// Returns whether the client has assigned a handle to a link.
    pub(crate) fn is_used_by_client(&self, handle: u32) -> bool {
        self.of_client.contains_key(&handle)
    }

    /// Assigns a handle of the client to a link.
    pub(crate) fn map(&mut self, handle: u32, generation: u64) {
        self.of_client.insert(handle, generation);
    }

    /// Frees a handle of the client after its `detach`.
    pub(crate) fn unmap(&mut self, handle: u32) {
        self.of_client.remove(&handle);
    }

    /// Assigns a handle of this side to the link with the client's handle `of_client`: the same
    /// number if it is free, which is easier to follow in a trace, else the lowest free one.
    /// Returns `None` if the client's handle-max allows no more.
    pub(crate) fn take_ours(&mut self, of_client: u32) -> Option<u32> {
        let is_free = |handle: &u32| !self.ours.contains(handle);
        let same = Some(of_client).filter(|handle| *handle <= self.ours_max && is_free(handle));
        let handle = same.or_else(|| (0..=self.ours_max).find(is_free))?;
        self.ours.insert(handle);
        Some(handle)
    }

    /// Frees a handle of this side after its `detach` was sent.
    pub(crate) fn free_ours(&mut self, handle: u32) {
        self.ours.remove(&handle);
    }

    /// Frees all handles.
    pub(super) fn clear(&mut self) {
        self.of_client.clear();
        self.ours.clear();
    }
}

impl Session {
    /// Returns the link of a handle of the client, with its identifier.
    pub(crate) fn link_at(
        &mut self,
        channel: u16,
        handle: u32,
    ) -> Result<(LinkId, &mut Link), Fault> {
        let session = self.id(channel);
        let generation = self.handles.of_client.get(&handle).copied();
        let id = generation.map(|generation| LinkId { session, generation });
        let found = id.and_then(|id| Some((id, self.links.get_mut(&id.generation)?)));
        found.ok_or_else(|| unattached(handle))
    }
}
