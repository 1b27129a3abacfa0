//! Who is let in while there are no policies and keys yet: everybody or nobody (SEC-17).

use async_trait::async_trait;
use peeklock::contract::{Authorizer, Grant, Principal};
use peeklock::error::Rejection;

/// Refuses every client: without policies no token can be valid.
pub struct RefuseAll;

#[async_trait]
impl Authorizer for RefuseAll {
    async fn authorize(&self, _: &Principal, _: &str) -> Result<Grant, Rejection> {
        Err(Rejection::unauthorized(
            "anonymous access is off (security.allow_anonymous = false) and this version has no \
             policies",
        ))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}
