//! Epochs, with which an authorizer withdraws its grants. Grants carry a mark of their epoch, and
//! raising the epoch ends all earlier grants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// State on which grants depend, such as a key or a policy. The authorizer raises it when the key
/// is regenerated or the policy deleted. Every earlier grant is then over: for requests at once
/// (SEC-09), for links and waiting calls within a second (SEC-15). Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Epoch(Arc<Counter>);

/// Value of an epoch at the time of a decision, or values of several epochs.
#[derive(Clone, Debug)]
pub struct Mark {
    of: Epoch,
    at: u64,
    /// Mark of another epoch on which the decision depends too.
    also: Option<Box<Self>>,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    /// One bell for each broker that has grants under this epoch.
    bells: Mutex<Vec<Weak<EpochNotifier>>>,
}

/// Notifies a broker that an epoch was raised.
#[derive(Debug, Default)]
pub(crate) struct EpochNotifier {
    /// Number of raises of all its epochs; if it is unchanged, no epoch was raised.
    count: AtomicU64,
    rung: Notify,
}

impl Epoch {
    /// Creates an epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current value of the epoch, for a [`Grant`](super::Grant). Take it before you
    /// read the state on which the grant depends.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { of: self.clone(), at: self.0.count.load(Ordering::Acquire), also: None }
    }

    /// Whether a mark or a clone of this epoch exists elsewhere.
    #[must_use]
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Begins the next epoch and ends all grants of the current one. After the return, no request
    /// passes with an older grant.
    pub fn raise(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        let bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for bell in bells.iter().filter_map(Weak::upgrade) {
            bell.notify_raised();
        }
    }
}

impl Mark {
    /// Whether none of its epochs has been raised since.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.of.0.count.load(Ordering::Acquire) == self.at
            && self.also.as_ref().is_none_or(|also| also.is_current())
    }

    /// Adds the epochs of another mark.
    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        let other = match self.also {
            Some(also) => also.with(other),
            None => other,
        };
        Self { also: Some(Box::new(other)), ..self }
    }

    /// Registers a bell that rings when the epoch is raised. The caller must check afterwards
    /// whether the mark is still current.
    pub(crate) fn register_notifier(&self, bell: &Arc<EpochNotifier>) {
        let mut bells = self.of.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if !bells.iter().any(|other| other.as_ptr() == Arc::as_ptr(bell)) {
            bells.retain(|other| other.strong_count() > 0);
            bells.push(Arc::downgrade(bell));
        }
        drop(bells);
        if let Some(also) = &self.also {
            also.register_notifier(bell);
        }
    }
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.of.0, &other.of.0) && self.at == other.at && self.also == other.also
    }
}

impl Eq for Mark {}

impl EpochNotifier {
    pub(crate) fn notify_raised(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.rung.notify_one();
    }

    /// Wakes the waiting task although no epoch was raised.
    pub(crate) fn wake(&self) {
        self.rung.notify_one();
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) async fn notified(&self) {
        self.rung.notified().await;
    }
}
