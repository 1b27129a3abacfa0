//! Work for a broker outside the mailboxes of its actors: consumers that have messages, couriers,
//! and loading of contents. Counted only if a test waits until there is none
//! ([`crate::Broker::idle`]).
//!
//! Work passes from one holder to the next without a gap: an answer to a receive, or a message
//! pushed over a link, carries an [`PendingWork`], which its receiver keeps until it waits again.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counter of work in progress.
pub(crate) struct Activity {
    counted: Option<Arc<WorkCounter>>,
    watch: WatchScope,
}

/// Kinds of work that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WatchScope {
    /// No work.
    #[default]
    Nothing,
    /// Work of the broker itself, without its clients.
    Inside,
    /// All work.
    All,
}

#[derive(Default)]
struct WorkCounter {
    at_work: AtomicUsize,
    none_is: Notify,
}

/// Marks work in progress until it is dropped.
pub struct PendingWork(Arc<WorkCounter>);

tokio::task_local! {
    /// Work of the task that runs within [`tracked`].
    static OWN: RefCell<Option<PendingWork>>;
}

impl Activity {
    pub(crate) fn new(watch: WatchScope) -> Self {
        Self { counted: (watch != WatchScope::Nothing).then(Arc::default), watch }
    }

    pub(crate) const fn watch(&self) -> WatchScope {
        self.watch
    }

    /// Marks work of a client; none if it is not counted.
    pub(crate) fn begin_client_work(&self) -> Option<PendingWork> {
        if self.watch == WatchScope::All { self.begin() } else { None }
    }

    /// Marks work from now on; none if it is not counted.
    pub(crate) fn begin(&self) -> Option<PendingWork> {
        let counted = self.counted.as_ref()?;
        counted.at_work.fetch_add(1, Ordering::AcqRel);
        Some(PendingWork(Arc::clone(counted)))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.counted.as_ref().is_none_or(|counted| counted.at_work.load(Ordering::Acquire) == 0)
    }

    /// Waits until no work is in progress.
    pub(crate) async fn wait_until_idle(&self) {
        let Some(counted) = &self.counted else { return };
        loop {
            // Created before the check, so that a notification after it is not missed.
            let none_is = counted.none_is.notified();
            if self.is_idle() {
                return;
            }
            none_is.await;
        }
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        if self.0.at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_is.notify_waiters();
        }
    }
}

/// Runs a loop that receives and handles messages, and counts it as work in progress except while
/// it waits for messages.
pub async fn tracked<T>(at_work: Option<PendingWork>, work: impl Future<Output = T>) -> T {
    OWN.scope(RefCell::new(at_work), work).await
}

/// Notes that the task has received work.
pub(crate) fn note_work(at_work: Option<PendingWork>) {
    if at_work.is_some() {
        // Other tasks are not counted.
        OWN.try_with(|own| own.replace(at_work)).ok();
    }
}

/// Notes that the task waits for work.
pub(crate) fn note_wait() {
    OWN.try_with(|own| own.take()).ok();
}
