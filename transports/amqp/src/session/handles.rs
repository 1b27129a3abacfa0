//! Handles: short names of links in frames. The client's stand in what it sends, ours in what it is sent, each from
//! the `attach` of its side to the `detach` of that side (AMQP 2.6.2).

use std::collections::{BTreeMap, BTreeSet};

use super::Session;
use super::begin::unattached;
use crate::connection::{Fault, LinkId};
use crate::link::Link;

/// The handles of a session.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// The generations of the links that the client's stand for.
    of_client: BTreeMap<u32, u64>,
    /// Those of ours that stand for links.
    ours: BTreeSet<u32>,
    /// The highest that the client takes.
    ours_max: u32,
}

impl Handles {
    /// Those of a client that takes none above this one.
    pub(super) fn up_to(ours_max: u32) -> Self {
        Self { ours_max, ..Self::default() }
    }

    /// Whether one of the client's stands for a link.
    pub(crate) fn is_used_by_client(&self, handle: u32) -> bool {
        self.of_client.contains_key(&handle)
    }

    /// One of the client's stands for a link from now on.
    pub(crate) fn map(&mut self, handle: u32, generation: u64) {
        self.of_client.insert(handle, generation);
    }

    /// One of the client's is free again: it has sent its `detach`.
    pub(crate) fn unmap(&mut self, handle: u32) {
        self.of_client.remove(&handle);
    }

    /// One of ours, for what the client calls so: the same if it is free, which is easier to follow in a trace; else
    /// the lowest. None if the client takes no more.
    pub(crate) fn take_ours(&mut self, of_client: u32) -> Option<u32> {
        let is_free = |handle: &u32| !self.ours.contains(handle);
        let same = Some(of_client).filter(|handle| *handle <= self.ours_max && is_free(handle));
        let handle = same.or_else(|| (0..=self.ours_max).find(is_free))?;
        self.ours.insert(handle);
        Some(handle)
    }

    /// One of ours is free again: our `detach` was sent.
    pub(crate) fn free_ours(&mut self, handle: u32) {
        self.ours.remove(&handle);
    }

    /// All are free.
    pub(super) fn clear(&mut self) {
        self.of_client.clear();
        self.ours.clear();
    }
}

impl Session {
    /// The link that a handle of the client's stands for, and its name.
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
