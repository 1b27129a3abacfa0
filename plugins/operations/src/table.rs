//! The jobs in memory, and their files. Readers of any thread look here; only the thread of the
//! jobs changes it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, JobId};
use peeklock_core::inspect::{
    JOB_UNDO_TIME, JobControl, JobFacts, JobFailurePage, JobState, unknown_job,
};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::{Notify, oneshot};

use crate::engine::Answer;
use crate::export::{Contents, EXPORT, Export, Reader};
use crate::job::{ENDED, Job, LIVE, failure_page, file_name, parse_file_name};
use crate::record::{Record, read_lines};
use crate::shelf::{Shelf, ShelfError};

mod outputs;

/// Maximum number of ended jobs that are kept (CON-21).
const ENDED_COUNT_MAX: usize = 1_000;
/// Time for which an ended job is kept (CON-21).
pub(crate) const ENDED_TIME: TimeSpan = TimeSpan::from_days(7);
/// Maximum number of jobs that keep messages, so that they can be undone (CON-20).
const EXPORT_COUNT_MAX: usize = 256;

/// Maximum bytes of files.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Files of ended jobs.
    pub(crate) ended_bytes: u64,
    /// Messages of jobs that can be undone.
    pub(crate) undo_bytes: u64,
    /// Files of exports.
    pub(crate) output_bytes: u64,
}

pub(crate) struct Table {
    jobs: Mutex<BTreeMap<JobId, Entry>>,
    shelf: Shelf,
    bounds: Bounds,
    /// Bytes of each job that can be undone: reserved, or after its end the bytes of its two files.
    exports: Mutex<BTreeMap<JobId, u64>>,
    /// Bytes of the file of each job that exports messages.
    outputs: Mutex<BTreeMap<JobId, u64>>,
    /// Why no file can be changed any more.
    failure: Mutex<Option<String>>,
    /// Gets a notice when the tasks of the thread have ended.
    ended: Mutex<Option<oneshot::Sender<()>>>,
}

pub(crate) struct Entry {
    pub(crate) job: Job,
    /// Whether a task works on the job, so that requests wait for it.
    pub(crate) is_busy: bool,
    pub(crate) pending: Vec<(JobControl, Answer)>,
    /// Wakes the task.
    pub(crate) wake: Arc<Notify>,
    /// Instant before which the job takes no step.
    pub(crate) next_at: Option<Timestamp>,
    /// Whether the next step may have been carried out, without a line in the file.
    pub(crate) is_step_open: bool,
    /// Whether the audit trail has the end of the job.
    pub(crate) is_end_recorded: bool,
    /// Whether the ended job has changed messages.
    pub(crate) has_changed: bool,
}

impl Entry {
    pub(crate) fn new(job: Job) -> Self {
        Self {
            job,
            is_busy: false,
            pending: Vec::new(),
            wake: Arc::default(),
            next_at: None,
            is_step_open: false,
            is_end_recorded: false,
            has_changed: false,
        }
    }
}

impl Entry {
    const fn is_waiting(&self) -> bool {
        !self.is_busy && matches!(self.job.facts.state, JobState::Waiting)
    }
}

impl Table {
    pub(crate) fn new(shelf: Shelf, bounds: Bounds) -> Self {
        Self {
            jobs: Mutex::default(),
            shelf,
            bounds,
            exports: Mutex::default(),
            outputs: Mutex::default(),
            failure: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// Reads all jobs.
    pub(crate) fn open(shelf: Shelf, bounds: Bounds) -> io::Result<Self> {
        let table = Self::new(shelf, bounds);
        let names = table.shelf.list()?;
        let mut files: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        // The file of an ended job comes before the file that it replaces.
        files.sort();
        for (id, is_live) in files {
            if let Err(error) = table.read(id, is_live) {
                let file = file_name(id, if is_live { LIVE } else { ENDED });
                tracing::error!(%error, file, "the file of a job cannot be read, and is left alone");
            }
        }
        table.open_exports(&names)?;
        table.open_outputs(&names)?;
        Ok(table)
    }

    /// Reads the job of a file.
    fn read(&self, id: JobId, is_live: bool) -> io::Result<()> {
        let name = file_name(id, if is_live { LIVE } else { ENDED });
        if is_live && self.get(id).is_some_and(|ended| !ended.is_damaged) {
            // The file of the ended job replaces this one.
            return self.shelf.remove(&name);
        }
        let bytes = self.shelf.read(&name)?;
        if is_live && !bytes.contains(&b'\n') {
            tracing::warn!(file = name, "a job whose creation was not reported is removed");
            return self.shelf.remove(&name);
        }
        let lines = read_lines(&bytes);
        let end = lines.end;
        let Some(job) = Job::from_lines(id, lines, is_live) else {
            return Err(io::Error::other("its first line does not describe the job of its name"));
        };
        if job.is_damaged {
            let problem = job.facts.problem.as_deref().unwrap_or_default();
            tracing::error!(problem, file = name, "a job has failed, since its file is damaged");
        } else if is_live {
            self.shelf.mend(&name, end).map_err(ShelfError::into_error)?;
        } else if !job.facts.state.is_end() {
            // The file that it should replace is still there.
            return Err(io::Error::other("it is not whole"));
        }
        // The broker may have ended between a step and its line.
        let is_step_open = job.facts.started_at.is_some() && !job.is_export();
        self.insert(Entry { is_step_open, ..Entry::new(job) });
        Ok(())
    }

    /// Refuses a change if the state of a file is unknown.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        match &*lock(&self.failure) {
            None => Ok(()),
            Some(failure) => Err(Rejection::server_busy(format!(
                "the files of jobs cannot be changed: {failure}; start the broker again"
            ))),
        }
    }

    pub(crate) fn insert(&self, entry: Entry) {
        lock(&self.jobs).insert(entry.job.facts.id, entry);
    }

    pub(crate) fn get(&self, id: JobId) -> Option<Job> {
        lock(&self.jobs).get(&id).map(|entry| entry.job.clone())
    }

    pub(crate) fn facts(&self, id: JobId) -> Option<JobFacts> {
        lock(&self.jobs).get(&id).map(|entry| entry.job.facts.clone())
    }

    pub(crate) fn state(&self, id: JobId) -> Option<JobState> {
        lock(&self.jobs).get(&id).map(|entry| entry.job.facts.state)
    }

    pub(crate) fn path(&self, id: JobId) -> Option<Arc<str>> {
        lock(&self.jobs).get(&id).map(|entry| Arc::clone(&entry.job.facts.path))
    }

    /// The entity of the selection; none before it is made.
    pub(crate) fn entity(&self, id: JobId) -> Option<EntityId> {
        let jobs = lock(&self.jobs);
        let job = &jobs.get(&id)?.job;
        job.facts.preview.as_ref().map(|_| job.entity)
    }

    /// All jobs, newest first.
    pub(crate) fn list(&self) -> Vec<(JobId, Arc<str>)> {
        let jobs = lock(&self.jobs);
        let mut list: Vec<_> = jobs.values().map(|entry| &entry.job.facts).collect();
        list.sort_by_key(|facts| std::cmp::Reverse((facts.created_at, facts.id)));
        list.into_iter().map(|facts| (facts.id, Arc::clone(&facts.path))).collect()
    }

    pub(crate) fn with<T>(&self, id: JobId, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        lock(&self.jobs).get_mut(&id).map(change)
    }

    pub(crate) fn take_pending(&self, id: JobId) -> Vec<(JobControl, Answer)> {
        self.with(id, |entry| std::mem::take(&mut entry.pending)).unwrap_or_default()
    }

    pub(crate) fn set_problem(&self, id: JobId, problem: &str) {
        self.with(id, |entry| entry.job.facts.problem = Some(problem.into()));
    }

    /// Jobs for which a condition holds.
    pub(crate) fn ids_of(&self, holds: impl Fn(&Job) -> bool) -> Vec<JobId> {
        let jobs = lock(&self.jobs);
        jobs.values().filter(|entry| holds(&entry.job)).map(|entry| entry.job.facts.id).collect()
    }

    /// The least value of all jobs.
    pub(crate) fn least(&self, value: impl Fn(&Job) -> Option<Timestamp>) -> Option<Timestamp> {
        lock(&self.jobs).values().filter_map(|entry| value(&entry.job)).min()
    }

    /// The earliest instant after `now` at which a job that waits may take a step.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let jobs = lock(&self.jobs);
        let waiting = jobs.values().filter(|entry| entry.is_waiting());
        waiting.filter_map(|entry| entry.next_at).filter(|at| *at > now).min()
    }

    /// Makes waiting jobs run while fewer than `count_max` do, and returns them.
    pub(crate) fn next_to_run(&self, count_max: usize, now: Timestamp) -> Vec<JobId> {
        let mut jobs = lock(&self.jobs);
        let runs = |entry: &&Entry| {
            entry.is_busy && entry.job.has_live_file() && !entry.job.facts.state.is_end()
        };
        let running = jobs.values().filter(runs);
        let mut places: Vec<_> = running.map(|entry| entry.job.place()).collect();
        let may_run =
            |entry: &&mut Entry| entry.is_waiting() && entry.next_at.is_none_or(|at| at <= now);
        let mut waiting: Vec<_> = jobs.values_mut().filter(may_run).collect();
        waiting.sort_by_key(|entry| (entry.job.facts.started_at, entry.job.facts.id));
        let mut begun = Vec::new();
        for entry in waiting {
            let place = entry.job.place();
            if places.len() >= count_max {
                break;
            }
            if places.contains(&place) {
                continue;
            }
            places.push(place);
            entry.is_busy = true;
            let facts = &mut entry.job.facts;
            // It may continue now.
            (facts.state, facts.problem) = (JobState::Running, None);
            begun.push(entry.job.facts.id);
        }
        begun
    }

    /// Makes the file of a job whose messages are selected, and the job if it is an undo.
    pub(crate) fn make(&self, mut job: Job, line: &Record) -> Result<(), Rejection> {
        self.check()?;
        let bytes = line.line();
        job.bytes = bytes.len() as u64;
        let name = file_name(job.facts.id, LIVE);
        self.shelf.create(&name, &bytes).map_err(|error| self.refuse(&error))?;
        let mut jobs = lock(&self.jobs);
        match jobs.get_mut(&job.facts.id) {
            Some(entry) => entry.job = job,
            None => drop(jobs.insert(job.facts.id, Entry::new(job))),
        }
        Ok(())
    }

    /// Adds a line to the file of a job, and applies it.
    pub(crate) fn write(&self, id: JobId, record: &Record) -> Result<(), Rejection> {
        let (name, end, is_kept) = self
            .with(id, |entry| {
                let is_kept = entry.job.facts.preview.is_some();
                (file_name(id, LIVE), entry.job.bytes, is_kept)
            })
            .ok_or_else(|| unknown_job(id))?;
        let bytes = record.line();
        // A job without a preview has no file.
        if is_kept {
            self.check()?;
            self.shelf.append(&name, end, &bytes).map_err(|error| self.refuse(&error))?;
        }
        self.with(id, |entry| {
            entry.job.bytes += bytes.len() as u64;
            entry.job.apply(record);
        });
        Ok(())
    }

    /// Ends a job whose messages cannot be selected. It is kept in memory only.
    pub(crate) fn fail_selection(&self, id: JobId, problem: &str, now: Timestamp) {
        self.with(id, |entry| {
            let facts = &mut entry.job.facts;
            (facts.state, facts.problem) = (JobState::Failed, Some(problem.into()));
            facts.ended_at = Some(now);
        });
    }

    /// Replaces the file of an ended job by one without the selection. Then the job can be undone.
    pub(crate) fn compact(&self, id: JobId) -> io::Result<()> {
        let Some(job) = self.get(id).filter(Job::needs_completion) else { return Ok(()) };
        let live = file_name(id, LIVE);
        let lines = read_lines(&self.shelf.read(&live)?);
        if let Some(line) = lines.unreadable {
            return Err(io::Error::other(format!("line {line} cannot be read")));
        }
        let bytes = job.ended_lines(&lines.records);
        let name = file_name(id, ENDED);
        // One of an earlier try.
        self.shelf.remove(&name)?;
        if let Err(error) = self.shelf.create(&name, &bytes) {
            self.refuse(&error);
            return Err(error.into_error());
        }
        self.shelf.remove(&live)?;
        self.with(id, |entry| {
            (entry.job.sequences, entry.job.is_compact) = (Arc::from([]), true);
            entry.job.bytes = bytes.len() as u64;
        });
        self.offer_undo(id)
    }

    /// Removes ended jobs that are too old or too many.
    pub(crate) fn remove_old(&self, now: Timestamp) {
        if let Err(error) = self.try_remove_old(now) {
            tracing::error!(%error, "the file of an old job stays");
        }
    }

    fn try_remove_old(&self, now: Timestamp) -> io::Result<()> {
        let mut ended: Vec<_> = lock(&self.jobs)
            .values()
            .filter(|entry| !entry.job.has_live_file() && entry.job.facts.undo_until.is_none())
            .filter_map(|entry| {
                let job = &entry.job;
                Some((job.facts.ended_at?, job.facts.id, job.bytes))
            })
            .collect();
        ended.sort_unstable();
        let mut bytes: u64 = ended.iter().map(|(.., bytes)| bytes).sum();
        let mut count = ended.len();
        for (at, id, size) in ended {
            let is_old = now.since(at) >= ENDED_TIME;
            if !is_old && count <= ENDED_COUNT_MAX && bytes <= self.bounds.ended_bytes {
                break;
            }
            self.remove_output(id)?;
            self.shelf.remove(&file_name(id, ENDED))?;
            lock(&self.jobs).remove(&id);
            count -= 1;
            bytes -= size;
        }
        Ok(())
    }

    /// Reads failures of a job from its file.
    pub(crate) fn failures(
        &self,
        id: JobId,
        skip: u32,
        count_max: u32,
    ) -> Result<JobFailurePage, Rejection> {
        let job = self.get(id).ok_or_else(|| unknown_job(id))?;
        if job.facts.preview.is_none() {
            return Ok(JobFailurePage { failures: Vec::new(), total: 0, next: None });
        }
        let end = if job.is_compact { ENDED } else { LIVE };
        let bytes = self.shelf.read(&file_name(id, end)).map_err(|error| {
            tracing::error!(%error, job = %id, "the failures of a job cannot be read");
            Rejection::server_busy("the failures of the job cannot be read; the log has the reason")
        })?;
        Ok(failure_page(&read_lines(&bytes).records, skip, count_max))
    }

    /// Finds the files of messages of jobs. One without a job, whose file cannot be read either, is
    /// removed.
    fn open_exports(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            let Some(id) = name.strip_suffix(EXPORT).and_then(JobId::parse) else { continue };
            let is_known = self.get(id).is_some()
                || self.undo_of(id).is_some()
                || [LIVE, ENDED].iter().any(|end| names.contains(&file_name(id, end)));
            if !is_known {
                tracing::warn!(file = name, "messages without their job are removed");
                self.shelf.remove(name)?;
                continue;
            }
            lock(&self.exports).insert(id, self.length_of(name)?);
            if self.get(id).is_some_and(|job| job.is_compact) {
                self.offer_undo(id)?;
            }
        }
        for id in self.ids_of(|job| job.undo_room > 0 && job.has_live_file() && !job.is_damaged) {
            let room = self.get(id).map_or(0, |job| job.undo_room);
            lock(&self.exports).insert(id, room);
        }
        Ok(())
    }

    fn length_of(&self, name: &str) -> io::Result<u64> {
        Ok(self.shelf.length(name)?.unwrap_or(0))
    }

    /// Offers the undo of an ended job that has kept its messages.
    fn offer_undo(&self, id: JobId) -> io::Result<()> {
        if !lock(&self.exports).contains_key(&id) {
            return Ok(());
        }
        let length = self.length_of(&file_name(id, EXPORT))?;
        let bytes = self.with(id, |entry| {
            let facts = &mut entry.job.facts;
            facts.undo_until = facts.ended_at.map(|at| at.plus(JOB_UNDO_TIME));
            entry.job.bytes
        });
        lock(&self.exports).insert(id, length.saturating_add(bytes.unwrap_or(0)));
        Ok(())
    }

    /// Reserves room for the messages of a job. Returns whether there is enough.
    pub(crate) fn reserve_export(&self, id: JobId, bytes: u64) -> bool {
        let mut exports = lock(&self.exports);
        let used = exports.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let fits = used.saturating_add(bytes) <= self.bounds.undo_bytes
            && exports.len() < EXPORT_COUNT_MAX;
        if fits {
            exports.insert(id, bytes);
        }
        fits
    }

    /// Continues the file of messages of a job, or of the job that it undoes.
    pub(crate) fn export(&self, job: &Job) -> Result<Export, Rejection> {
        self.check()?;
        Export::resume(&self.shelf, job.export(), job.kept).map_err(|error| match error {
            ShelfError::Unchanged(error) => self.refuse_export(job.export(), &error),
            ShelfError::Unknown(_) => self.refuse(&error),
        })
    }

    /// Removes messages of a step of a job that was not carried out.
    pub(crate) fn rewind_export(&self, export: &mut Export, job: &Job) -> Result<(), Rejection> {
        self.check()?;
        export.rewind(&self.shelf, job.kept).map_err(|error| self.refuse(&error))
    }

    /// Writes messages of a job.
    pub(crate) fn write_export(&self, export: &mut Export) -> Result<(), Rejection> {
        self.check()?;
        export.write(&self.shelf).map_err(|error| self.refuse(&error))
    }

    pub(crate) fn length_of_export(&self, id: JobId) -> Result<u64, Rejection> {
        self.length_of(&file_name(id, EXPORT)).map_err(|error| self.refuse_export(id, &error))
    }

    /// Reads the messages of a job that can be put back.
    pub(crate) async fn contents(
        &self,
        id: JobId,
        own_end: Option<u64>,
    ) -> Result<(Reader, Contents), Rejection> {
        let refuse = |error| self.refuse_export(id, &error);
        let reader = Reader::open(&self.shelf, id).map_err(refuse)?;
        let contents = reader.contents(own_end).await.map_err(refuse)?;
        Ok((reader, contents))
    }

    /// Removes the messages of a job, if it has kept some. It cannot be undone any more.
    pub(crate) fn remove_export(&self, id: JobId) -> io::Result<()> {
        self.shelf.remove(&file_name(id, EXPORT))?;
        lock(&self.exports).remove(&id);
        self.with(id, |entry| entry.job.facts.undo_until = None);
        Ok(())
    }

    /// Removes the messages of jobs whose time is up, unless an undo still needs them.
    pub(crate) fn remove_old_exports(&self, now: Timestamp) {
        for id in self.ids_of(|job| self.end_of_export(job).is_some_and(|end| end <= now)) {
            if self.undo_of(id).is_some_and(|undo| undo.works()) {
                continue;
            }
            if let Err(error) = self.remove_export(id) {
                tracing::error!(%error, job = %id, "the messages of an old job stay");
            }
        }
    }

    /// Instant from which the messages of a job are removed. If its own file is damaged, they stay
    /// as long as an ended job.
    pub(crate) fn end_of_export(&self, job: &Job) -> Option<Timestamp> {
        let is_damaged = job.is_damaged && lock(&self.exports).contains_key(&job.facts.id);
        let of_damaged = is_damaged.then(|| job.facts.created_at.plus(ENDED_TIME));
        job.facts.undo_until.or(of_damaged)
    }

    /// The undo of a job: of several, the undo that works, or else the last.
    pub(crate) fn undo_of(&self, id: JobId) -> Option<Job> {
        let jobs = lock(&self.jobs);
        let undos = jobs.values().filter(|entry| entry.job.undone() == Some(id));
        undos.map(|entry| &entry.job).max_by_key(|job| (job.works(), job.facts.created_at)).cloned()
    }

    pub(crate) fn refuse_export(&self, id: JobId, error: &io::Error) -> Rejection {
        tracing::error!(%error, job = %id, "the kept messages of a job cannot be read");
        Rejection::server_busy(format!("the kept messages of job {id} cannot be read: {error}"))
    }

    /// Keeps the place that learns when the tasks of the thread have ended.
    pub(crate) fn set_ended(&self, done: oneshot::Sender<()>) {
        *lock(&self.ended) = Some(done);
    }

    /// Reports that no task of the thread works any more. Requests that wait are refused.
    pub(crate) fn end(&self) {
        for entry in lock(&self.jobs).values_mut() {
            entry.pending.clear();
        }
        if let Some(done) = lock(&self.ended).take() {
            done.send(()).ok();
        }
    }

    /// Refuses a change that was not written.
    fn refuse(&self, error: &ShelfError) -> Rejection {
        let reason = error.error();
        tracing::error!(error = %reason, "a job cannot be written");
        match error {
            ShelfError::Unchanged(_) => Rejection::server_busy(format!(
                "the job cannot be written: {reason}; nothing was changed; try again later"
            )),
            ShelfError::Unknown(_) => {
                lock(&self.failure).get_or_insert_with(|| reason.to_string());
                Rejection::server_busy(format!(
                    "the job cannot be written: {reason}; start the broker again"
                ))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
