//! What an operator can set.

use std::sync::Arc;

use peeklock_core::clock::{Clock, SystemClock};
use peeklock_core::time::TimeSpan;

use crate::algorithm::Algorithm;
use crate::roles::Role;
use crate::source::KeySource;

/// Whose tokens are taken, and what they give.
#[derive(Clone)]
#[non_exhaustive]
pub struct JwtConfig {
    /// `security.jwt.issuer`: what stands in the claim `iss`.
    pub issuer: String,
    /// `security.jwt.audiences`: one of them stands in the claim `aud`.
    pub audiences: Vec<String>,
    /// `security.jwt.jwks_url` or `jwks_file`: where the keys of the issuer are.
    pub keys: KeySource,
    /// `security.jwt.algorithms`: those with which tokens may be signed.
    pub algorithms: Vec<Algorithm>,
    /// `security.jwt.clock_skew`: by how much the clock of the issuer may differ.
    pub clock_skew: TimeSpan,
    /// `security.jwt.role_claims`: the claims that name roles; a name with dots leads into objects.
    pub role_claims: Vec<String>,
    /// `security.jwt.roles`: what each role gives.
    pub roles: Vec<Role>,
    /// Says when a token has expired, and keys are old.
    pub clock: Arc<dyn Clock>,
}

impl JwtConfig {
    /// Tokens of this issuer for this audience, with these keys. Nobody is given anything yet: there are no
    /// [`roles`](Self::roles).
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
