//! Who is let in while there are no policies and keys yet: everybody or nobody (SEC-17).

use std::sync::Arc;

use async_trait::async_trait;
use peeklock::contract::{AllowAll, Authorizer, Principal, Right};
use peeklock::error::Rejection;

use crate::config::SecuritySection;

/// The authorizer that the configuration asks for.
pub fn authorizer(security: &SecuritySection) -> Arc<dyn Authorizer> {
    if security.allow_anonymous.0 { Arc::new(AllowAll) } else { Arc::new(RefuseAll) }
}

/// Refuses every client: without policies no token can be valid.
struct RefuseAll;

#[async_trait]
impl Authorizer for RefuseAll {
    async fn authorize(&self, _: &Principal, _: Right, _: &str) -> Result<(), Rejection> {
        Err(Rejection::unauthorized(
            "anonymous access is off (security.allow_anonymous = false) and this version has no \
             policies",
        ))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}
