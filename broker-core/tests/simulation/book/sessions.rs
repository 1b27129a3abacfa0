//! What the auditor knows of sessions.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_core::command::ReceiveMode;
use peeklock_core::ids::ReceiverId;
use peeklock_core::time::Timestamp;

/// What is known of the state of one session.
#[derive(Debug, Default)]
pub struct States {
    /// The last that was acknowledged, or read back.
    pub known: Option<Bytes>,
    /// What was set and is not answered, or never will be, by ticket.
    pub perhaps: BTreeMap<u64, Option<Bytes>>,
}

impl States {
    /// Whether the state may be this one.
    pub fn may_be(&self, state: Option<&Bytes>) -> bool {
        self.known.as_ref() == state || self.perhaps.values().any(|one| one.as_ref() == state)
    }
}

/// What is known of the sessions of an entity.
#[derive(Default)]
pub struct Sessions {
    /// Who holds a session, and at least until when.
    pub holds: BTreeMap<String, (ReceiverId, Timestamp)>,
    /// Which session a receiver was given, for good.
    pub bound: BTreeMap<ReceiverId, (String, ReceiveMode)>,
    pub states: BTreeMap<String, States>,
    /// States that receivers set who are not known to hold a session.
    pub unbound: BTreeMap<u64, (ReceiverId, Option<Bytes>)>,
    /// Credit that was granted to links that are not known to be open.
    pub limits: BTreeMap<ReceiverId, u64>,
}

impl Sessions {
    /// A receiver holds nothing any more.
    pub fn unlock(&mut self, receiver: ReceiverId) {
        self.holds.retain(|_, (holder, _)| *holder != receiver);
    }

    /// Compares states with what is stored; `waits` says which commands have not run yet (SES-25, LIF-04).
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
