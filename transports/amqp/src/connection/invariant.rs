//! Conditions that hold for a connection at any time, for tests and fuzzing (feature `testing`).
//! `exercise` calls it after each step.

use super::Connection;

/// Maximum number of bytes that may wait beyond the bound at which reading stops.
const EXCESS_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Maximum number of links beyond the limit: refused links that are not detached.
const REFUSED_LINKS_MAX: usize = 1 + 8 * 4;
/// Maximum number of events that one frame leaves.
const EVENTS_MAX: usize = 4;

impl Connection {
    /// Checks output, links and events against their bounds, and the counters of links against the links.
    ///
    /// # Panics
    /// When a condition does not hold.
    pub fn check_invariants(&self) {
        let waiting_max = self.config.output_bytes_max + EXCESS_BYTES_MAX;
        assert!(self.waiting_bytes() < waiting_max, "too much waits to be written");
        assert!(self.link_count <= self.config.link_count_max + REFUSED_LINKS_MAX);
        let links = || self.sessions.values().flat_map(|session| session.links.values());
        assert_eq!(self.links_bytes, links().map(|link| link.kept_bytes).sum::<usize>());
        let link_count = links().count();
        assert_eq!(self.link_count, link_count, "links are miscounted");
        assert!(self.events.len() <= EVENTS_MAX, "events queue up");
        assert!(self.unsent_links.len() <= link_count);
    }
}
