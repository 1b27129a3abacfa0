//! Writer of a shard: numbers batches, submits them in order, and keeps them until their outcome is
//! known.
//!
//! Trees of a shard share a writer, also across arbiters. An append of unknown outcome stops it
//! until all batches from that id on are submitted again under the same ids (DESIGN D11). Answers
//! depend on the order of batches (DESIGN D5): a store that completes a batch before an earlier one
//! has failed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::store::{Batch, BatchId, Completion, Fence, Shard, Store, StoreError, Submission};
use crate::transfer::claim::TransferGuard;

/// Maximum number of times that a batch of unknown outcome is submitted again.
const RESUBMISSIONS_MAX: u32 = 1;

/// Submits the batches of a shard.
pub struct ShardWriter {
    shard: Shard,
    store: Arc<dyn Store>,
    /// Held while a batch is passed to the store, so that ids arrive in order.
    order: Mutex<()>,
    state: Mutex<State>,
    /// Called when the outcome of a batch is unknown. It must arrange a later call of
    /// [`Self::resubmit`], not call it itself.
    on_unknown: Box<dyn Fn(Arc<Self>) + Send + Sync>,
    itself: Weak<Self>,
}

struct State {
    fence: Fence,
    next: BatchId,
    pending: VecDeque<PendingBatch>,
    /// Reason why the writer has stopped.
    halt: Option<Halt>,
    /// Guards of failed batches: a batch of unknown outcome may still be stored until the shard is
    /// acquired again.
    failed_guards: Vec<TransferGuard>,
}

#[derive(Clone)]
enum Halt {
    /// An outcome is unknown; new batches wait.
    Unknown,
    /// A batch failed; no more are accepted under this epoch.
    Failed(StoreError),
}

impl State {
    /// Whether a completion came too early. `id` and `round` belong to a completed batch that is
    /// not the first pending batch. If it is pending, the store has completed it before the first,
    /// which no store may do. After an unknown outcome (`halt` is set) this is no fault: all
    /// batches are submitted again in any case.
    fn overtakes(&self, id: BatchId, round: u32) -> bool {
        self.halt.is_none() && self.pending.iter().any(|one| one.id == id && one.round == round)
    }
}

struct PendingBatch {
    id: BatchId,
    batch: Arc<Batch>,
    completion: Completion,
    /// Dropped when the batch can no longer be stored.
    guards: Vec<TransferGuard>,
    resubmissions: u32,
    /// Number of times that this batch was submitted again, also because of an earlier batch. A
    /// completion from an earlier round is ignored.
    round: u32,
    /// Whether the store has the batch, and with it the carried reservation.
    handed_over: bool,
}

impl ShardWriter {
    /// Acquires a shard.
    ///
    /// # Errors
    /// A store that refuses the shard.
    pub async fn acquire(
        store: Arc<dyn Store>,
        shard: Shard,
        on_unknown: Box<dyn Fn(Arc<Self>) + Send + Sync>,
    ) -> Result<Arc<Self>, StoreError> {
        let (fence, next) = store.acquire(shard).await?;
        let state =
            State { fence, next, pending: VecDeque::new(), halt: None, failed_guards: Vec::new() };
        Ok(Arc::new_cyclic(|itself| Self {
            shard,
            store,
            order: Mutex::new(()),
            state: Mutex::new(state),
            on_unknown,
            itself: itself.clone(),
        }))
    }

    /// The shard of this writer.
    #[must_use]
    pub const fn shard(&self) -> Shard {
        self.shard
    }

    /// Appends a batch. `completion` is called once with the outcome, after the completions of all
    /// earlier batches.
    pub fn submit(&self, batch: Batch, completion: Completion) {
        self.submit_after(None, batch, Vec::new(), completion);
    }

    /// Calls `submit`, which submits one batch here, and completes it on this thread if the store
    /// has no other work (see [`Store::commit_here`]). Returns whether it did.
    pub fn commit_here(&self, submit: &mut dyn FnMut()) -> bool {
        self.store.commit_here(submit)
    }

    /// Appends a batch that depends on an earlier one: it fails if the epoch is no longer
    /// `earlier`. Another tree may have taken the shard over again before the caller learns that
    /// its earlier batch is lost. Returns the epoch on which the next batch may depend.
    pub(super) fn submit_after(
        &self,
        earlier: Option<Fence>,
        batch: Batch,
        guards: Vec<TransferGuard>,
        completion: Completion,
    ) -> Fence {
        let order = lock(&self.order);
        let mut state = lock(&self.state);
        let fence = state.fence;
        let refusal = match (&state.halt, earlier) {
            (Some(Halt::Failed(error)), _) => Some(error.clone()),
            (_, Some(earlier)) if earlier != fence => {
                Some(StoreError::Fenced { held: earlier.epoch, current: fence.epoch })
            }
            (Some(Halt::Unknown) | None, _) => None,
        };
        if let Some(error) = refusal {
            drop(state);
            drop(order);
            self.store.unreserve(self.shard, batch.reserved());
            completion(Err(error));
            return earlier.unwrap_or(fence);
        }
        let id = state.next;
        state.next = BatchId(id.0 + 1);
        let batch = Arc::new(batch);
        let waits = state.halt.is_some();
        state.pending.push_back(PendingBatch {
            id,
            batch: Arc::clone(&batch),
            completion,
            guards,
            resubmissions: 0,
            round: 0,
            handed_over: !waits,
        });
        drop(state);
        if !waits {
            self.hand_over((id, 0), fence, batch);
        }
        fence
    }

    fn hand_over(&self, (id, round): (BatchId, u32), fence: Fence, batch: Arc<Batch>) {
        let itself = self.itself.clone();
        let completion = Box::new(move |result| {
            if let Some(writer) = itself.upgrade() {
                writer.complete(fence, (id, round), result);
            }
        });
        self.store.submit(Submission { id, fences: vec![fence], batch }, completion);
    }

    fn complete(&self, fence: Fence, (id, round): (BatchId, u32), result: Result<(), StoreError>) {
        let mut ended = Vec::new();
        let mut state = lock(&self.state);
        // Batches of a past epoch were answered when it ended. A late failure among them is
        // unrelated to the current batches, which may have the same ids.
        if state.fence != fence {
            return;
        }
        match result {
            Ok(()) if state.pending.front().is_some_and(|first| first.id == id) => {
                ended.extend(state.pending.pop_front().map(|first| (first, Ok(()))));
            }
            Ok(()) if state.overtakes(id, round) => {
                let detail = format!("batch {} was completed before an earlier one", id.0);
                let failure = StoreError::Failed(detail.into());
                state.halt = Some(Halt::Failed(failure.clone()));
                ended.extend(state.pending.drain(..).map(|one| (one, Err(failure.clone()))));
            }
            // The batch is submitted again, or was answered already.
            Ok(()) => {}
            Err(StoreError::Unknown) => {
                let tried = state.pending.front().is_some_and(|first| {
                    first.id == id && first.resubmissions >= RESUBMISSIONS_MAX
                });
                if tried {
                    let unknown = StoreError::Unknown;
                    state.halt = Some(Halt::Failed(unknown.clone()));
                    ended.extend(state.pending.drain(..).map(|one| (one, Err(unknown.clone()))));
                } else if state.halt.is_none() {
                    state.halt = Some(Halt::Unknown);
                    drop(state);
                    if let Some(itself) = self.itself.upgrade() {
                        (self.on_unknown)(itself);
                    }
                    return;
                }
            }
            Err(error) => {
                state.halt = Some(Halt::Failed(error.clone()));
                ended.extend(state.pending.drain(..).map(|one| (one, Err(error.clone()))));
            }
        }
        for (one, result) in &mut ended {
            if result.is_err() {
                state.failed_guards.append(&mut one.guards);
            }
        }
        drop(state);
        for (one, result) in ended {
            // The store itself returns reservations of batches it was given: with the outcome, or
            // when the shard is acquired again.
            if !one.handed_over {
                self.store.unreserve(self.shard, one.batch.reserved());
            }
            (one.completion)(result);
        }
    }

    /// Returns a reservation of a batch that will not be submitted.
    pub(super) fn unreserve(&self, bytes: u64) {
        self.store.unreserve(self.shard, bytes);
    }

    /// Submits all batches from the unknown one on again, under the same ids.
    pub fn resubmit(&self) {
        let order = lock(&self.order);
        let mut state = lock(&self.state);
        if !matches!(state.halt, Some(Halt::Unknown)) {
            return;
        }
        state.halt = None;
        if let Some(first) = state.pending.front_mut() {
            first.resubmissions += 1;
        }
        let fence = state.fence;
        let again: Vec<((BatchId, u32), Arc<Batch>)> = state
            .pending
            .iter_mut()
            .map(|one| {
                one.round += 1;
                ((one.id, one.round), Arc::clone(&one.batch))
            })
            .collect();
        drop(state);
        for ((id, round), batch) in again {
            let mut state = lock(&self.state);
            if state.halt.is_some() {
                break;
            }
            for one in state.pending.iter_mut().filter(|one| one.id == id) {
                one.handed_over = true;
            }
            drop(state);
            self.hand_over((id, round), fence, batch);
        }
        drop(order);
    }

    /// Takes the shard over again after a failure. This raises its epoch, so that batches still on
    /// their way can no longer be stored (DESIGN D3). Does nothing if the writer works. Callers wait
    /// for its end before they call it again.
    ///
    /// # Errors
    /// A store that refuses the shard, or is not available; then late batches may still be stored.
    pub async fn recover(&self) -> Result<(), StoreError> {
        if !matches!(lock(&self.state).halt, Some(Halt::Failed(_))) {
            return Ok(());
        }
        // Until the shard is acquired, the halt refuses all batches.
        let acquired = match self.store.acquire(self.shard).await {
            Err(error) if error.is_unavailable() => return Err(error),
            acquired => acquired,
        };
        let order = lock(&self.order);
        let mut state = lock(&self.state);
        // A store that refuses the shard stores no late batches either.
        let limbo = std::mem::take(&mut state.failed_guards);
        let result = acquired.map(|(fence, next)| {
            state.fence = fence;
            state.next = next;
            state.halt = None;
        });
        drop(state);
        drop(order);
        drop(limbo);
        result
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
