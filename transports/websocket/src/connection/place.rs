//! The place of a conversation among those that there may be (QUO-01), and who has that of another.
//!
//! A client says by its hello who it is: until then, and while that is judged, it is on a spare socket and holds
//! nothing. So whoever has a key is heard, whoever holds the places, and gets one of who has shown none (SEC-16).

use std::net::SocketAddr;

use peeklock_core::Access;
use peeklock_core::admission::{Newcomer, Places};

use super::Conversation;

/// Who wants a place, by what its hello shows. Judged only where somebody would have to go for it; otherwise not before
/// something is asked for. A token that is not good is told as an attempt, although its client may only hear that there
/// is no place (SEC-22).
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

/// Whether it has shown what not everybody has, good or not.
fn shows_token(access: &Access) -> bool {
    access.principal().is_some_and(|principal| principal.token.is_some())
}

impl Conversation {
    /// Looks whether its token has been found good and is so still, and says whether its place can be needed by who
    /// shows one.
    pub(crate) fn update_shows_key(&mut self) {
        self.has_valid_token = shows_token(&self.engine.access) && self.engine.access.holds();
        self.engine.standing.mark_key(self.has_valid_token);
    }
}
