//! Policies: names with rights and two keys each, on the namespace, on queues and on topics (SEC-01
//! to SEC-04).
//!
//! An authorizer looks policies up in [`Policies`]. The host creates it and gives it to the
//! [builder](crate::BrokerBuilder::policies), which fills it from the store, and to the authorizer.
//! Policies are changed through the broker ([`Broker::create_policy`](crate::Broker::create_policy)
//! and similar methods): a change is durable before it is in force. Grants of a key end with the
//! key (SEC-09).
//!
//! By design, tokens and their signatures are not here: they belong to an authorizer.

mod by_key;
pub(crate) mod change;
mod names;
mod policy;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;

use self::by_key::{KeyDigest, KeyIndex};
use self::policy::GrantEpoch;
pub use self::policy::{
    KeyText, NAME_CHARS_MAX, Policy, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey,
};
use crate::clock::Clock;
use crate::contract::{Epoch, Grant, Mark, Rights};
use crate::error::Rejection;
use crate::path::{EntityAddress, PathKey};
use crate::time::Timestamp;

/// Name of the policy that every namespace has permanently (SEC-04).
pub const ROOT_POLICY: &str = "RootManageSharedAccessKey";

/// All policies of a broker that are in force. Cheap to clone; clones share their content.
#[derive(Clone, Default)]
pub struct Policies(Arc<SharedPolicies>);

struct SharedPolicies {
    held: RwLock<PolicyTables>,
    anonymous: AnonymousAccess,
    clock: OnceLock<Arc<dyn Clock>>,
    /// Policy of the namespace with a publicly known key; not stored (SEC-24).
    development: OnceLock<(KeyDigest, Arc<Policy>)>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

/// Policies in force.
#[derive(Default)]
struct PolicyTables {
    /// By entity; the namespace has an empty key.
    by_owner: HashMap<PathKey, OfOwner>,
    by_key: KeyIndex,
}

type OfOwner = Arc<[Arc<Policy>]>;

/// Validity of a presented key, or of the key of a signature.
#[derive(Clone, Debug)]
pub enum KeyMatch {
    /// Valid at the resource, with the policy and the key.
    Here(Arc<Policy>, WhichKey),
    /// Valid only for another resource. The grant has no rights, but identifies the client while
    /// any policy of that name has the key, at any entity.
    Elsewhere(Grant),
    /// Not a key of a policy with that name.
    Nowhere,
}

/// State of anonymous access, which ends when keys are first used (SEC-17).
struct AnonymousAccess {
    is_over: AtomicBool,
    epoch: Epoch,
    mark: Mark,
}

impl Default for SharedPolicies {
    fn default() -> Self {
        let epoch = Epoch::new();
        let mark = epoch.mark();
        Self {
            held: RwLock::default(),
            anonymous: AnonymousAccess { is_over: AtomicBool::new(false), epoch, mark },
            clock: OnceLock::new(),
            development: OnceLock::new(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Policies {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the policies with a name that apply at a resource, nearest first: of the entity
    /// itself, of the topic of a subscription, and of the namespace (SEC-12). The resource is the
    /// path of an entity or sub-queue, or empty for the namespace.
    #[must_use]
    pub fn at(&self, resource: &str, name: &str) -> Vec<Arc<Policy>> {
        let owners = [owner_of(resource), Some(namespace_key())];
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        let mut seen: Option<&PathKey> = None;
        let mut found = Vec::new();
        for owner in owners.iter().flatten() {
            if seen.replace(owner) == Some(owner) {
                continue;
            }
            let policies =
                held.by_owner.get(owner).into_iter().flat_map(|policies| policies.iter());
            found.extend(policies.filter(|policy| policy.is_named(name)).cloned());
        }
        let development = self.0.development.get().map(|(_, policy)| policy);
        found.extend(development.filter(|policy| policy.is_named(name)).cloned());
        found
    }

    /// Whether any policy of this broker has that name. A name presented by a client may be logged
    /// only if this returns true; otherwise it may be a misplaced secret (SEC-22).
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let development = self.0.development.get();
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_key.have_name(name) || development.is_some_and(|(_, policy)| policy.is_named(name))
    }

    /// Accepts this key for the root policy, with all rights (SEC-24). The key is neither listed,
    /// returned nor stored, and is valid until the process ends. Only the first call has an effect.
    pub fn allow_development_key(&self, key: &str) {
        let [primary_key, secondary_key] = [KeyText::stored(key), KeyText::stored(key)];
        let policy = PolicyDescription {
            name: ROOT_POLICY.into(),
            rights: Rights::ALL,
            ..PolicyDescription::default()
        };
        let policy = Policy::new(PolicyKeys { policy, primary_key, secondary_key });
        let digest = KeyDigest::of_policy(&policy, WhichKey::Primary);
        self.0.development.set((digest, Arc::new(policy))).ok();
    }

    /// Whether a publicly known key is in use (SEC-24).
    #[must_use]
    pub fn has_development_key(&self) -> bool {
        self.0.development.get().is_some()
    }

    /// Returns up to `count_max` keys of policies with that name, at any entity, each once: for a
    /// signature where its policy does not apply (SEC-26). If there are more, the same ones are
    /// omitted while no policy changes.
    #[must_use]
    pub fn keys_named(&self, name: &str, count_max: usize) -> Vec<KeyText> {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_key.keys_named(name, count_max)
    }

    /// Validates a presented key (AMQP-08), or the key of a signature, with the name of a policy,
    /// at a resource. Of the policies that [apply](Self::at) there, the nearest one counts. The
    /// duration is independent of the existing policies and names (SEC-08).
    #[must_use]
    pub fn find_key(&self, resource: &str, name: &str, key: &str) -> KeyMatch {
        let digest = KeyDigest::of(name, key);
        let owners = [owner_of(resource), Some(namespace_key())];
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        let found = held.by_key.get(&digest);
        let here = found.and_then(|found| owners.iter().flatten().find_map(|it| found.of(it)));
        let development = self.0.development.get().filter(|(known, _)| *known == digest);
        match (here, development, found) {
            (Some((policy, which)), ..) => KeyMatch::Here(Arc::clone(policy), *which),
            (None, Some((_, policy)), _) => KeyMatch::Here(Arc::clone(policy), WhichKey::Primary),
            (None, None, Some(found)) => KeyMatch::Elsewhere(found.recognize()),
            (None, None, None) => KeyMatch::Nowhere,
        }
    }

    /// Returns the grant of a policy at a resource without a key, for handles that their host has
    /// assigned to it (SEC-17). `owner` is the entity that has the policy; it is empty for the
    /// namespace.
    pub(crate) fn grant(
        &self,
        owner: &str,
        name: &str,
        resource: &str,
    ) -> Result<Grant, Rejection> {
        let owner = PathKey::fold(owner);
        let Some(policy) = self.of(&owner).iter().find(|policy| policy.is_named(name)).cloned()
        else {
            let detail = "there is no policy, or no longer one, that grants rights to this handle";
            let reason = Rejection::unauthorized(detail).with_cause("withdrawn");
            return Err(if self.has_name(name) { reason.with_policy(name) } else { reason });
        };
        let covers = owner == namespace_key() || owner_of(resource).is_some_and(|it| it == owner);
        Ok(if covers { policy.grant() } else { Grant::nothing().with_policy(policy.name()) })
    }

    /// Returns all policies of an entity in the order of their names.
    pub(crate) fn of(&self, owner: &PathKey) -> OfOwner {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_owner.get(owner).map_or_else(|| Arc::from([]), Arc::clone)
    }

    /// Whether an entity has policies; with an empty path, whether any entity has some.
    pub(crate) fn are_in(&self, container: &str) -> bool {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        match container {
            "" => held.by_owner.keys().any(|owner| *owner != namespace_key()),
            path => held.by_owner.contains_key(&PathKey::fold(path)),
        }
    }

    /// Whether clients without a token are refused because keys have been used (SEC-17).
    #[must_use]
    pub fn ended_anonymous_access(&self) -> bool {
        self.0.anonymous.is_over.load(Ordering::Acquire)
    }

    /// Returns a grant with every right for a client without credentials, while no keys are used
    /// (SEC-17); none afterwards.
    #[must_use]
    pub fn grant_anonymous(&self) -> Option<Grant> {
        let AnonymousAccess { mark, .. } = &self.0.anonymous;
        (!self.ended_anonymous_access()).then(|| Grant::everything().with_epoch(mark.clone()))
    }

    /// The clock of the broker; none before it has started.
    #[must_use]
    pub fn clock(&self) -> Option<&Arc<dyn Clock>> {
        self.0.clock.get()
    }

    /// Returns a receiver that is notified of every change of policies.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Primary key of the root policy, which the host writes to a file for the operator (SEC-25);
    /// none before the broker has started.
    #[must_use]
    pub fn root_key(&self) -> Option<KeyText> {
        let root = self.at("", ROOT_POLICY).into_iter().next()?;
        Some(root.key(WhichKey::Primary).clone())
    }

    pub(crate) fn begin(&self, clock: &Arc<dyn Clock>) {
        // A second broker must not use the policies of the first; its builder refuses them.
        self.0.clock.set(Arc::clone(clock)).ok();
    }

    /// Whether a broker uses these policies.
    pub(crate) fn is_used(&self) -> bool {
        self.0.clock.get().is_some()
    }

    /// Replaces the policies in force of an owner. Grants of removed policies and keys end.
    pub(crate) fn install(&self, owner: &PathKey, policies: Vec<Arc<Policy>>) {
        let newer: OfOwner = policies.into();
        let (older, over) = {
            let mut held = self.0.held.write().unwrap_or_else(PoisonError::into_inner);
            let older = if newer.is_empty() {
                held.by_owner.remove(owner)
            } else {
                held.by_owner.insert(owner.clone(), Arc::clone(&newer))
            };
            let before = older.as_deref().unwrap_or_default();
            let over = held.by_key.replace(owner, before, &newer);
            (older, over)
        };
        // After the replacement, so that a new question gets the new policies.
        for policy in older.iter().flat_map(|older| older.iter()) {
            let heir = newer.iter().find(|newer| newer.is_named(policy.name()));
            policy.end(heir.map(|heir| &**heir));
        }
        over.iter().for_each(GrantEpoch::end);
        self.0.changed.send_modify(|count| *count += 1);
    }

    /// Ends anonymous access: refuses clients without a token from now on, and ends their open
    /// links and calls.
    pub(crate) fn end_anonymous_access(&self) {
        let AnonymousAccess { is_over, epoch, .. } = &self.0.anonymous;
        if !is_over.swap(true, Ordering::AcqRel) {
            epoch.raise();
        }
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").finish_non_exhaustive()
    }
}

/// Key of the policies of the namespace.
pub(crate) fn namespace_key() -> PathKey {
    PathKey::fold("")
}

/// Returns the queue or topic whose policies apply at a resource.
fn owner_of(resource: &str) -> Option<PathKey> {
    let address = EntityAddress::parse(resource).ok()?;
    Some(PathKey::fold(address.entity.root()))
}

/// Returns `now`, or the next instant after `earlier` if that is later.
pub(crate) const fn next_instant(earlier: Timestamp, now: Timestamp) -> Timestamp {
    if now.ticks() > earlier.ticks() { now } else { Timestamp::from_ticks(earlier.ticks() + 1) }
}
