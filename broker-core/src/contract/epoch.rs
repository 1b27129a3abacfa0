//! Epochs: how an authorizer takes back what it has granted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// What grants rest on, such as a key or a policy. When it is raised, because the key was regenerated or the
/// policy deleted, every grant that was decided before is over: for requests at once (SEC-09), for links
/// and calls that wait within a second (SEC-15). Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Epoch(Arc<Counter>);

/// An epoch as it was when something was decided.
#[derive(Clone, Debug)]
pub struct Mark {
    of: Epoch,
    at: u64,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    /// Brokers that have grants under it; one each.
    bells: Mutex<Vec<Weak<Bell>>>,
}

/// Tells a broker that some epoch was raised.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// How often; whoever has seen this count knows that nothing was raised since.
    count: AtomicU64,
    rung: Notify,
}

impl Epoch {
    /// A first epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The epoch as it is now, to be put into a [`Grant`](super::Grant). To be taken before that is looked
    /// at which the grant depends on.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { of: self.clone(), at: self.0.count.load(Ordering::Acquire) }
    }

    /// Whether a mark of it, or a clone, is held by somebody else.
    #[must_use]
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Begins the next epoch: what was granted in this one is over. When this returns, no request
    /// passes by an older grant.
    pub fn raise(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        let bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for bell in bells.iter().filter_map(Weak::upgrade) {
            bell.ring();
        }
    }
}

impl Mark {
    /// Whether its epoch lasts.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.of.0.count.load(Ordering::Acquire) == self.at
    }

    /// Has a bell rung when the epoch is raised; to be followed by a look whether it is current.
    pub(crate) fn ring(&self, bell: &Arc<Bell>) {
        let mut bells = self.of.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if !bells.iter().any(|other| other.as_ptr() == Arc::as_ptr(bell)) {
            bells.retain(|other| other.strong_count() > 0);
            bells.push(Arc::downgrade(bell));
        }
    }
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.of.0, &other.of.0) && self.at == other.at
    }
}

impl Eq for Mark {}

impl Bell {
    pub(crate) fn ring(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.rung.notify_one();
    }

    /// Wakes whoever waits, though nothing was raised.
    pub(crate) fn knock(&self) {
        self.rung.notify_one();
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }
}
