//! The authorizer: what a token is worth at a resource, or a key.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Failures, Grant, PresentedKey, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyFound, Policies, Policy, WhichKey};
use peeklock_core::time::Timestamp;

use crate::audience::Audience;
use crate::config::SasConfig;
use crate::token::{Named, Refused, Token};

/// Grants who has signed with a key of a policy what that policy gives (SEC-12).
pub struct SasAuthorizer {
    policies: Policies,
    config: SasConfig,
    failures: Failures,
}

/// A token with what it is for, and the policy that was found last to have signed it: many resources are asked about
/// for one list.
struct Shown<'a> {
    token: Token<'a>,
    audience: Audience,
    verified: Option<(Arc<Policy>, Option<WhichKey>)>,
    /// How many policies it was compared with.
    compared: usize,
}

/// With so many policies a token is compared before it is told that its signature is wrong, whatever policies there are: of the entity, of
/// the namespace and for development, at the resource and where the token is for. How long a refusal takes does not tell whether a
/// policy has that name (SEC-08).
const COMPARED_MAX: usize = 6;

impl SasAuthorizer {
    /// An authorizer over the policies of a broker.
    #[must_use]
    pub fn new(policies: &Policies, config: SasConfig) -> Self {
        Self { policies: policies.clone(), config, failures: Failures::default() }
    }

    /// What who has shown nothing may do (SEC-17).
    fn anonymous(&self, principal: &Principal) -> Result<Grant, Refused> {
        let is_meant = principal.is_local() || self.config.beyond_loopback;
        let grant = self.policies.grant_anonymous();
        grant.filter(|_| self.config.allow_anonymous && is_meant).ok_or(Refused::Missing)
    }

    fn show<'a>(&self, text: &'a str) -> Result<Shown<'a>, Refused> {
        let token = Token::parse(text)?;
        let audience = Audience::parse(&token.resource());
        let hosts = self.config.audience_hosts.as_deref();
        if hosts.is_some_and(|hosts| !audience.is_of_host(hosts)) {
            return Err(Refused::Host(self.named(token.policy())));
        }
        Ok(Shown { token, audience, verified: None, compared: 0 })
    }

    /// A name that was shown, if a policy has it (SEC-22).
    fn named(&self, name: &str) -> Named {
        self.policies.have_name(name).then(|| name.into())
    }

    fn now(&self) -> Timestamp {
        // Before its broker has started nothing is asked; at the end of time every token has expired.
        self.policies.clock().map_or(Timestamp::NEVER, |clock| clock.now())
    }

    /// What a token gives at a resource.
    fn grant(
        &self,
        principal: &Principal,
        shown: &mut Shown<'_>,
        resource: &str,
    ) -> Result<Grant, Refused> {
        let signer = Box::<str>::from(shown.token.policy());
        let name = || signer.clone();
        let at_resource = self.policies.at(resource, &signer);
        let Some((policy, which)) = at_resource.iter().find_map(|it| shown.signed_by(it)) else {
            // It may be good elsewhere, which is no attempt at a key.
            let elsewhere = self.policies.at(shown.audience.path(), &signer);
            return match elsewhere.iter().find_map(|it| shown.signed_by(it)) {
                Some(_) if self.now() >= shown.token.until() => {
                    Err(Refused::Expired(name(), shown.token.until()))
                }
                Some((policy, which)) if shown.audience.is_below(resource) => {
                    Ok(policy.recognize_by(which).until(shown.token.until()))
                }
                Some(_) => Err(Refused::Audience(name())),
                None => {
                    shown.compare_with_nobody();
                    Err(Refused::Signature(self.named(&signer)))
                }
            };
        };
        if self.now() >= shown.token.until() {
            return Err(Refused::Expired(name(), shown.token.until()));
        }
        if !shown.audience.covers(resource) && !self.is_for_address(principal, shown, resource) {
            // Of what it is in, somebody may ask what of it is his (CON-73).
            return match shown.audience.is_below(resource) {
                true => Ok(policy.recognize_by(which).until(shown.token.until())),
                false => Err(Refused::Audience(name())),
            };
        }
        Ok(policy.grant_by(which).until(shown.token.until()))
    }

    /// Whether a token is for the address at which its client asks for a resource, and not for an entity of that path. A
    /// policy that does not hold there has signed none for that entity: its holder is not told whether there is one.
    fn is_for_address(&self, principal: &Principal, shown: &mut Shown<'_>, resource: &str) -> bool {
        let asked = principal.address_of(resource);
        let Some(asked) = asked.filter(|asked| shown.audience.covers(&asked.address)) else {
            return false;
        };
        let there = self.policies.at(shown.audience.path(), shown.token.policy());
        !asked.is_path || !there.iter().any(|policy| shown.signed_by(policy).is_some())
    }

    /// Lets who may be guessing wait (SEC-26).
    async fn refuse(&self, principal: &Principal, refused: Refused) -> Rejection {
        let is_attempt = match &refused {
            Refused::Malformed(_)
            | Refused::Bearer
            | Refused::Signature(_)
            | Refused::Key(_)
            | Refused::Expired(..) => true,
            // The signature is good, was not looked at, or there is none.
            Refused::Missing | Refused::Host(_) | Refused::Audience(_) => false,
        };
        if let Some(clock) = self.policies.clock().filter(|_| is_attempt) {
            self.failures.hold_back(principal, &**clock).await;
        }
        refused.into()
    }

    /// What a key gives at a resource that was presented itself (AMQP-08): what its policy gives, without an end.
    fn grant_by_key(&self, shown: &PresentedKey, resource: &str) -> Result<Grant, Refused> {
        match self.policies.find_key(resource, &shown.policy, &shown.key) {
            KeyFound::Here(policy, which) => Ok(policy.grant_by(which)),
            // It is good there, which is no attempt at a key.
            KeyFound::Elsewhere(nothing) => Ok(nothing),
            KeyFound::Nowhere => Err(Refused::Key(self.named(&shown.policy))),
        }
    }

    fn judge(&self, principal: &Principal, resource: &str) -> Result<Grant, Refused> {
        match (&principal.token, &principal.key) {
            (Some(text), _) => self.grant(principal, &mut self.show(text)?, resource),
            (None, Some(shown)) => self.grant_by_key(shown, resource),
            (None, None) => self.anonymous(principal),
        }
    }
}

impl Shown<'_> {
    /// The policy and its key, if it was signed by it.
    fn signed_by(&mut self, policy: &Arc<Policy>) -> Option<(Arc<Policy>, WhichKey)> {
        let which = match &self.verified {
            Some((known, which)) if Arc::ptr_eq(known, policy) => *which,
            Some(_) | None => {
                let which = self.token.signed_by(policy);
                self.compared += 1;
                self.verified = Some((Arc::clone(policy), which));
                which
            }
        };
        which.map(|which| (Arc::clone(policy), which))
    }

    /// Compares it as often as it would be if there were policies of that name everywhere.
    fn compare_with_nobody(&mut self) {
        while self.compared < COMPARED_MAX {
            std::hint::black_box(self.token.is_signed_with_nothing());
            self.compared += 1;
        }
    }
}

#[async_trait]
impl Authorizer for SasAuthorizer {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        match self.judge(principal, resource) {
            Ok(grant) => Ok(grant),
            Err(refused) => Err(self.refuse(principal, refused).await),
        }
    }

    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let nothing = || vec![Grant::nothing(); resources.len()];
        if let (None, Some(shown)) = (&principal.token, &principal.key) {
            let grants = resources.iter().map(|resource| self.grant_by_key(shown, resource));
            return grants.map(|grant| grant.unwrap_or_else(|_| Grant::nothing())).collect();
        }
        let Some(text) = &principal.token else {
            return match self.anonymous(principal) {
                Ok(grant) => vec![grant; resources.len()],
                Err(_) => nothing(),
            };
        };
        let Ok(mut shown) = self.show(text) else { return nothing() };
        let grants = resources.iter().map(|resource| self.grant(principal, &mut shown, resource));
        grants.map(|grant| grant.unwrap_or_else(|_| Grant::nothing())).collect()
    }

    fn allows_anonymous(&self) -> bool {
        self.config.allow_anonymous && !self.policies.ended_anonymous_access()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::sign;
    use peeklock_core::Broker;
    use peeklock_core::contract::{Right, Rights};
    use peeklock_core::description::QueueUpdate;
    use peeklock_core::policies::{KeyText, PolicyUpdate};

    /// SEC-08, SEC-14: a token with a wrong signature costs the same comparisons whether a policy has the name that it says, and where.
    #[tokio::test]
    async fn a_wrong_signature_costs_the_same_whatever_policies_there_are() {
        let policies = Policies::new();
        let broker = Broker::builder().arbiters(1).policies(&policies).start().await.unwrap();
        policies.allow_development_key("development");
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        for queue in ["orders", "other"] {
            broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
        }
        for (owner, name) in [
            ("orders", "here"),
            ("", "everywhere"),
            ("other", "elsewhere"),
            ("orders", "all"),
            ("", "all"),
            ("other", "all"),
            ("orders", "RootManageSharedAccessKey"),
            ("other", "RootManageSharedAccessKey"),
        ] {
            let properties = PolicyUpdate {
                rights: Some(Rights::of(Right::Send)),
                primary_key: KeyText::parse(key).ok(),
                ..PolicyUpdate::default()
            };
            broker.create_policy(owner, name, properties).await.unwrap();
        }
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let principal = Principal::anonymous();
        let names =
            ["nobody", "here", "everywhere", "elsewhere", "all", "RootManageSharedAccessKey"];
        for name in names {
            for audience in ["sb://x", "sb://x/orders", "sb://x/other", "sb://x/absent"] {
                let text = sign(name, "wrong", audience, Timestamp::NEVER);
                let mut shown = authorizer.show(&text).ok().unwrap();
                let refused = authorizer.grant(&principal, &mut shown, "orders");
                assert!(matches!(refused, Err(Refused::Signature(_))), "{name} {audience}");
                assert_eq!(shown.compared, COMPARED_MAX, "{name} {audience}");
            }
        }
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }
}
