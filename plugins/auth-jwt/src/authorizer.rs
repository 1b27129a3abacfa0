//! The authorizer: what a bearer token is worth at a resource.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Failures, Grant, Mark, Principal, bearer_token};
use peeklock_core::error::Rejection;
use peeklock_core::time::Timestamp;

use crate::config::JwtConfig;
use crate::keys::Keys;
use crate::refused::Refused;
use crate::roles::{self, Role};
use crate::token::Token;

/// Grants who shows a token of an issuer what the roles in it give. About everybody else another authorizer is asked
/// (SEC-27).
pub struct JwtAuthorizer {
    config: JwtConfig,
    keys: Keys,
    failures: Failures,
    others: Arc<dyn Authorizer>,
}

/// What a good token gives, wherever that is.
struct Verified<'a> {
    roles: Vec<&'a Role>,
    until: Timestamp,
    mark: Mark,
}

impl JwtAuthorizer {
    /// An authorizer for the tokens of an issuer, and one for all who show no such token.
    #[must_use]
    pub fn new(config: JwtConfig, others: Arc<dyn Authorizer>) -> Self {
        let keys = Keys::new(config.keys.clone(), Arc::clone(&config.clock));
        Self { config, keys, failures: Failures::default(), others }
    }

    /// What a token gives, if it is good (SEC-28). Nothing that it says is looked at before its signature.
    async fn verify(&self, text: &str) -> Result<Verified<'_>, Refused> {
        let token = Token::read(text)?;
        if !self.config.algorithms.contains(&token.algorithm) {
            return Err(Refused::Algorithm);
        }
        let found = self.keys.find(&token).await?;
        let claims = token.verify(&found.key.public)?;
        let until = claims.judge(&self.config, self.config.clock.now())?;
        let names: Vec<&str> =
            self.config.role_claims.iter().flat_map(|claim| claims.roles(claim)).collect();
        Ok(Verified { roles: roles::held(&self.config.roles, &names), until, mark: found.mark })
    }

    /// Lets who may be guessing wait (SEC-26).
    async fn refuse(&self, principal: &Principal, refused: Refused) -> Rejection {
        if refused.is_attempt() {
            self.failures.hold_back(principal, &*self.config.clock).await;
        }
        refused.into()
    }
}

impl Verified<'_> {
    /// What it gives at a resource: up to its end (SEC-31), and as long as the issuer keeps its key (SEC-29).
    fn grant(&self, resource: &str) -> Grant {
        let rights = roles::rights(self.roles.iter().copied(), resource);
        Grant::of(rights).until(self.until).within(self.mark.clone())
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

    /// The token is verified once.
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
