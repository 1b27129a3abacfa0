//! The authorizer: what a token is worth at a resource, or a key.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Failures, Grant, PresentedKey, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyFound, KeyText, Policies, Policy, WhichKey};
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

/// A token with what it is for, and the key that it was signed with, once that is known: many resources are asked about for
/// one list.
struct Shown<'a> {
    token: Token<'a>,
    audience: Audience,
    key: Option<KeyText>,
    /// Whether its key was looked for beyond what holds at a resource.
    was_sought: bool,
    /// Whether there is no key left to compare it with, at whatever resource.
    has_met_all: bool,
    /// How many keys it was compared with.
    compared: usize,
}

/// With so many keys a token is compared that hold at the resource or where it is for: the two of the policies of the
/// one entity, of the other, of the namespace and for development.
const HELD_MAX: usize = 8;
/// With so many others of policies of its name, wherever they hold. How long it takes to be told that a signature is wrong does not
/// tell whether a policy has that name, so that each wrong one is compared as often as any can be (SEC-08).
const ELSEWHERE_MAX: usize = 32;
/// With none of those if what it is for takes more bytes than this in the token, all of which go into each comparison. The URL of a
/// namespace, or of anything else that entities are in, takes fewer.
const ELSEWHERE_BYTES_MAX: usize = 1 << 10;

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
        let audience = Audience::parse(&token.resource(), &self.config.own_hosts);
        let hosts = self.config.audience_hosts.as_deref();
        if hosts.is_some_and(|hosts| !audience.is_of_host(hosts)) {
            return Err(Refused::Host(self.named(token.policy())));
        }
        let (key, was_sought, has_met_all) = (None, false, false);
        Ok(Shown { token, audience, key, was_sought, has_met_all, compared: 0 })
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
        if !shown.token.can_be_signed() {
            // How soon that is said tells nothing of keys, with none of which it was compared.
            return Err(Refused::Signature(self.named(shown.token.policy())));
        }
        let signer = Box::<str>::from(shown.token.policy());
        let found = match self.key_of(shown, &signer, resource) {
            Some(key) => self.policies.find_key(resource, &signer, key.reveal()),
            None => KeyFound::Nowhere,
        };
        let until = shown.token.until();
        match found {
            KeyFound::Nowhere => {
                shown.compare_with_nobody();
                Err(Refused::Signature(self.named(&signer)))
            }
            KeyFound::Here(..) | KeyFound::Elsewhere(_) if self.now() >= until => {
                Err(Refused::Expired(signer, until))
            }
            KeyFound::Here(policy, which) if self.is_for(principal, shown, resource) => {
                Ok(policy.grant_by(which).until(until))
            }
            // Of what it is in, somebody may ask what of it is his (CON-73).
            KeyFound::Here(policy, which) if shown.audience.is_below(resource) => {
                Ok(policy.recognize_by(which).until(until))
            }
            // It is good there, which is no attempt at a key.
            KeyFound::Elsewhere(nothing)
                if shown.audience.covers(resource) || shown.audience.is_below(resource) =>
            {
                Ok(nothing.until(until))
            }
            KeyFound::Here(..) | KeyFound::Elsewhere(_) => Err(Refused::Audience(signer)),
        }
    }

    /// The key of a policy of that name that a token was signed with: of one that holds at the resource, or else of one that
    /// holds elsewhere, as far as it is looked for there.
    fn key_of(&self, shown: &mut Shown<'_>, signer: &str, resource: &str) -> Option<KeyText> {
        if shown.key.is_none() && !shown.has_met_all {
            let here = self.policies.at(resource, signer);
            let key = shown.signed_by(&here);
            shown.key = key.or_else(|| self.key_elsewhere(shown, signer, &here));
        }
        shown.key.clone()
    }

    /// Once for all that is asked about one token, which was compared with those that hold here: a wrong one is
    /// compared with so many keys, whatever policies there are.
    fn key_elsewhere(
        &self,
        shown: &mut Shown<'_>,
        signer: &str,
        here: &[Arc<Policy>],
    ) -> Option<KeyText> {
        if std::mem::replace(&mut shown.was_sought, true) {
            return None;
        }
        let mut there = self.policies.at(shown.audience.path(), signer);
        there.retain(|policy| !here.iter().any(|met| Arc::ptr_eq(met, policy)));
        shown.signed_by(&there).or_else(|| {
            let count_max = shown.elsewhere_max();
            let keys = self.policies.keys_named(signer, count_max);
            // One that takes long to compare is compared no more, or who asks about many entities would have as much
            // done for each.
            shown.has_met_all = keys.len() < count_max || count_max == 0;
            shown.signed_with(keys)
        })
    }

    /// Whether a token that was signed with a key that holds at a resource is for it.
    fn is_for(&self, principal: &Principal, shown: &Shown<'_>, resource: &str) -> bool {
        shown.audience.covers(resource) || self.is_for_address(principal, shown, resource)
    }

    /// Whether a token is for the address at which its client asks for a resource, and not for an entity of that path. A
    /// policy that does not hold there has signed none for that entity: its holder is not told whether there is one.
    fn is_for_address(&self, principal: &Principal, shown: &Shown<'_>, resource: &str) -> bool {
        let asked = principal.address_of(resource);
        let Some(asked) = asked.filter(|asked| shown.audience.covers(&asked.address)) else {
            return false;
        };
        let holds_there = || {
            let (there, signer) = (shown.audience.path(), shown.token.policy());
            shown.key.as_ref().is_some_and(|key| {
                matches!(self.policies.find_key(there, signer, key.reveal()), KeyFound::Here(..))
            })
        };
        !asked.is_path || !holds_there()
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
    /// The key of one of these policies that it was signed with.
    fn signed_by(&mut self, policies: &[Arc<Policy>]) -> Option<KeyText> {
        policies.iter().find_map(|policy| {
            self.compared += WhichKey::ALL.len();
            let which = self.token.signed_by(policy)?;
            Some(policy.key(which).clone())
        })
    }

    /// The one of these keys that it was signed with.
    fn signed_with(&mut self, keys: Vec<KeyText>) -> Option<KeyText> {
        keys.into_iter().find(|key| {
            self.compared += 1;
            self.token.is_signed_with(key)
        })
    }

    /// With how many keys that hold elsewhere it is compared.
    const fn elsewhere_max(&self) -> usize {
        if self.token.resource_bytes() > ELSEWHERE_BYTES_MAX { 0 } else { ELSEWHERE_MAX }
    }

    /// Compares it as often as it would be if there were policies of that name everywhere.
    fn compare_with_nobody(&mut self) {
        while self.compared < HELD_MAX + self.elsewhere_max() {
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
    use peeklock_core::Broker;
    use peeklock_core::contract::{Right, Rights};
    use peeklock_core::description::QueueUpdate;
    use peeklock_core::policies::PolicyUpdate;
    use peeklock_sas::sign;

    /// SEC-08, SEC-14, SEC-26: a token with a wrong signature costs the same comparisons whether a policy has the name that it says, and
    /// where, and how many have it; one that is for what has a long URL costs fewer.
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
        // Each with two keys of its own, more in all than anything is compared with.
        for number in 0..ELSEWHERE_MAX {
            let owner = format!("one-of-many-{number}");
            broker.create_queue(&owner, QueueUpdate::default()).await.unwrap();
            let properties =
                PolicyUpdate { rights: Some(Rights::of(Right::Send)), ..PolicyUpdate::default() };
            broker.create_policy(&owner, "many", properties).await.unwrap();
        }
        assert_eq!(policies.keys_named("many", usize::MAX).len(), 2 * ELSEWHERE_MAX);
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let principal = Principal::anonymous();
        let root = "RootManageSharedAccessKey";
        let long = format!("sb://x/orders?{}", "x".repeat(ELSEWHERE_BYTES_MAX));
        for name in ["nobody", "here", "everywhere", "elsewhere", "all", "many", root] {
            for (audience, count) in [
                ("sb://x", HELD_MAX + ELSEWHERE_MAX),
                ("sb://x/orders", HELD_MAX + ELSEWHERE_MAX),
                ("sb://x/other", HELD_MAX + ELSEWHERE_MAX),
                ("sb://x/one-of-many-1", HELD_MAX + ELSEWHERE_MAX),
                ("sb://x/absent", HELD_MAX + ELSEWHERE_MAX),
                (long.as_str(), HELD_MAX),
            ] {
                let text = sign(name, "wrong", audience, Timestamp::NEVER);
                let mut shown = authorizer.show(&text).ok().unwrap();
                let refused = authorizer.grant(&principal, &mut shown, "orders");
                assert!(matches!(refused, Err(Refused::Signature(_))), "{name} {audience}");
                assert_eq!(shown.compared, count, "{name} {audience}");
                // Of further resources it is compared only with what holds there, where there were too many to meet
                // all.
                let further = if name == "many" && audience != long { 2 } else { 0 };
                for (resource, more) in [("absent", 0), ("one-of-many-7", further)] {
                    let refused = authorizer.grant(&principal, &mut shown, resource);
                    assert!(matches!(refused, Err(Refused::Signature(_))), "{name} {audience}");
                    assert_eq!(shown.compared, count + more, "{name} {audience} {resource}");
                }
            }
        }
        broker.stop(std::time::Duration::ZERO).await.unwrap();
    }

    /// SEC-14, SEC-26: what can be no signature is refused as a wrong one is, and compared with no key.
    #[test]
    fn what_can_be_no_signature_is_compared_with_nothing() {
        let policies = Policies::new();
        policies.allow_development_key("development");
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let (principal, name) = (Principal::anonymous(), "RootManageSharedAccessKey");
        let good = sign(name, "development", "sb://x", Timestamp::NEVER);
        assert!(authorizer.show(&good).ok().unwrap().token.can_be_signed());
        for signature in ["", "AAAA", "no%20Base64", &"A".repeat(44)] {
            let text = format!("SharedAccessSignature sr=sb&sig={signature}&se=1&skn={name}");
            let mut shown = authorizer.show(&text).ok().unwrap();
            let refused = authorizer.grant(&principal, &mut shown, "");
            assert_eq!(refused.err(), Some(Refused::Signature(Some(name.into()))), "{signature}");
            assert_eq!(shown.compared, 0, "{signature}");
        }
    }
}
