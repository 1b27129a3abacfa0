//! Commits on the thread of the submitter (decision 46): if the committer has nothing to do, a
//! submitter drives it for its own batch, so that no thread is woken before the sync or after it.
//!
//! The submitter owns the committer meanwhile. Jobs that arrive during that time wait in the queue,
//! and wake the committer's thread at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::committer::Committer;
use super::queue::JobQueue;
use crate::StoreError;

/// Calls `submit`, and carries out its job if there is no other. Returns whether the outcome of the
/// batch is known.
pub(super) fn commit_here(
    queue: &JobQueue,
    committer: &mut Committer,
    submit: &mut dyn FnMut(),
) -> bool {
    let is_ready = committer.is_idle() && committer.has_room();
    let lead = if is_ready { queue.lead() } else { None };
    let Some(mut lead) = lead else {
        submit();
        return false;
    };
    submit();
    let Some(job) = lead.take_only_job() else { return false };
    let was_unmarked = committer.is_unmarked();
    if catch_unwind(AssertUnwindSafe(|| committer.turn([job].into()))).is_err() {
        committer.poison(&StoreError::Failed("the committer panicked".into()));
    }
    let is_done = committer.is_idle();
    // The committer's thread continues with the rest, begins to wait for a quiet second, or ends.
    let begins_quiet_time = committer.is_unmarked() && !was_unmarked;
    if !is_done || begins_quiet_time || queue.ended().is_some() {
        queue.nudge();
    }
    is_done
}
