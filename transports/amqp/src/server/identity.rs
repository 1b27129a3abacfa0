//! The identity of a client: its address, its credentials, and the tokens that it has put. Rights
//! are checked for each link, by the token whose path is nearest.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use peeklock_core::Access;
use peeklock_core::contract::Principal;
use peeklock_core::time::Timestamp;

/// Identity of a client, with its credentials.
pub(super) struct Identity {
    /// Identity before the first byte: address and certificate.
    pub(super) principal: Principal,
    pub(super) tokens: Vec<PutToken>,
    pub(super) logged_in: LoginKind,
    /// Time of the last check that found a valid credential.
    pub(super) last_valid_at: Instant,
}

impl Identity {
    pub(super) fn new(principal: Principal) -> Self {
        Self {
            principal,
            tokens: Vec::new(),
            logged_in: LoginKind::Not,
            last_valid_at: Instant::now(),
        }
    }

    /// Returns the token as a shared text; equal tokens share one allocation.
    pub(super) fn shared_token(&self, token: &str) -> Arc<str> {
        let same = self.tokens.iter().find(|known| *known.token == *token);
        same.map_or_else(|| Arc::from(token), |known| Arc::clone(&known.token))
    }

    /// Bytes of all tokens that the client has put, with their paths, except the token for the path
    /// `but`. Equal tokens count once.
    pub(super) fn held_token_bytes(&self, but: Option<&str>) -> usize {
        let mut counted = HashSet::new();
        let others = self.tokens.iter().filter(|known| but != Some(&*known.path));
        let bytes = others.map(|known| {
            let is_new = counted.insert(Arc::as_ptr(&known.token));
            known.path.len() + if is_new { known.token.len() } else { 0 }
        });
        bytes.sum()
    }
}

/// Credential with which a client has logged in. The client counts as known while it is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginKind {
    /// No valid credential: the client puts tokens, or is disconnected.
    Not,
    /// Certificate; valid while the authorizer's grant for it is.
    ByCertificate,
    /// Key or token, with or without a certificate; valid while its grant is.
    ByPassword,
}

/// A token that a client has put, and the path to which it applies.
pub(super) struct PutToken {
    /// Path in folded case; empty for the namespace.
    pub(super) path: Box<str>,
    pub(super) access: Access,
    /// Text of the token; tokens for many entities may share it.
    pub(super) token: Arc<str>,
    pub(super) put_at: Timestamp,
}

impl PutToken {
    /// Returns whether the token applies to a path in folded case.
    pub(super) fn covers(&self, folded: &str) -> bool {
        let rest = folded.strip_prefix(&*self.path);
        rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}
