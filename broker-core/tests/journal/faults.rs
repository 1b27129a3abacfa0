//! Every disk call fails once in each possible way. The journal continues correctly or ends
//! immediately, every caller gets an answer, and no acknowledged batch is lost (DESIGN D12).
//!
//! The contents are judged on three disks: with only synced data, after a random crash, and as the
//! next process finds it after a kill.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{BatchId, Fence, Key, Shard, Store, StoreError};
use peeklock_store_testing::{
    Call, Fault, Lost, Names, Random, SimulatedDisk, block_on, manual_journal, visit_records,
};

use crate::book::Book;
use crate::generator::Load;
use crate::judge::{Ending, judge};
use crate::number;
use crate::oracle::{SPACES, State};

const FAULTS: [Fault; 3] = [Fault::Whole, Fault::Partly, Fault::Done];
/// Number of runs, each with different work.
const SCRIPTS: u64 = 2;
const STEPS: u64 = 36;
/// Reads are many and similar: after this number only every `READ_STRIDE`-th one fails.
const READS: u64 = 40;
const READ_STRIDE: u64 = 29;

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 16 << 10,
        cache_bytes: 2_000,
        free_bytes_min: 0,
        shard_count: 2,
        ..JournalConfig::default()
    }
}

type Opened = (Arc<Journal>, Vec<(Fence, BatchId)>);

fn open(disk: &SimulatedDisk) -> Result<Opened, StoreError> {
    let journal = manual_journal(Arc::new(disk.clone()), config(), 3)?;
    let owners = (0..2)
        .map(|shard| block_on(journal.acquire(Shard(shard))))
        .collect::<Result<_, StoreError>>()?;
    Ok((journal, owners))
}

/// A planned failure: the n-th call of a kind.
type Plan = (Call, u64, Fault);

/// Result of a run.
struct Run {
    disk: SimulatedDisk,
    book: Book,
    ending: Ending,
    /// Calls on earlier disks.
    calls: BTreeMap<Call, u64>,
    /// Whether a call on an earlier disk has failed.
    has_failed: bool,
}

impl Run {
    fn has_failed(&self) -> bool {
        self.has_failed || self.disk.failure_count() > 0
    }

    fn calls_of(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or(0) + self.disk.call_count_of(call)
    }

    /// Kills the process. A planned failure that has not happened stays planned.
    fn kill(&mut self, plan: Option<Plan>) {
        self.calls = Call::ALL.into_iter().map(|call| (call, self.calls_of(call))).collect();
        self.has_failed = self.has_failed();
        self.disk = self.disk.kill(Lost::ReadAnew);
        if let Some((call, count, fault)) = plan.filter(|_| !self.has_failed) {
            self.disk.fail(call, count - self.calls_of(call), fault);
        }
    }
}

/// Does the same work in every run, until it is done or the journal has ended.
fn run(script: u64, plan: Option<Plan>, traced: bool) -> Run {
    let disk = SimulatedDisk::new(script);
    if traced {
        disk.record();
    }
    if let Some((call, count, fault)) = plan {
        disk.fail(call, count, fault);
    }
    let mut random = Random::new(script);
    let load = Load { keys: 20, large_one_in: 100, lazy_one_in: 4, deletes: 4 };
    let mut run = Run {
        disk,
        book: Book::new(State::default(), Vec::new()),
        ending: Ending::Sudden,
        calls: BTreeMap::new(),
        has_failed: false,
    };
    for session in 0..3 {
        let (journal, owners) = match open(&run.disk) {
            Ok(opened) => opened,
            Err(error) => {
                must_be_planned(&run, &error);
                return run;
            }
        };
        if script.is_multiple_of(2) {
            // The next group is assembled while this one is written.
            journal.set_background_records_min(1);
        }
        let found = match State::read(&*journal) {
            Ok(found) => found,
            Err(error) => {
                must_be_planned(&run, &error);
                return run;
            }
        };
        if let Err(what) = judge(&run.book, &found, run.ending) {
            panic!("{what}");
        }
        run.book = Book::new(found, owners);
        run.ending = Ending::Sudden;
        if !work(&mut run, &journal, (&mut random, &load)) {
            return run;
        }
        if session == 1 {
            // A kill after this session, a close after the others.
            run.kill(plan);
            continue;
        }
        let closed = journal.close();
        run.book.take_answers();
        assert!(run.book.is_all_answered(), "a closing answers everybody");
        match closed {
            Ok(()) => run.ending = Ending::Closed,
            Err(_) => {
                assert!(run.has_failed(), "a closing failed, though nothing did");
                return run;
            }
        }
    }
    run
}

fn must_be_planned(run: &Run, error: &StoreError) {
    assert!(run.has_failed(), "nothing has failed, and yet: {error}");
    assert!(matches!(error, StoreError::Failed(_)), "a failing disk is no damage: {error}");
}

/// Returns whether the journal still works.
fn work(run: &mut Run, journal: &Journal, (random, load): (&mut Random, &Load)) -> bool {
    for step in 0..STEPS {
        let shard = random.index(2);
        let spaces = [SPACES[shard], SPACES[shard + 2]];
        let batch = load.batch(random, &spaces);
        if step % 4 == 3 {
            run.book.submit_here(journal, shard, &[], batch);
        } else {
            run.book.submit(journal, shard, &[], batch);
        }
        if step % 3 == 0 {
            journal.run_committer();
        }
        if step % 2 == 0 {
            journal.run_keeper();
        }
        if step % 17 == 0 {
            journal.mark();
        }
        run.book.take_answers();
        if run.book.failure().is_some() {
            must_have_ended(run, journal, (random, load));
            return false;
        }
    }
    for _ in 0..200 {
        let (kept, committed) = (journal.run_keeper(), journal.run_committer());
        if !committed && !kept {
            break;
        }
    }
    run.book.take_answers();
    if run.book.failure().is_some() {
        must_have_ended(run, journal, (random, load));
        return false;
    }
    assert!(run.book.is_all_answered(), "everything is answered when all is done");
    match State::read(journal) {
        Ok(found) => {
            let difference = run.book.completed().difference(&found);
            assert!(difference.is_none(), "while it is open: {difference:?}");
            true
        }
        Err(error) => {
            must_be_planned(run, &error);
            // A failed read does not end the journal.
            State::read(journal).is_ok()
        }
    }
}

/// After a batch has failed, all other operations fail immediately with the right error.
fn must_have_ended(run: &mut Run, journal: &Journal, (random, load): (&mut Random, &Load)) {
    let error = run.book.failure().unwrap().clone();
    must_be_planned(run, &error);
    let written = run.disk.call_count_of(Call::Write);
    for (shard, space) in SPACES.into_iter().enumerate().take(2) {
        let batch = load.batch(random, &[space]);
        run.book.submit(journal, shard, &[], batch);
    }
    for _ in 0..10 {
        journal.run_committer();
        journal.run_keeper();
    }
    run.book.take_answers();
    assert!(run.book.is_all_answered(), "after a failure everybody is answered");
    for batch in run.book.batches.iter().rev().take(2) {
        let refused = matches!(batch.outcome, Some(Err(StoreError::Failed(_))));
        assert!(refused, "after a failure everything fails: {:?}", batch.outcome);
    }
    assert!(matches!(block_on(journal.acquire(Shard(0))), Err(StoreError::Failed(_))));
    let scanned = visit_records(journal, &Key::of_space(0), |_, _| {});
    assert!(scanned.is_err(), "an ended journal is not scanned");
    assert!(journal.close().is_err(), "an ended journal is not closed in order");
    assert_eq!(run.disk.call_count_of(Call::Write), written, "nothing is written behind a failure");
}

/// Opens the files of a disk, and finds every acknowledged batch.
fn must_hold(run: &Run, disk: &SimulatedDisk, what: &str) {
    let (journal, _) = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = State::read(&*journal).unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Err(difference) = judge(&run.book, &found, run.ending) {
        panic!("{what}: {difference}");
    }
}

fn check(script: u64, plan: Plan) {
    let run = run(script, Some(plan), false);
    let synced = SimulatedDisk::holding(&run.disk.durable_files(), 1);
    run.disk.heal();
    let killed = run.disk.kill(Lost::ReadAnew);
    must_hold(&run, &synced, "of what was synced");
    for seed in 0..3 {
        let crashed = killed.fork().crash_with(&mut Random::new(seed), Names::AnyOrder);
        must_hold(&run, &crashed, "after a crash");
    }
    must_hold(&run, &killed, "after a kill");
}

/// Fails every call of these kinds, one run each.
fn fail_each(calls: &[Call]) {
    let mut failed = Vec::new();
    let mut count = 0;
    for script in 1..=number("PEEKLOCK_JOURNAL_SCRIPTS").unwrap_or(SCRIPTS) {
        let clean = run(script, None, false);
        assert!(clean.book.failure().is_none());
        must_hold(&clean, &clean.disk.kill(Lost::ReadAnew), "of a clean run");
        let totals = totals(script);
        for call in calls {
            for at in 1..=totals[call] {
                if *call == Call::Read && at > READS && at % READ_STRIDE != 0 {
                    continue;
                }
                for fault in FAULTS {
                    count += 1;
                    let plan = (*call, at, fault);
                    if catch_unwind(AssertUnwindSafe(|| check(script, plan))).is_err() {
                        failed.push(format!("script {script}: {call:?} {at} {fault:?}"));
                        if failed.len() == 1 && number("PEEKLOCK_JOURNAL_TRACE").is_some() {
                            catch_unwind(|| {
                                for line in run(script, Some(plan), true).disk.take_trace() {
                                    eprintln!("{line}");
                                }
                            })
                            .ok();
                        }
                    }
                }
            }
        }
    }
    eprintln!("{count} failures of {calls:?}");
    assert!(
        count > 0 && failed.is_empty(),
        "{} fail: {:#?}",
        failed.len(),
        &failed[..failed.len().min(20)]
    );
}

/// Number of calls of each kind in a clean run, over all its sessions.
fn totals(script: u64) -> BTreeMap<Call, u64> {
    let run = run(script, None, false);
    Call::ALL.into_iter().map(|call| (call, run.calls_of(call))).collect()
}

#[test]
fn no_failing_write_loses_anything() {
    fail_each(&[Call::Write]);
}

#[test]
fn no_failing_sync_loses_anything() {
    fail_each(&[Call::Sync, Call::SyncNames]);
}

#[test]
fn no_failing_change_of_a_file_loses_anything() {
    fail_each(&[Call::Allocate, Call::Truncate, Call::Create, Call::Rename, Call::Remove]);
}

#[test]
fn no_failing_read_loses_anything() {
    fail_each(&[Call::List, Call::Open, Call::Length, Call::Read, Call::FreeBytes]);
}
