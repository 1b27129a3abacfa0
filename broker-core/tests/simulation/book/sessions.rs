//! The auditor's knowledge of sessions.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_core::command::ReceiveMode;
use peeklock_core::ids::ReceiverId;
use peeklock_core::time::Timestamp;

/// Knowledge about the state of one session.
#[derive(Debug, Default)]
pub struct States {
    /// The last acknowledged or read-back state.
    pub known: Option<Bytes>,
    /// States whose setting has no answer yet, by ticket.
    pub perhaps: BTreeMap<u64, Option<Bytes>>,
}

impl States {
    /// Whether the state may have this value.
    pub fn may_be(&self, state: Option<&Bytes>) -> bool {
        self.known.as_ref() == state || self.perhaps.values().any(|one| one.as_ref() == state)
    }
}

/// Knowledge about the sessions of an entity.
#[derive(Default)]
pub struct Sessions {
    /// Holder of each session, and the earliest end of its lock.
    pub holds: BTreeMap<String, (ReceiverId, Timestamp)>,
    /// The session that a receiver was given, permanently.
    pub bound: BTreeMap<ReceiverId, (String, ReceiveMode)>,
    pub states: BTreeMap<String, States>,
    /// States that were set by receivers not known to hold a session.
    pub unbound: BTreeMap<u64, (ReceiverId, Option<Bytes>)>,
    /// Credit granted to links not known to be open.
    pub limits: BTreeMap<ReceiverId, u64>,
}

impl Sessions {
    /// A receiver holds nothing any more.
    pub fn unlock(&mut self, receiver: ReceiverId) {
        self.holds.retain(|_, (holder, _)| *holder != receiver);
    }

    /// Compares states with the stored ones; `waits` returns whether a command has not run yet
    /// (SES-25, LIF-04).
    pub fn inspect(&mut self, stored: &BTreeMap<String, Bytes>, waits: impl Fn(u64) -> bool) {
        for session in stored.keys() {
            self.states.entry(session.clone()).or_default();
        }
        for (session, states) in &mut self.states {
            let found = stored.get(session);
            let is_unbound = self.unbound.values().any(|(_, state)| state.as_ref() == found);
            assert!(
                states.may_be(found) || is_unbound,
                "the state of {session} is stored as {found:?}, which nobody set last: {states:?} \
                 (SES-25)"
            );
            states.known = found.cloned();
            states.perhaps.retain(|ticket, _| waits(*ticket));
        }
        self.unbound.retain(|ticket, _| waits(*ticket));
    }
}
