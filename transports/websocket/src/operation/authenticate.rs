//! Replaces the token of a connection with a later one. `operation.rs` calls it. Links stay open
//! while the new token grants their rights.

use serde::{Deserialize, Serialize};

use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::wire::wire;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Authenticate {
    pub(crate) token: String,
}
wire!(Authenticate { token: String });

impl std::fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authenticate")
    }
}

impl Conversation {
    pub(super) async fn authenticate(
        &mut self,
        admitted: &AdmittedRequest,
        shown: Authenticate,
    ) -> Done {
        let principal = self.engine.access.principal().map(|known| (*known).clone());
        self.engine.access.renew(principal.unwrap_or_default().with_token(shown.token)).await;
        self.update_shows_key();
        self.done(admitted)
    }
}
