//! Submitted batches in order, with their answers.

use std::sync::{Arc, Mutex, PoisonError};

use peeklock_core::store::{
    Batch, BatchId, Completion, Fence, Shard, Store, StoreError, Submission,
};

use crate::oracle::{Op, State, batch_of};

type Outcome = Result<(), StoreError>;

/// Answers in the order of their arrival: the index of a batch, and its outcome.
type Answers = Arc<Mutex<Vec<(usize, Outcome)>>>;

pub struct Submitted {
    pub shard: Shard,
    /// Further shards that it changes.
    pub others: Vec<usize>,
    pub ops: Vec<Op>,
    pub synced: bool,
    pub outcome: Option<Outcome>,
}

/// All batches since the store was opened.
pub struct Book {
    /// Contents of the store at that time.
    pub base: State,
    /// Owner of each shard, and the first batch id of this owner.
    pub owners: Vec<(Fence, BatchId)>,
    pub batches: Vec<Submitted>,
    /// Batches acknowledged as stored, in the order of their acknowledgements, which is the order
    /// of the log.
    pub stored: Vec<usize>,
    next: Vec<BatchId>,
    answers: Answers,
}

impl Book {
    pub fn new(base: State, owners: Vec<(Fence, BatchId)>) -> Self {
        let next = owners.iter().map(|(_, next)| *next).collect();
        Self {
            base,
            owners,
            batches: Vec::new(),
            stored: Vec::new(),
            next,
            answers: Answers::default(),
        }
    }

    /// Submits a batch with the next id of a shard. It also changes the shards `others`.
    pub fn submit(
        &mut self,
        store: &dyn Store,
        shard: usize,
        others: &[usize],
        (ops, synced): (Vec<Op>, bool),
    ) {
        let batch = batch_of(&ops, synced);
        self.submit_batch(store, (shard, others), (ops, synced), batch);
    }

    /// Like [`Self::submit`], but the store may commit the batch on this thread. Returns whether it
    /// did.
    pub fn submit_here(
        &mut self,
        store: &dyn Store,
        shard: usize,
        others: &[usize],
        work: (Vec<Op>, bool),
    ) -> bool {
        let mut work = Some(work);
        let is_done = store.commit_here(&mut || {
            if let Some(work) = work.take() {
                self.submit(store, shard, others, work);
            }
        });
        assert!(work.is_none(), "a store asks for the batch");
        self.take_answers();
        let last = self.batches.last().and_then(|batch| batch.outcome.as_ref());
        assert!(!is_done || last.is_some(), "a batch that is committed here has an outcome");
        is_done
    }

    /// Submits a batch with a reservation.
    pub fn submit_reserved(
        &mut self,
        store: &dyn Store,
        shard: usize,
        (ops, synced): (Vec<Op>, bool),
        reserved_bytes: u64,
    ) {
        let mut batch = batch_of(&ops, synced);
        batch.carry_reservation(reserved_bytes);
        self.submit_batch(store, (shard, &[]), (ops, synced), batch);
    }

    fn submit_batch(
        &mut self,
        store: &dyn Store,
        (shard, others): (usize, &[usize]),
        (ops, synced): (Vec<Op>, bool),
        batch: Batch,
    ) {
        let batch = Arc::new(batch);
        let fences = [shard].iter().chain(others).map(|of| self.owners[*of].0).collect();
        let id = self.next[shard];
        self.next[shard] = BatchId(id.0 + 1);
        let place = self.batches.len();
        let shard = self.owners[shard].0.shard;
        self.batches.push(Submitted { shard, others: others.to_vec(), ops, synced, outcome: None });
        let answers = Arc::clone(&self.answers);
        let completion: Completion = Box::new(move |outcome| {
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((place, outcome));
        });
        store.submit(Submission { id, fences, batch }, completion);
        self.take_answers();
    }

    /// Records new answers. The answers of a shard arrive in its order, with no success after a
    /// failure.
    pub fn take_answers(&mut self) {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        for (place, outcome) in answers {
            let shard = self.batches[place].shard;
            let of_shard = |batch: &&Submitted| batch.shard == shard;
            let before = self.batches[..place].iter().rfind(of_shard);
            if let Some(before) = before {
                match &before.outcome {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        assert!(outcome.is_err(), "stored after a failure: {error}");
                    }
                    // Only a failure may overtake another batch, and only a failed one.
                    None => {
                        assert!(outcome.is_err(), "batch {place} overtook the one before it");
                    }
                }
            }
            let after = self.batches[place + 1..].iter().filter(of_shard);
            assert!(
                outcome.is_err() || after.into_iter().all(|after| after.outcome.is_none()),
                "stored, after a later one was answered"
            );
            let batch = &mut self.batches[place];
            assert!(batch.outcome.is_none(), "batch {place} was answered twice");
            if outcome.is_ok() {
                self.stored.push(place);
            }
            batch.outcome = Some(outcome);
        }
    }

    pub fn is_all_answered(&self) -> bool {
        self.batches.iter().all(|batch| batch.outcome.is_some())
    }

    /// The first failure among the answers.
    pub fn failure(&self) -> Option<&StoreError> {
        self.batches.iter().find_map(|batch| batch.outcome.as_ref()?.as_ref().err())
    }

    /// Whether a batch that changes a shard is unanswered.
    pub fn is_waiting(&self, shard: usize) -> bool {
        self.batches
            .iter()
            .filter(|batch| batch.outcome.is_none())
            .any(|batch| usize::from(batch.shard.0) == shard || batch.others.contains(&shard))
    }

    /// Whether an unanswered batch changes this shard and others.
    pub fn is_shared(&self, shard: usize) -> bool {
        self.batches
            .iter()
            .filter(|batch| batch.outcome.is_none() && !batch.others.is_empty())
            .any(|batch| usize::from(batch.shard.0) == shard || batch.others.contains(&shard))
    }

    /// Contents that the store must show now: all acknowledged batches.
    pub fn completed(&self) -> State {
        let mut state = self.base.clone();
        for place in &self.stored {
            state.apply(&self.batches[*place].ops);
        }
        state
    }

    /// Batches of each shard, in order, that may be stored or not.
    pub fn uncertain(&self) -> Vec<Vec<&Submitted>> {
        let mut of_shards: Vec<Vec<&Submitted>> = vec![Vec::new(); self.owners.len()];
        for batch in self.batches.iter().filter(|batch| !matches!(batch.outcome, Some(Ok(())))) {
            of_shards[usize::from(batch.shard.0)].push(batch);
        }
        of_shards
    }
}
