//! Settings of the authorizer. The server reads them from its configuration file. Invalid
//! combinations are refused when the authorizer is built.

use std::sync::Arc;

use peeklock_core::clock::{Clock, SystemClock};
use peeklock_core::time::TimeSpan;

use crate::algorithm::Algorithm;
use crate::roles::Role;
use crate::source::KeySource;

/// The accepted tokens, and the rights that they give.
#[derive(Clone)]
#[non_exhaustive]
pub struct JwtConfig {
    /// `security.jwt.issuer`: the required claim `iss`.
    pub issuer: String,
    /// `security.jwt.audiences`: the claim `aud` must contain at least one.
    pub audiences: Vec<String>,
    /// `security.jwt.jwks_url` or `jwks_file`: source of the issuer's keys.
    pub keys: KeySource,
    /// `security.jwt.algorithms`: the permitted signature algorithms.
    pub algorithms: Vec<Algorithm>,
    /// `security.jwt.clock_skew`: maximum difference to the issuer's clock.
    pub clock_skew: TimeSpan,
    /// `security.jwt.role_claims`: the claims that contain roles; a name with dots is a path into
    /// objects.
    pub role_claims: Vec<String>,
    /// `security.jwt.roles`: the rights of each role.
    pub roles: Vec<Role>,
    /// Clock for the expiry of tokens and the age of keys.
    pub clock: Arc<dyn Clock>,
}

impl JwtConfig {
    /// Creates a configuration for tokens of `issuer` for `audience`. It grants nothing until
    /// [`roles`](Self::roles) is set.
    #[must_use]
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, keys: KeySource) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            keys,
            algorithms: vec![Algorithm::Rs256, Algorithm::Es256],
            clock_skew: TimeSpan::from_minutes(1),
            role_claims: vec!["roles".to_owned()],
            roles: Vec::new(),
            clock: Arc::new(SystemClock::start()),
        }
    }
}
