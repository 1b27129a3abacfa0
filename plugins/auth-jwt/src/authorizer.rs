//! The authorizer: it verifies the bearer token of a client and grants the rights of its roles at a
//! resource. The broker calls it for each access check.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Failures, Grant, Mark, Principal, bearer_token};
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

use crate::config::JwtConfig;
use crate::keys::Keys;
use crate::refused::TokenError;
use crate::roles::{self, Role};
use crate::token::Token;

/// Grants the rights of the roles in a bearer token of the issuer. Asks another authorizer about
/// clients without a bearer token (SEC-27).
pub struct JwtAuthorizer {
    config: JwtConfig,
    keys: Keys,
    failures: Failures,
    others: Arc<dyn Authorizer>,
}

/// Content of a valid token that is the same at every resource.
struct Verified<'a> {
    roles: Vec<&'a Role>,
    until: Timestamp,
    mark: Mark,
}

impl JwtAuthorizer {
    /// Creates an authorizer for the tokens of the configured issuer; `others` decides about
    /// clients that present no bearer token.
    #[must_use]
    pub fn new(config: JwtConfig, others: Arc<dyn Authorizer>) -> Self {
        let keys = Keys::new(config.keys.clone(), Arc::clone(&config.clock));
        Self { config, keys, failures: Failures::default(), others }
    }

    /// Verifies a token (SEC-28). Reads no claim before the signature is verified.
    async fn verify(&self, text: &str) -> Result<Verified<'_>, TokenError> {
        let token = Token::read(text)?;
        if !self.config.algorithms.contains(&token.algorithm) {
            return Err(TokenError::Algorithm);
        }
        let found = self.keys.find(&token).await?;
        let claims = token.verify(&found.key.public)?;
        let until = claims.judge(&self.config, self.config.clock.now())?;
        let names: Vec<&str> =
            self.config.role_claims.iter().flat_map(|claim| claims.roles(claim)).collect();
        Ok(Verified {
            roles: roles::with_names(&self.config.roles, &names),
            until,
            mark: found.mark,
        })
    }

    /// Converts a refusal, after a delay if the client may be guessing (SEC-26).
    async fn refuse(&self, principal: &Principal, refused: TokenError) -> Rejection {
        if refused.is_attempt() {
            self.failures.delay_answer(principal, &*self.config.clock).await;
        }
        refused.into()
    }
}

impl Verified<'_> {
    /// Returns the grant at a resource. It ends with the token (SEC-31), or when the issuer
    /// withdraws the key (SEC-29).
    fn grant(&self, resource: &str) -> Grant {
        let rights = roles::rights(self.roles.iter().copied(), resource);
        Grant::of(rights).with_end(self.until).with_epoch(self.mark.clone())
    }
}

#[async_trait]
impl Authorizer for JwtAuthorizer {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        let Some(text) = principal.token.as_deref().and_then(bearer_token) else {
            return self.others.authorize(principal, resource).await;
        };
        match self.verify(text).await {
            Ok(verified) => Ok(verified.grant(resource)),
            Err(refused) => Err(self.refuse(principal, refused).await),
        }
    }

    /// Verifies the token only once for all resources.
    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let Some(text) = principal.token.as_deref().and_then(bearer_token) else {
            return self.others.authorize_all(principal, resources).await;
        };
        match self.verify(text).await {
            Ok(verified) => resources.iter().map(|resource| verified.grant(resource)).collect(),
            Err(_) => vec![Grant::nothing(); resources.len()],
        }
    }

    fn allows_anonymous(&self) -> bool {
        self.others.allows_anonymous()
    }
}
