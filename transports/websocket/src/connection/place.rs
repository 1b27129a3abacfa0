//! The slot of a conversation among the permitted connections (QUO-01), and its defence against
//! other clients.
//!
//! A client authenticates with its hello. Until its credentials are checked, it uses a spare socket
//! and no other resource. A client with a key is therefore always served: if all slots are taken,
//! it gets the slot of a client without a key (SEC-16).

use std::net::SocketAddr;

use peeklock_core::Access;
use peeklock_core::admission::{Newcomer, Places};

use super::Conversation;

/// The class of a client in the competition for slots, by the credentials of its hello. They are
/// checked only if another connection would have to end; otherwise with its first request. An
/// invalid token counts as a failed attempt, although its client may only receive the error that no
/// slot is free (SEC-22).
pub(super) async fn newcomer(
    places: &Places,
    access: &Access,
    peer: Option<SocketAddr>,
) -> Newcomer {
    if !places.is_full() || !access.verify_credentials().await {
        return Newcomer::Stranger;
    }
    match shows_token(access) {
        true => Newcomer::ByKey,
        false => Newcomer::Known(peer),
    }
}

/// Whether the client has presented a token, valid or not.
fn shows_token(access: &Access) -> bool {
    access.principal().is_some_and(|principal| principal.token.is_some())
}

impl Conversation {
    /// Checks whether the token was found valid and still is, and records whether a client with a
    /// token may claim its slot.
    pub(crate) fn update_shows_key(&mut self) {
        self.has_valid_token = shows_token(&self.engine.access) && self.engine.access.holds();
        self.engine.place.mark_key(self.has_valid_token);
    }
}
