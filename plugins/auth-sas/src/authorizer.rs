//! The authorizer: it verifies a token or key and grants the rights of the policy at a resource.
//! The broker calls it for each access check. The time of a refusal does not reveal which policies
//! exist (SEC-08).

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Failures, Grant, PresentedKey, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyMatch, KeyText, Policies, Policy, WhichKey};
use peeklock_core::time::Timestamp;

use crate::audience::Audience;
use crate::config::SasConfig;
use crate::token::{PolicyName, Token, TokenError};

/// Grants the rights of a policy to a client that presents a token signed with one of its keys, or
/// a key itself (SEC-12).
pub struct SasAuthorizer {
    policies: Policies,
    config: SasConfig,
    failures: Failures,
}

/// A presented token with its audience and, once found, the key that signed it. It is kept for a
/// whole list, which asks about many resources.
struct PresentedToken<'a> {
    token: Token<'a>,
    audience: Audience,
    key: Option<KeyText>,
    /// Whether the key was already searched for beyond the policies of a resource.
    has_searched: bool,
    /// Whether the token was compared with every existing key of the policy name.
    compared_all: bool,
    /// Number of keys that the token was compared with.
    compared: usize,
}

/// Maximum number of comparisons with keys that apply to the resource or to the audience: two keys
/// for each policy of both entities, of the namespace and for development.
const APPLICABLE_KEYS_MAX: usize = 8;
/// Maximum number of comparisons with other keys of policies with the token's policy name. Every
/// wrong signature costs this maximum, so that the time of the refusal does not reveal whether a
/// policy with this name exists (SEC-08).
const OTHER_KEYS_MAX: usize = 32;
/// Maximum audience length in bytes for the comparisons of [`OTHER_KEYS_MAX`]. Each comparison
/// hashes the whole audience. The URL of a namespace or of a parent entity is shorter.
const AUDIENCE_BYTES_MAX: usize = 1 << 10;

impl SasAuthorizer {
    /// Creates an authorizer over the policies of a broker.
    #[must_use]
    pub fn new(policies: &Policies, config: SasConfig) -> Self {
        Self { policies: policies.clone(), config, failures: Failures::default() }
    }

    /// Returns the grant of a client without credentials (SEC-17).
    fn anonymous(&self, principal: &Principal) -> Result<Grant, TokenError> {
        let is_meant = principal.is_local() || self.config.beyond_loopback;
        let grant = self.policies.grant_anonymous();
        grant.filter(|_| self.config.allow_anonymous && is_meant).ok_or(TokenError::Missing)
    }

    fn present<'a>(&self, text: &'a str) -> Result<PresentedToken<'a>, TokenError> {
        let token = Token::parse(text)?;
        let audience = Audience::parse(&token.resource(), &self.config.own_hosts);
        let hosts = self.config.audience_hosts.as_deref();
        if hosts.is_some_and(|hosts| !audience.is_of_host(hosts)) {
            return Err(TokenError::Host(self.existing_name(token.policy())));
        }
        let (key, has_searched, compared_all) = (None, false, false);
        Ok(PresentedToken { token, audience, key, has_searched, compared_all, compared: 0 })
    }

    /// Returns the name if a policy has it. Any other text may be a secret in the wrong field
    /// (SEC-22).
    fn existing_name(&self, name: &str) -> PolicyName {
        self.policies.has_name(name).then(|| name.into())
    }

    fn now(&self) -> Timestamp {
        // Without a clock the broker has not started, so nothing is requested. At the end of time
        // every token has expired.
        self.policies.clock().map_or(Timestamp::NEVER, |clock| clock.now())
    }

    /// Returns the grant of a token at a resource.
    fn grant(
        &self,
        principal: &Principal,
        presented: &mut PresentedToken<'_>,
        resource: &str,
    ) -> Result<Grant, TokenError> {
        if !presented.token.can_be_signed() {
            // The early answer reveals nothing about keys, because none was compared.
            return Err(TokenError::Signature(self.existing_name(presented.token.policy())));
        }
        let signer = Box::<str>::from(presented.token.policy());
        let found = match self.key_of(presented, &signer, resource) {
            Some(key) => self.policies.find_key(resource, &signer, key.reveal()),
            None => KeyMatch::Nowhere,
        };
        let until = presented.token.until();
        match found {
            KeyMatch::Nowhere => {
                presented.compare_with_dummy_keys();
                Err(TokenError::Signature(self.existing_name(&signer)))
            }
            KeyMatch::Here(..) | KeyMatch::Elsewhere(_) if self.now() >= until => {
                Err(TokenError::Expired(signer, until))
            }
            KeyMatch::Here(policy, which) if self.is_for(principal, presented, resource) => {
                Ok(policy.grant_by(which).with_end(until))
            }
            // A client may list the parent of the entities that its token covers (CON-73).
            KeyMatch::Here(policy, which) if presented.audience.is_below(resource) => {
                Ok(policy.recognize_by(which).with_end(until))
            }
            // The token is valid elsewhere, so this is not an attempt to guess a key.
            KeyMatch::Elsewhere(nothing)
                if presented.audience.covers(resource) || presented.audience.is_below(resource) =>
            {
                Ok(nothing.with_end(until))
            }
            KeyMatch::Here(..) | KeyMatch::Elsewhere(_) => Err(TokenError::Audience(signer)),
        }
    }

    /// Returns the key that signed the token: first among policies that apply to the resource, then
    /// among policies with that name elsewhere, within the limits.
    fn key_of(
        &self,
        presented: &mut PresentedToken<'_>,
        signer: &str,
        resource: &str,
    ) -> Option<KeyText> {
        if presented.key.is_none() && !presented.compared_all {
            let here = self.policies.at(resource, signer);
            let key = presented.signed_by(&here);
            presented.key = key.or_else(|| self.other_key(presented, signer, &here));
        }
        presented.key.clone()
    }

    /// Searches other policies with the name, once per token. `here` are the policies already
    /// compared. A wrong token is compared with a fixed number of keys, regardless of the existing
    /// policies.
    fn other_key(
        &self,
        presented: &mut PresentedToken<'_>,
        signer: &str,
        here: &[Arc<Policy>],
    ) -> Option<KeyText> {
        if std::mem::replace(&mut presented.has_searched, true) {
            return None;
        }
        let mut there = self.policies.at(presented.audience.path(), signer);
        there.retain(|policy| !here.iter().any(|met| Arc::ptr_eq(met, policy)));
        presented.signed_by(&there).or_else(|| {
            let count_max = presented.other_keys_max();
            let keys = self.policies.keys_named(signer, count_max);
            // A token with a long audience is not compared again: for a list of many entities that
            // would repeat the expensive work for each.
            presented.compared_all = keys.len() < count_max || count_max == 0;
            presented.signed_with(keys)
        })
    }

    /// Returns whether a token with a matching key applies to the resource.
    fn is_for(
        &self,
        principal: &Principal,
        presented: &PresentedToken<'_>,
        resource: &str,
    ) -> bool {
        presented.audience.covers(resource) || self.is_for_address(principal, presented, resource)
    }

    /// Returns whether the audience is the address of the request instead of an entity path. If the
    /// address is also an entity's path, a policy of that entity may have signed for the entity. A
    /// policy that does not apply there cannot, and its holder must not learn whether the entity
    /// exists.
    fn is_for_address(
        &self,
        principal: &Principal,
        presented: &PresentedToken<'_>,
        resource: &str,
    ) -> bool {
        let asked = principal.address_of(resource);
        let Some(asked) = asked.filter(|asked| presented.audience.covers(&asked.address)) else {
            return false;
        };
        let holds_there = || {
            let (there, signer) = (presented.audience.path(), presented.token.policy());
            presented.key.as_ref().is_some_and(|key| {
                matches!(self.policies.find_key(there, signer, key.reveal()), KeyMatch::Here(..))
            })
        };
        !asked.is_path || !holds_there()
    }

    /// Converts a refusal, after a delay if the client may be guessing (SEC-26).
    async fn refuse(&self, principal: &Principal, refused: TokenError) -> Rejection {
        let is_attempt = match &refused {
            TokenError::Malformed(_)
            | TokenError::Bearer
            | TokenError::Signature(_)
            | TokenError::Key(_)
            | TokenError::Expired(..) => true,
            // The signature is valid, was not checked, or is absent.
            TokenError::Missing | TokenError::Host(_) | TokenError::Audience(_) => false,
        };
        if let Some(clock) = self.policies.clock().filter(|_| is_attempt) {
            self.failures.delay_answer(principal, &**clock).await;
        }
        refused.into()
    }

    /// Returns the grant of a key that was presented itself (AMQP-08): the rights of its policy,
    /// without expiry.
    fn grant_by_key(&self, presented: &PresentedKey, resource: &str) -> Result<Grant, TokenError> {
        match self.policies.find_key(resource, &presented.policy, &presented.key) {
            KeyMatch::Here(policy, which) => Ok(policy.grant_by(which)),
            // The key is valid elsewhere, so this is not an attempt to guess.
            KeyMatch::Elsewhere(nothing) => Ok(nothing),
            KeyMatch::Nowhere => Err(TokenError::Key(self.existing_name(&presented.policy))),
        }
    }

    fn decide(&self, principal: &Principal, resource: &str) -> Result<Grant, TokenError> {
        match (&principal.token, &principal.key) {
            (Some(text), _) => self.grant(principal, &mut self.present(text)?, resource),
            (None, Some(presented)) => self.grant_by_key(presented, resource),
            (None, None) => self.anonymous(principal),
        }
    }
}

impl PresentedToken<'_> {
    /// Returns the key among these policies that signed the token.
    fn signed_by(&mut self, policies: &[Arc<Policy>]) -> Option<KeyText> {
        policies.iter().find_map(|policy| {
            self.compared += WhichKey::ALL.len();
            let which = self.token.signed_by(policy)?;
            Some(policy.key(which).clone())
        })
    }

    /// Returns the key in `keys` that signed the token.
    fn signed_with(&mut self, keys: Vec<KeyText>) -> Option<KeyText> {
        keys.into_iter().find(|key| {
            self.compared += 1;
            self.token.is_signed_with(key)
        })
    }

    /// Returns the number of comparisons with keys of other entities.
    const fn other_keys_max(&self) -> usize {
        if self.token.resource_bytes() > AUDIENCE_BYTES_MAX { 0 } else { OTHER_KEYS_MAX }
    }

    /// Adds comparisons up to the fixed number, so that the time does not depend on the existing
    /// policies.
    fn compare_with_dummy_keys(&mut self) {
        while self.compared < APPLICABLE_KEYS_MAX + self.other_keys_max() {
            std::hint::black_box(self.token.is_signed_with_dummy());
            self.compared += 1;
        }
    }
}

#[async_trait]
impl Authorizer for SasAuthorizer {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        match self.decide(principal, resource) {
            Ok(grant) => Ok(grant),
            Err(refused) => Err(self.refuse(principal, refused).await),
        }
    }

    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let nothing = || vec![Grant::nothing(); resources.len()];
        if let (None, Some(presented)) = (&principal.token, &principal.key) {
            let grants = resources.iter().map(|resource| self.grant_by_key(presented, resource));
            return grants.map(|grant| grant.unwrap_or_else(|_| Grant::nothing())).collect();
        }
        let Some(text) = &principal.token else {
            return match self.anonymous(principal) {
                Ok(grant) => vec![grant; resources.len()],
                Err(_) => nothing(),
            };
        };
        let Ok(mut presented) = self.present(text) else { return nothing() };
        let grants =
            resources.iter().map(|resource| self.grant(principal, &mut presented, resource));
        grants.map(|grant| grant.unwrap_or_else(|_| Grant::nothing())).collect()
    }

    fn allows_anonymous(&self) -> bool {
        self.config.allow_anonymous && !self.policies.ended_anonymous_access()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_core::Broker;
    use peeklock_core::contract::{Right, Rights};
    use peeklock_core::description::QueueUpdate;
    use peeklock_core::policies::PolicyUpdate;
    use peeklock_sas::sign;

    /// SEC-08, SEC-14, SEC-26: a wrong signature costs the same number of comparisons regardless of
    /// which policies have the name, where, and how many. A long audience costs fewer.
    #[tokio::test]
    async fn a_wrong_signature_costs_the_same_with_any_policies() {
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
        // Each has two keys of its own, together more than the comparison limit.
        for number in 0..OTHER_KEYS_MAX {
            let owner = format!("one-of-many-{number}");
            broker.create_queue(&owner, QueueUpdate::default()).await.unwrap();
            let properties =
                PolicyUpdate { rights: Some(Rights::of(Right::Send)), ..PolicyUpdate::default() };
            broker.create_policy(&owner, "many", properties).await.unwrap();
        }
        assert_eq!(policies.keys_named("many", usize::MAX).len(), 2 * OTHER_KEYS_MAX);
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let principal = Principal::anonymous();
        let root = "RootManageSharedAccessKey";
        let long = format!("sb://x/orders?{}", "x".repeat(AUDIENCE_BYTES_MAX));
        for name in ["nobody", "here", "everywhere", "elsewhere", "all", "many", root] {
            for (audience, count) in [
                ("sb://x", APPLICABLE_KEYS_MAX + OTHER_KEYS_MAX),
                ("sb://x/orders", APPLICABLE_KEYS_MAX + OTHER_KEYS_MAX),
                ("sb://x/other", APPLICABLE_KEYS_MAX + OTHER_KEYS_MAX),
                ("sb://x/one-of-many-1", APPLICABLE_KEYS_MAX + OTHER_KEYS_MAX),
                ("sb://x/absent", APPLICABLE_KEYS_MAX + OTHER_KEYS_MAX),
                (long.as_str(), APPLICABLE_KEYS_MAX),
            ] {
                let text = sign(name, "wrong", audience, Timestamp::NEVER);
                let mut presented = authorizer.present(&text).ok().unwrap();
                let refused = authorizer.grant(&principal, &mut presented, "orders");
                assert!(matches!(refused, Err(TokenError::Signature(_))), "{name} {audience}");
                assert_eq!(presented.compared, count, "{name} {audience}");
                // For further resources the token is compared only with their own policies, and
                // only if the limit prevented a comparison with all keys.
                let further = if name == "many" && audience != long { 2 } else { 0 };
                for (resource, more) in [("absent", 0), ("one-of-many-7", further)] {
                    let refused = authorizer.grant(&principal, &mut presented, resource);
                    assert!(matches!(refused, Err(TokenError::Signature(_))), "{name} {audience}");
                    assert_eq!(presented.compared, count + more, "{name} {audience} {resource}");
                }
            }
        }
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }

    /// SEC-14, SEC-26: an impossible signature is refused like a wrong one, without any comparison.
    #[test]
    fn impossible_signatures_are_compared_with_no_key() {
        let policies = Policies::new();
        policies.allow_development_key("development");
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let (principal, name) = (Principal::anonymous(), "RootManageSharedAccessKey");
        let good = sign(name, "development", "sb://x", Timestamp::NEVER);
        assert!(authorizer.present(&good).ok().unwrap().token.can_be_signed());
        for signature in ["", "AAAA", "no%20Base64", &"A".repeat(44)] {
            let text = format!("SharedAccessSignature sr=sb&sig={signature}&se=1&skn={name}");
            let mut presented = authorizer.present(&text).ok().unwrap();
            let refused = authorizer.grant(&principal, &mut presented, "");
            assert_eq!(
                refused.err(),
                Some(TokenError::Signature(Some(name.into()))),
                "{signature}"
            );
            assert_eq!(presented.compared, 0, "{signature}");
        }
    }
}
