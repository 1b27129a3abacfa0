//! Policies: names with rights and two keys each, on the namespace, on queues and on topics (SEC-01 to SEC-04).
//!
//! [`Policies`] is what an authorizer looks policies up in. It is made by the host, given to the
//! [builder](crate::BrokerBuilder::policies), which fills it from the store, and to the authorizer. Who changes a
//! policy does so by the broker ([`Broker::create_policy`](crate::Broker::create_policy) and its like): the change is
//! durable before it is in force. What was granted by a key ends with the key (SEC-09).
//!
//! Absent on purpose: tokens and their signatures, which are an authorizer's.

mod by_key;
pub(crate) mod change;
mod names;
mod policy;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;

use self::by_key::{ByKey, KeyDigest};
use self::policy::Life;
pub use self::policy::{
    KeyText, NAME_CHARS_MAX, Policy, PolicyDescription, PolicyKeys, PolicyUpdate, WhichKey,
};
use crate::clock::Clock;
use crate::contract::{Epoch, Grant, Mark, Rights};
use crate::error::Rejection;
use crate::path::{EntityAddress, PathKey};
use crate::time::Timestamp;

/// The policy that every namespace begins with, and keeps (SEC-04).
pub const ROOT_POLICY: &str = "RootManageSharedAccessKey";

/// All policies of a broker, as they are in force. Cheap to clone; clones are one.
#[derive(Clone, Default)]
pub struct Policies(Arc<Ring>);

struct Ring {
    held: RwLock<Held>,
    anonymous: Anonymous,
    clock: OnceLock<Arc<dyn Clock>>,
    /// Of the namespace, with a key that everybody knows; stored nowhere (SEC-24).
    development: OnceLock<(KeyDigest, Arc<Policy>)>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

/// Those that are in force.
#[derive(Default)]
struct Held {
    /// By entity; those of the namespace under no name.
    by_owner: HashMap<PathKey, OfOwner>,
    by_key: ByKey,
}

type OfOwner = Arc<[Arc<Policy>]>;

/// Where a key that somebody presents, or has signed with, is good.
#[derive(Clone, Debug)]
pub enum KeyFound {
    /// At the resource: by which policy, and which of its keys it is.
    Here(Arc<Policy>, WhichKey),
    /// For something else: what it gives here, which is nothing. He is known by it as long as any policy of that name has
    /// it, whosever that is.
    Elsewhere(Grant),
    /// It is no key of a policy of that name.
    Nowhere,
}

/// Whether nobody has asked for keys yet (SEC-17).
struct Anonymous {
    is_over: AtomicBool,
    epoch: Epoch,
    mark: Mark,
}

impl Default for Ring {
    fn default() -> Self {
        let epoch = Epoch::new();
        let mark = epoch.mark();
        Self {
            held: RwLock::default(),
            anonymous: Anonymous { is_over: AtomicBool::new(false), epoch, mark },
            clock: OnceLock::new(),
            development: OnceLock::new(),
            changed: watch::Sender::new(0),
        }
    }
}

impl Policies {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The policies of that name that hold at a resource, the nearest first: those of the entity itself, of
    /// the topic of a subscription, and of the namespace (SEC-12). The resource is the path of an entity or
    /// sub-queue, or empty for the namespace.
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

    /// Whether a policy of this broker has that name, whosever it is. What a client says to be the name of a policy may be
    /// repeated to an operator if it is one; else it may be a secret in the wrong place (SEC-22).
    #[must_use]
    pub fn have_name(&self, name: &str) -> bool {
        let development = self.0.development.get();
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_key.have_name(name) || development.is_some_and(|(_, policy)| policy.is_named(name))
    }

    /// Lets in who has signed with this key, too, for the policy that every namespace has, with all rights (SEC-24). It is
    /// listed, told and stored nowhere, and holds as long as this process. Only the first one counts.
    pub fn allow_development_key(&self, key: &str) {
        let keys = [KeyText::stored(key), KeyText::stored(key)];
        let (rights, never) = (Rights::ALL, Timestamp::NONE);
        let policy = Policy::new(ROOT_POLICY, rights, keys, never, never);
        let digest = KeyDigest::of_policy(&policy, WhichKey::Primary);
        self.0.development.set((digest, Arc::new(policy))).ok();
    }

    /// Whether there is a key that everybody knows (SEC-24).
    #[must_use]
    pub fn have_development_key(&self) -> bool {
        self.0.development.get().is_some()
    }

    /// Keys of policies of that name, whosever they are, each once and so many at most: for who has signed with one where its
    /// policy does not hold (SEC-26). Of more keys the same ones are left out, as long as none is changed.
    #[must_use]
    pub fn keys_named(&self, name: &str, count_max: usize) -> Vec<KeyText> {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_key.keys_named(name, count_max)
    }

    /// What a key is worth at a resource for who presents it itself (AMQP-08) or has signed with it, with the name of a policy:
    /// of the policies that [hold](Self::at) there the nearest one counts. It takes as long whatever policies there are, and
    /// whether one has that name (SEC-08).
    #[must_use]
    pub fn find_key(&self, resource: &str, name: &str, key: &str) -> KeyFound {
        let digest = KeyDigest::of(name, key);
        let owners = [owner_of(resource), Some(namespace_key())];
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        let found = held.by_key.get(&digest);
        let here = found.and_then(|found| owners.iter().flatten().find_map(|it| found.of(it)));
        let development = self.0.development.get().filter(|(known, _)| *known == digest);
        match (here, development, found) {
            (Some((policy, which)), ..) => KeyFound::Here(Arc::clone(policy), *which),
            (None, Some((_, policy)), _) => KeyFound::Here(Arc::clone(policy), WhichKey::Primary),
            (None, None, Some(found)) => KeyFound::Elsewhere(found.recognize()),
            (None, None, None) => KeyFound::Nowhere,
        }
    }

    /// What a policy gives at a resource by itself, without a key: for handles that their host has wrapped with it
    /// (SEC-17). `owner` is the entity that has the policy, empty for the namespace.
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
            let reason = Rejection::unauthorized(detail).because("withdrawn");
            return Err(if self.have_name(name) { reason.by_policy(name) } else { reason });
        };
        let covers = owner == namespace_key() || owner_of(resource).is_some_and(|it| it == owner);
        Ok(if covers { policy.grant() } else { Grant::nothing().by(policy.name()) })
    }

    /// All policies of an entity in the order of their names.
    pub(crate) fn of(&self, owner: &PathKey) -> OfOwner {
        let held = self.0.held.read().unwrap_or_else(PoisonError::into_inner);
        held.by_owner.get(owner).map_or_else(|| Arc::from([]), Arc::clone)
    }

    /// Whether clients without a token are told to show one, because somebody has used keys (SEC-17).
    #[must_use]
    pub fn ended_anonymous_access(&self) -> bool {
        self.0.anonymous.is_over.load(Ordering::Acquire)
    }

    /// Every right for somebody who has shown nothing, as long as nobody uses keys (SEC-17). None once that is over.
    #[must_use]
    pub fn grant_anonymous(&self) -> Option<Grant> {
        let Anonymous { mark, .. } = &self.0.anonymous;
        (!self.ended_anonymous_access()).then(|| Grant::everything().within(mark.clone()))
    }

    /// The instant now, by the clock of the broker; none before it has started.
    #[must_use]
    pub fn clock(&self) -> Option<&Arc<dyn Clock>> {
        self.0.clock.get()
    }

    /// Tells of every change of policies.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// The primary key of the root policy, for the host to write it where its operator finds it (SEC-25); none before the
    /// broker has started.
    #[must_use]
    pub fn root_key(&self) -> Option<KeyText> {
        let root = self.at("", ROOT_POLICY).into_iter().next()?;
        Some(root.key(WhichKey::Primary).clone())
    }

    pub(crate) fn begin(&self, clock: &Arc<dyn Clock>) {
        // A second broker would get what is not its own: its builder refuses that.
        self.0.clock.set(Arc::clone(clock)).ok();
    }

    /// Whether a broker has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.clock.get().is_some()
    }

    /// Puts policies in force. What was granted by those that are not among them ends.
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
        // After they are gone: who asks now is answered by the newer ones.
        for policy in older.iter().flat_map(|older| older.iter()) {
            let heir = newer.iter().find(|newer| newer.is_named(policy.name()));
            policy.end(heir.map(|heir| &**heir));
        }
        over.iter().for_each(Life::end);
        self.0.changed.send_modify(|count| *count += 1);
    }

    /// From now on nobody is let in without a token. What anonymous clients have begun ends.
    pub(crate) fn end_anonymous_access(&self) {
        let Anonymous { is_over, epoch, .. } = &self.0.anonymous;
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

/// The name under which those of the namespace are held.
pub(crate) fn namespace_key() -> PathKey {
    PathKey::fold("")
}

/// The queue or topic whose policies hold at a resource.
fn owner_of(resource: &str) -> Option<PathKey> {
    let address = EntityAddress::parse(resource).ok()?;
    Some(PathKey::fold(address.entity.root()))
}

/// An instant that nothing comes before.
pub(crate) const fn later(earlier: Timestamp, now: Timestamp) -> Timestamp {
    if now.ticks() > earlier.ticks() { now } else { Timestamp::from_ticks(earlier.ticks() + 1) }
}
