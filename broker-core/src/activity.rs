//! What is being done for a broker outside the mailboxes of its actors: by consumers that have messages, by
//! couriers, by who loads contents. Counted only if a test wants to wait until nothing is ([`crate::Broker::idle`]).
//!
//! Work changes hands without a moment in which nobody has it: what is answered to a receive or pushed over a link
//! carries an [`AtWork`], which its receiver keeps until it waits again.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many are at work.
pub(crate) struct Activity {
    counted: Option<Arc<Counted>>,
    watch: Watched,
}

/// Whose work is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Watched {
    /// Nobody's.
    #[default]
    Nothing,
    /// The broker's own, and not that of its clients.
    Inside,
    /// Everybody's.
    All,
}

#[derive(Default)]
struct Counted {
    at_work: AtomicUsize,
    none_is: Notify,
}

/// As long as this is there, somebody is at work.
pub struct AtWork(Arc<Counted>);

tokio::task_local! {
    /// What the task has to do that runs within [`tracked`].
    static OWN: RefCell<Option<AtWork>>;
}

impl Activity {
    pub(crate) fn new(watch: Watched) -> Self {
        Self { counted: (watch != Watched::Nothing).then(Arc::default), watch }
    }

    pub(crate) const fn watch(&self) -> Watched {
        self.watch
    }

    /// A client has something to do; none if nobody wants to know.
    pub(crate) fn begin_of_client(&self) -> Option<AtWork> {
        if self.watch == Watched::All { self.begin() } else { None }
    }

    /// Somebody has something to do from now on; none if nobody wants to know.
    pub(crate) fn begin(&self) -> Option<AtWork> {
        let counted = self.counted.as_ref()?;
        counted.at_work.fetch_add(1, Ordering::AcqRel);
        Some(AtWork(Arc::clone(counted)))
    }

    pub(crate) fn is_none_at_work(&self) -> bool {
        self.counted.as_ref().is_none_or(|counted| counted.at_work.load(Ordering::Acquire) == 0)
    }

    /// Waits until nobody is at work.
    pub(crate) async fn none_at_work(&self) {
        let Some(counted) = &self.counted else { return };
        loop {
            // Before the look, so that what happens after it is not missed.
            let none_is = counted.none_is.notified();
            if self.is_none_at_work() {
                return;
            }
            none_is.await;
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if self.0.at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_is.notify_waiters();
        }
    }
}

/// Has a loop that receives and handles counted as at work, from now on but while it waits for what it receives.
pub async fn tracked<T>(at_work: Option<AtWork>, work: impl Future<Output = T>) -> T {
    OWN.scope(RefCell::new(at_work), work).await
}

/// The task has got something.
pub(crate) fn is_at_work(at_work: Option<AtWork>) {
    if at_work.is_some() {
        // Nobody wants to know it of another task.
        OWN.try_with(|own| own.replace(at_work)).ok();
    }
}

/// The task waits for something to do.
pub(crate) fn waits() {
    OWN.try_with(|own| own.take()).ok();
}
