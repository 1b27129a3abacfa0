//! A journal, a disk, and all events, driven by one seed.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Shard, Store, StoreError};
use peeklock_store_testing::{
    Call, Fault, Lost, Names, Random, SimulatedDisk, block_on, manual_journal,
};

use crate::book::Book;
use crate::generator::Load;
use crate::judge::{Ending, judge};
use crate::oracle::{Op, SPACES, State, load};

/// Number of turns that must suffice for all pending work.
const TURNS_MAX: u32 = 20_000;
/// Maximum of contents held at the same time.
const PINS_MAX: usize = 20;

/// Counts of events, to check that seeds reach every kind.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub batches: u64,
    pub kept_after_crash: u64,
    pub lost_by_crash: u64,
    pub crashes: u64,
    pub crashes_while_opening: u64,
    pub kills: u64,
    pub failures: u64,
    pub closings: u64,
    pub pins_of_deleted: u64,
    pub files_max: u64,
    pub calls: [u64; Call::ALL.len()],
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.batches += other.batches;
        self.kept_after_crash += other.kept_after_crash;
        self.lost_by_crash += other.lost_by_crash;
        self.crashes += other.crashes;
        self.crashes_while_opening += other.crashes_while_opening;
        self.kills += other.kills;
        self.failures += other.failures;
        self.closings += other.closings;
        self.pins_of_deleted += other.pins_of_deleted;
        self.files_max = self.files_max.max(other.files_max);
        for (to, from) in self.calls.iter_mut().zip(other.calls) {
            *to += from;
        }
    }

    pub fn must_have_seen_everything(&self) {
        for (what, count) in [
            ("a batch that a crash kept", self.kept_after_crash),
            ("a batch that a crash took", self.lost_by_crash),
            ("a crash", self.crashes),
            ("a crash while opening", self.crashes_while_opening),
            ("a kill", self.kills),
            ("a failure", self.failures),
            ("a closing", self.closings),
            ("a pin that outlived its record", self.pins_of_deleted),
            ("a removed file", self.calls[Call::Remove as usize]),
            ("five files at a time", self.files_max.saturating_sub(4)),
        ] {
            assert!(count > 0, "no seed has seen {what}");
        }
    }
}

struct Pin {
    content: ContentRef,
    expected: Bytes,
}

pub struct World {
    random: Random,
    disk: SimulatedDisk,
    config: JournalConfig,
    load: Load,
    names: Names,
    /// One step of this many plans a failing call; none for 0.
    faults_one_in: u64,
    journal: Option<Arc<Journal>>,
    book: Book,
    ending: Ending,
    pins: Vec<Pin>,
    pub seen: Seen,
    traced: bool,
    lines: Vec<String>,
}

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new(random.bits());
        if traced {
            disk.record();
        }
        let config = JournalConfig {
            segment_bytes: [16 << 10, 16 << 10, 40 << 10, 256 << 10][random.index(4)],
            cache_bytes: [0, 10_000, 1 << 20][random.index(3)],
            free_bytes_min: 0,
            shard_count: u16::try_from(random.between(1, 3)).unwrap(),
            ..JournalConfig::default()
        };
        Self {
            load: Load::draw(&mut random),
            names: if random.one_in(4) { Names::AnyOrder } else { Names::Prefix },
            faults_one_in: [0, 0, 40][random.index(3)],
            disk,
            config,
            journal: None,
            book: Book::new(State::default(), Vec::new()),
            ending: Ending::Sudden,
            pins: Vec::new(),
            seen: Seen::default(),
            random,
            traced,
            lines: Vec::new(),
        }
    }

    pub fn trace(&mut self) -> Vec<String> {
        self.take_disk_trace();
        std::mem::take(&mut self.lines)
    }

    fn take_disk_trace(&mut self) {
        if self.traced {
            self.lines.extend(self.disk.take_trace().into_iter().map(|line| format!("    {line}")));
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.traced {
            self.take_disk_trace();
            let line = line();
            self.lines.push(line);
        }
    }

    fn journal(&self) -> Arc<Journal> {
        Arc::clone(self.journal.as_ref().expect("a journal is open"))
    }

    /// Opens the disk, again after each crash during the opening, and judges the contents.
    pub fn open(&mut self) {
        self.journal = None;
        self.pins.clear();
        loop {
            if self.random.one_in(4) {
                // An opening makes few calls or many.
                let bound = [5, 30, 200][self.random.index(3)];
                self.disk.cut_power_at(self.random.between(1, bound));
            }
            if self.random.one_in(3) {
                self.config.segment_bytes = [16 << 10, 40 << 10, 256 << 10][self.random.index(3)];
            }
            let config = self.config.clone();
            self.note(|| format!("open with {config:?}"));
            let seed = self.random.bits();
            match self.try_open(seed) {
                Ok(()) => break,
                Err(error) => {
                    assert!(self.disk.is_cut(), "an opening failed: {error}");
                    self.note(|| format!("opening was cut off: {error}"));
                    self.seen.crashes_while_opening += 1;
                    self.crash();
                }
            }
        }
        self.ending = Ending::Sudden;
        self.seen.files_max = self.seen.files_max.max(self.disk.files().len() as u64);
    }

    fn try_open(&mut self, seed: u64) -> Result<(), StoreError> {
        let journal = manual_journal(Arc::new(self.disk.clone()), self.config.clone(), seed)?;
        if self.random.one_in(2) {
            journal.set_background_records_min([1, 2, 8][self.random.index(3)]);
        }
        let mut owners = Vec::new();
        for shard in 0..journal.shard_count() {
            owners.push(block_on(journal.acquire(Shard(shard)))?);
        }
        assert_eq!(owners.len(), usize::from(self.config.shard_count));
        let found = State::read(&*journal)?;
        if self.book.owners.is_empty() {
            self.book = Book::new(State::default(), owners.clone());
        }
        match judge(&self.book, &found, self.ending) {
            Ok(kept) => {
                let lost = self.book.batches.len() - kept;
                self.note(|| format!("opened: {kept} batches kept, {lost} lost"));
                self.seen.kept_after_crash += kept as u64;
                self.seen.lost_by_crash += lost as u64;
            }
            Err(what) => panic!("{what}"),
        }
        self.book = Book::new(found, owners);
        self.journal = Some(journal);
        Ok(())
    }

    /// Runs one random event.
    pub fn step(&mut self) {
        if self.disk.is_cut() {
            self.end_cut_off();
            return;
        }
        if self.has_failed() && self.random.one_in(6) {
            self.end_failed();
            return;
        }
        if self.faults_one_in > 0 && self.random.one_in(self.faults_one_in) {
            self.plan_fault();
        }
        match self.random.below(1_000) {
            0..=399 => self.submit(),
            400..=649 => {
                let journal = self.journal();
                self.note(|| "turn the committer".to_owned());
                journal.run_committer();
            }
            650..=849 => {
                let journal = self.journal();
                self.note(|| "turn the keeper".to_owned());
                for _ in 0..self.random.between(1, 6) {
                    journal.run_keeper();
                }
            }
            850..=864 => {
                let journal = self.journal();
                self.note(|| "mark".to_owned());
                journal.mark();
            }
            865..=914 => self.pin(),
            915..=939 => self.check(),
            940..=949 => self.close(),
            950..=959 => self.kill(),
            960..=969 => {
                self.crash();
                self.open();
            }
            _ => {
                let bound = [4, 20, 100][self.random.index(3)];
                let count = self.random.between(1, bound);
                self.note(|| format!("the power will be cut at call {count}"));
                self.disk.cut_power_at(count);
            }
        }
        self.book.take_answers();
    }

    /// Whether a disk call has failed, so that the journal may have ended.
    fn has_failed(&self) -> bool {
        self.disk.failure_count() > 0
    }

    /// A shard owns the spaces whose number has it as remainder. A batch may also change spaces of
    /// others while nothing is pending there, because no other order exists.
    fn submit(&mut self) {
        let journal = self.journal();
        let shards = self.book.owners.len();
        for _ in 0..self.random.between(1, 3) {
            let shard = self.random.index(shards);
            if self.book.is_shared(shard) {
                continue;
            }
            let mut others: Vec<usize> = (0..shards).filter(|other| *other != shard).collect();
            let is_waiting = (0..shards).any(|shard| self.book.is_waiting(shard));
            if is_waiting || !self.random.one_in(3) {
                others.clear();
            }
            let spaces: Vec<u64> = SPACES
                .into_iter()
                .enumerate()
                .filter(|(index, _)| index % shards == shard || others.contains(&(index % shards)))
                .map(|(_, space)| space)
                .collect();
            let (ops, synced) = self.load.batch(&mut self.random, &spaces);
            let place = self.book.batches.len();
            self.note(|| format!("submit {place} to {shard}, synced {synced}: {ops:?}"));
            if self.random.one_in(8) {
                self.book.submit_here(&*journal, shard, &others, (ops, synced));
            } else {
                self.book.submit(&*journal, shard, &others, (ops, synced));
            }
            self.seen.batches += 1;
        }
    }

    /// Pins a content, or reads a pinned one, which may have been deleted.
    fn pin(&mut self) {
        let journal = self.journal();
        if self.pins.len() < PINS_MAX && self.random.one_in(2) {
            let completed = self.book.completed();
            let keys: Vec<_> = completed.records.keys().copied().collect();
            let keys: Vec<_> = (0..3).filter_map(|_| self.random.pick(&keys).copied()).collect();
            let mut contents = Vec::new();
            journal.pin(&keys, &mut contents);
            for (key, content) in keys.iter().zip(contents) {
                let expected = completed.records[key].content.clone();
                assert_eq!(content.is_some(), expected.is_some(), "pin of {key:?}");
                if let (Some(content), Some(expected)) = (content, expected) {
                    self.pins.push(Pin { content, expected });
                }
            }
        } else if !self.pins.is_empty() {
            let pin = self.pins.swap_remove(self.random.index(self.pins.len()));
            match load(&pin.content) {
                Ok(found) => assert!(found == pin.expected, "pinned content is another"),
                Err(error) => assert!(self.disk.is_cut(), "pinned content: {error}"),
            }
            let mut left = self.book.completed().records.into_values();
            if left.all(|entry| entry.content.as_ref() != Some(&pin.expected)) {
                self.seen.pins_of_deleted += 1;
            }
        }
    }

    /// The store shows exactly the completed batches.
    fn check(&mut self) {
        let journal = self.journal();
        match State::read(&*journal) {
            Ok(found) => {
                let difference = self.book.completed().difference(&found);
                assert!(difference.is_none(), "while it is open: {difference:?}");
            }
            Err(error) => assert!(
                self.disk.is_cut() || self.has_failed(),
                "the store cannot be read: {error}"
            ),
        }
    }

    fn plan_fault(&mut self) {
        let calls = [
            Call::Write,
            Call::Sync,
            Call::SyncNames,
            Call::Allocate,
            Call::Create,
            Call::Rename,
            Call::Remove,
        ];
        let faults = [Fault::Whole, Fault::Partly, Fault::Done];
        let (call, fault) = (calls[self.random.index(7)], faults[self.random.index(3)]);
        let count = self.random.between(1, 6);
        self.note(|| format!("{call:?} {count} will fail: {fault:?}"));
        self.disk.fail(call, count, fault);
    }

    /// After a power cut: submitted batches fail, and the next process starts.
    fn end_cut_off(&mut self) {
        let journal = self.journal();
        self.note(|| "the power was cut".to_owned());
        for _ in 0..self.random.between(1, 4) {
            journal.run_committer();
            journal.run_keeper();
        }
        self.book.take_answers();
        self.crash();
        self.open();
    }

    /// After a failed call everything else fails too, until a restart or a crash.
    fn end_failed(&mut self) {
        let journal = self.journal();
        self.note(|| "the journal has failed".to_owned());
        self.seen.failures += 1;
        self.disk.heal();
        self.submit();
        for _ in 0..10 {
            journal.run_committer();
        }
        self.book.take_answers();
        assert!(self.book.is_all_answered(), "after a failure everybody is answered");
        if self.random.one_in(2) {
            self.kill();
        } else {
            self.crash();
            self.open();
        }
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        self.end();
        self.disk = self.disk.crash_with(&mut self.random, self.names);
        self.journal = None;
    }

    fn kill(&mut self) {
        if self.disk.is_cut() {
            self.end_cut_off();
            return;
        }
        self.note(|| "kill".to_owned());
        self.seen.kills += 1;
        self.end();
        let lost = if self.random.one_in(2) { Lost::StillCached } else { Lost::ReadAnew };
        self.disk = self.disk.kill(lost);
        self.open();
    }

    fn end(&mut self) {
        self.take_disk_trace();
        for call in Call::ALL {
            self.seen.calls[call as usize] += self.disk.call_count_of(call);
        }
    }

    fn close(&mut self) {
        let journal = self.journal();
        self.note(|| "close".to_owned());
        let closed = journal.close();
        self.book.take_answers();
        self.note(|| format!("closed: {closed:?}"));
        if closed.is_ok() {
            self.ending = Ending::Closed;
            self.seen.closings += 1;
        }
        assert!(self.book.is_all_answered(), "a closing answers everybody");
        self.end();
        self.disk = match self.random.below(2) {
            0 => self.disk.kill(Lost::ReadAnew),
            _ => self.disk.crash_with(&mut self.random, self.names),
        };
        self.open();
    }

    /// Finishes all pending work, and finds everything stored, now and after a close.
    pub fn come_to_rest(&mut self) {
        if self.disk.is_cut() {
            self.end_cut_off();
        }
        while self.disk.is_cut() || self.has_failed() {
            self.crash();
            self.open();
        }
        self.disk = {
            self.disk.heal();
            self.kill_quietly()
        };
        self.open_undisturbed();
        self.submit();
        let journal = self.journal();
        self.turn_until_idle(&journal);
        assert!(self.book.failure().is_none(), "{:?}", self.book.failure());
        assert!(self.book.is_all_answered(), "everything is answered when all is done");
        self.check();
        let rest: Vec<Op> = SPACES
            .into_iter()
            .map(|space| Op::DeletePrefix { prefix: peeklock_core::store::Key::of_space(space) })
            .collect();
        if self.random.one_in(2) {
            let others: Vec<usize> = (1..self.book.owners.len()).collect();
            self.note(|| "delete everything".to_owned());
            self.book.submit(&*journal, 0, &others, (rest, true));
            self.pins.clear();
            self.turn_until_idle(&journal);
            self.check();
        }
        let closed = journal.close();
        assert!(closed.is_ok(), "a journal at rest can be closed: {closed:?}");
        drop(journal);
        self.book.take_answers();
        self.ending = Ending::Closed;
        self.end();
        self.disk = self.kill_quietly();
        self.open_undisturbed();
    }

    fn kill_quietly(&mut self) -> SimulatedDisk {
        self.take_disk_trace();
        self.journal = None;
        self.pins.clear();
        self.disk.kill(Lost::ReadAnew)
    }

    fn open_undisturbed(&mut self) {
        let seed = self.random.bits();
        self.note(|| "open at rest".to_owned());
        if let Err(error) = self.try_open(seed) {
            panic!("an opening that nothing disturbs failed: {error}");
        }
    }

    fn turn_until_idle(&mut self, journal: &Journal) {
        self.note(|| "turn until idle".to_owned());
        for _ in 0..TURNS_MAX {
            // Requests of the keeper are available to the committer.
            let kept = journal.run_keeper();
            let committed = journal.run_committer();
            self.book.take_answers();
            if !committed && !kept {
                return;
            }
        }
        panic!("after {TURNS_MAX} turns there is still something to do");
    }
}
