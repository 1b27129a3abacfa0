//! The identity of a client, and the tokens that it has shown.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use peeklock_core::Access;
use peeklock_core::contract::Principal;
use peeklock_core::time::Timestamp;

/// The identity of a client, by the proofs that it has shown.
pub(super) struct Identity {
    /// The identity before it has sent anything: its address, its certificate.
    pub(super) who: Principal,
    pub(super) shown: Vec<ShownToken>,
    pub(super) logged_in: LoggedIn,
    /// When one of its proofs was good the last time that was asked.
    pub(super) known_at: Instant,
}

impl Identity {
    pub(super) fn new(who: Principal) -> Self {
        Self { who, shown: Vec::new(), logged_in: LoggedIn::Not, known_at: Instant::now() }
    }

    /// A token that was put, shared with the others that are the same.
    pub(super) fn kept_token(&self, token: &str) -> Arc<str> {
        let same = self.shown.iter().find(|shown| *shown.token == *token);
        same.map_or_else(|| Arc::from(token), |shown| Arc::clone(&shown.token))
    }

    /// The bytes of all tokens and their paths, without the one for `but`; each token counts once.
    pub(super) fn shown_bytes(&self, but: Option<&str>) -> usize {
        let mut counted = HashSet::new();
        let others = self.shown.iter().filter(|shown| but != Some(&*shown.path));
        let bytes = others.map(|shown| {
            let is_new = counted.insert(Arc::as_ptr(&shown.token));
            shown.path.len() + if is_new { shown.token.len() } else { 0 }
        });
        bytes.sum()
    }
}

/// How a client has logged in, which is what it is known by as long as that is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LoggedIn {
    /// By nothing that is good: it puts tokens, or goes.
    Not,
    /// By its certificate: as long as what the authorizer has granted its bearer.
    ByCertificate,
    /// By a key or a token, whether it has a certificate besides or not: as long as what that gives.
    ByPassword,
}

/// What a client has shown, and where it counts.
pub(super) struct ShownToken {
    /// In folded case; empty for the namespace.
    pub(super) path: Box<str>,
    pub(super) access: Access,
    /// Tokens for many entities may be one, which is kept once.
    pub(super) token: Arc<str>,
    pub(super) put_at: Timestamp,
}

impl ShownToken {
    /// Whether it counts at a path in folded case.
    pub(super) fn covers(&self, folded: &str) -> bool {
        let rest = folded.strip_prefix(&*self.path);
        rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}
