//! Grants of connections: checked at every command, and ended in time.
//!
//! ```text
//!  Access ──gives──► Pass ──in──► Entity ──► Entitlement::judge, for each command
//!                     │                      Entitlement::track, for links and waiting calls
//!                     └─ entitlement: Arc<Entitlement> ◄── ExpiringGrants ends it, its links and calls
//! ```
//!
//! This folder lies below the broker and its handles. An [`Entitlement`] knows an entity only as a
//! [`GrantedEntity`], and a [`Pass`] knows the access that gave it only as an [`Issuer`].

mod console;
mod entitlement;
mod expiring;
mod via;

use std::pin::Pin;
use std::sync::Arc;

use crate::error::Rejection;

pub(crate) use self::console::{
    COUNT_MAX as CONSOLE_TOKEN_COUNT_MAX, PresentedToken, SignIn, SignIns,
};
pub(crate) use self::entitlement::{Entitlement, GrantedEntity, TrackedCommand};
pub(crate) use self::expiring::ExpiringGrants;
pub(crate) use self::via::ViaGrant;

/// Permission of a handle on an entity: its grant, and the access that gave it.
pub(crate) struct Pass {
    pub(crate) entitlement: Arc<Entitlement>,
    pub(crate) issuer: Box<dyn Issuer>,
}

/// An access that gives passes.
pub(crate) trait Issuer: Send + Sync {
    /// Returns a pass for the root of a transaction, without a purpose; none if the access may do
    /// everything.
    fn pass_to_root<'a>(&'a self, path: &'a str) -> PassFuture<'a>;
}

/// Future of a pass; it may wait for the authorizer.
pub(crate) type PassFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Arc<Pass>>, Rejection>> + Send + 'a>>;
