//! The thread of the jobs: selects messages, carries out steps, and answers requests.
//!
//! ```text
//!  request ─► handle ─► line, durable ─► table ─► schedule ─► run: step ─► entity ─► line, durable
//! ```
//!
//! Only this thread changes jobs. A job that works takes requests between two steps; the others are
//! changed at once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::command::{ActResult, ActedMessage, Command, OperatorCommand, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::contract::AuditResult;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{
    JobControl, JobDraft, JobExportPart, JobFacts, JobFailurePage, JobState, RUNNING_JOB_COUNT_MAX,
    WAITING_JOB_COUNT_MAX, unknown_job,
};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::spawn_local;

use crate::job::Job;
use crate::record::{EndState, Record};
use crate::table::{ENDED_TIME, Entry, Table};
use crate::undo::Originals;

/// Time after which a refused step is repeated, if it may succeed then.
pub(crate) const RETRY_TIME: TimeSpan = TimeSpan::from_seconds(1);
/// Number of refusals after which a job makes way for others.
const RETRY_COUNT_MAX: u32 = 10;
/// Time for which it makes way.
const DELAY: TimeSpan = TimeSpan::from_seconds(30);
/// Time until the first look at messages that are leaving; it doubles up to [`LOOK_TIME_MAX`].
const LOOK_TIME: TimeSpan = TimeSpan::from_ms(2);
const LOOK_TIME_MAX: TimeSpan = TimeSpan::from_ms(250);
/// Reason of a wait for room.
const IS_FULL: &str = "the destination has no room for the next message or does not take it for \
    now, or the broker has reached a limit; the job tries again every 30 s";
/// Time after which a job whose messages are still leaving makes way for others.
const LEAVING_TIME_MAX: TimeSpan = TimeSpan::from_seconds(10);
/// Problem of a job whose messages are still leaving.
const IS_LEAVING: &str = "messages of its last step are still on their way to the destination; the \
    job looks again every 30 s";
/// Time for which a request waits for the results of messages that are leaving (CON-19).
const RESULT_TIME: TimeSpan = TimeSpan::from_ms(750);
/// Maximum number of waits of a job for room, for the same reason as the next constant.
const WAIT_COUNT_MAX: u32 = 10_000;
/// Maximum number of pauses and resumptions of a job, so that its file stays within the bytes that
/// are read.
const CONTROL_COUNT_MAX: u32 = 10_000;
/// Reason of an end after a step that was not recorded.
const STEP_IS_OPEN: &str = "the result of its last step is unknown: the step may have changed \
    messages that are not counted";
/// Maximum number of requests that wait for the end of the step of a job.
const PENDING_COUNT_MAX: usize = 16;

/// Request for the thread, with the place of its answer.
pub(crate) enum Request {
    Create(String, Box<JobDraft>, oneshot::Sender<Result<JobFacts, Rejection>>),
    Control(JobId, JobControl, Answer),
    Failures(JobId, u32, u32, oneshot::Sender<Result<JobFailurePage, Rejection>>),
    Export(JobId, u64, u64, oneshot::Sender<Result<JobExportPart, Rejection>>),
    End(oneshot::Sender<()>),
}

pub(crate) type Answer = oneshot::Sender<Result<JobFacts, Rejection>>;

pub(crate) struct Engine {
    pub(crate) broker: Broker,
    pub(crate) table: Arc<Table>,
    /// Wakes the selection.
    pub(crate) has_drafts: Notify,
    pub(crate) drafts: RefCell<VecDeque<(JobId, JobDraft)>>,
    /// Wakes the loop, which schedules jobs, and ends jobs that were not started.
    pub(crate) has_changes: Notify,
}

/// Waits for a time by the clock of the broker.
pub(crate) async fn wait(broker: &Broker, span: TimeSpan) {
    broker.sleep_until(broker.now().plus(span)).await;
}

/// Works until the request to end.
pub(crate) async fn run(broker: Broker, table: Arc<Table>, mut requests: mpsc::Receiver<Request>) {
    let engine = Rc::new(Engine {
        broker,
        table,
        has_drafts: Notify::new(),
        drafts: RefCell::default(),
        has_changes: Notify::new(),
    });
    let selecting = Rc::clone(&engine);
    spawn_local(async move { selecting.select_all().await });
    for job in engine.table.ids_of(|job| job.needs_completion()) {
        engine.spawn_end(job);
    }
    loop {
        // One instant for both: a job that becomes due between them would be left out of both.
        let now = engine.broker.now();
        engine.schedule(now);
        let due = [engine.end_old_jobs(), engine.table.next_due(now)];
        let next = due.into_iter().flatten().min();
        let due = async {
            match next {
                Some(at) => engine.broker.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            request = requests.recv() => match request {
                Some(Request::End(done)) => {
                    // The caller waits until the tasks of this thread are dropped.
                    engine.table.set_ended(done);
                    return;
                }
                Some(request) => engine.handle(request),
                None => return,
            },
            () = engine.has_changes.notified() => {}
            () = due => {}
        }
    }
}

impl Engine {
    fn handle(self: &Rc<Self>, request: Request) {
        match request {
            Request::Create(path, draft, answer) => {
                answer.send(self.create(&path, *draft)).ok();
            }
            Request::Control(job, control, answer) => {
                let waiting = |entry: &mut Entry| entry.is_busy.then_some(entry.pending.len());
                match self.table.with(job, waiting) {
                    None => drop(answer.send(Err(unknown_job(job)))),
                    Some(Some(PENDING_COUNT_MAX..)) => {
                        let detail = "too many requests wait for the job; try again later";
                        drop(answer.send(Err(Rejection::server_busy(detail))));
                    }
                    Some(Some(_)) => {
                        self.table.with(job, |entry| {
                            entry.pending.push((control, answer));
                            entry.wake.notify_one();
                        });
                    }
                    // It may read a long file.
                    Some(None) if control == JobControl::Undo => {
                        self.table.with(job, |entry| entry.pending.push((control, answer)));
                        self.spawn_end(job);
                    }
                    Some(None) => {
                        answer.send(self.control(job, control)).ok();
                        self.spawn_end_if_due(job);
                    }
                }
            }
            Request::Failures(job, skip, count_max, answer) => {
                answer.send(self.table.failures(job, skip, count_max)).ok();
            }
            Request::Export(job, from, length, answer) => {
                answer.send(self.table.read_output(job, from, length)).ok();
            }
            Request::End(_) => {}
        }
    }

    fn create(&self, path: &str, draft: JobDraft) -> Result<JobFacts, Rejection> {
        self.table.check()?;
        self.refuse_too_many()?;
        let id = JobId(self.broker.random_bits());
        let job = Job::new(id, path, &draft, self.broker.now());
        let facts = job.facts.clone();
        self.table.insert(Entry::new(job));
        self.drafts.borrow_mut().push_back((id, draft));
        self.has_drafts.notify_one();
        Ok(facts)
    }

    /// Refuses another job if too many have not ended.
    pub(crate) fn refuse_too_many(&self) -> Result<(), Rejection> {
        let live = self.table.ids_of(|job| !job.facts.state.is_end()).len();
        if live >= RUNNING_JOB_COUNT_MAX + WAITING_JOB_COUNT_MAX {
            return Err(Rejection::quota_exceeded(format!(
                "{live} jobs have not ended, the limit; cancel a job, or wait for its end"
            )));
        }
        Ok(())
    }

    /// Changes the state of a job that does not work.
    fn control(&self, id: JobId, control: JobControl) -> Result<JobFacts, Rejection> {
        let job = self.table.get(id).ok_or_else(|| unknown_job(id))?;
        let (facts, now) = (&job.facts, self.broker.now());
        let record = match (control, facts.state) {
            (JobControl::Start(digest), state) => {
                let preview = facts.preview.as_ref().ok_or_else(|| job.refuse("started"))?;
                if preview.digest != digest {
                    let detail = "the job's preview has another digest; look at the job again";
                    return Err(Rejection::new(Condition::UpdateConflict, detail));
                }
                match state {
                    JobState::Ready if now < preview.until => Record::Started { at: now.ticks() },
                    JobState::Ready | JobState::Cancelled
                        if facts.started_at.is_none() && now >= preview.until =>
                    {
                        let detail = "the preview is older than 10 minutes; create the job again";
                        return Err(Rejection::new(Condition::UpdateConflict, detail));
                    }
                    // A repetition, after a lost answer.
                    JobState::Waiting | JobState::Running | JobState::Paused | JobState::Done => {
                        return Ok(job.facts);
                    }
                    _ => return Err(job.refuse("started")),
                }
            }
            (JobControl::Pause, JobState::Waiting | JobState::Running) => {
                Record::Paused { problem: None }
            }
            (JobControl::Resume, JobState::Paused) => Record::Resumed {},
            (JobControl::Pause, JobState::Paused)
            | (JobControl::Resume, JobState::Waiting | JobState::Running)
            | (JobControl::Cancel, JobState::Cancelled) => return Ok(job.facts),
            (JobControl::Cancel, state) if !state.is_end() => {
                let is_open = self.table.with(id, |entry| entry.is_step_open) == Some(true);
                self.end(EndState::Cancelled, is_open.then(|| STEP_IS_OPEN.to_owned()))
            }
            (JobControl::Pause, _) => return Err(job.refuse("paused")),
            (JobControl::Resume, _) => return Err(job.refuse("resumed")),
            (JobControl::Cancel, _) => return Err(job.refuse("cancelled")),
            (JobControl::Undo, _) => return Err(job.refuse("undone")),
        };
        if matches!(record, Record::Paused { .. } | Record::Resumed {})
            && job.controls >= CONTROL_COUNT_MAX
        {
            let detail = "the job was paused too often; let it end, or cancel it";
            return Err(Rejection::quota_exceeded(detail));
        }
        self.table.write(id, &record)?;
        if facts.state == JobState::Selecting {
            self.drafts.borrow_mut().retain(|(draft, _)| *draft != id);
        }
        self.has_changes.notify_one();
        self.table.get(id).map(|job| job.facts).ok_or_else(|| unknown_job(id))
    }

    fn end(&self, state: EndState, problem: Option<String>) -> Record {
        Record::Ended { at: self.broker.now().ticks(), state, problem }
    }

    /// Starts waiting jobs while there is room for them, in the order of their starts. A sub-queue
    /// has one job at a time.
    fn schedule(self: &Rc<Self>, now: Timestamp) {
        if self.table.check().is_err() {
            return;
        }
        for job in self.table.next_to_run(RUNNING_JOB_COUNT_MAX, now) {
            let engine = Rc::clone(self);
            spawn_local(async move {
                engine.run_job(job).await;
                engine.release(job);
            });
        }
    }

    /// Cancels jobs that were not started in time, and removes jobs that ended long ago. Returns
    /// the instant at which this is due again.
    fn end_old_jobs(self: &Rc<Self>) -> Option<Timestamp> {
        let until = |job: &Job| match job.facts.state {
            JobState::Ready => job.facts.preview.as_ref().map(|preview| preview.until),
            _ => None,
        };
        let now = self.broker.now();
        for id in self.table.ids_of(|job| until(job).is_some_and(|until| until <= now)) {
            let problem = Some("it was not started within 10 minutes".to_owned());
            if self.table.write(id, &self.end(EndState::Cancelled, problem)).is_ok() {
                self.spawn_end(id);
            }
        }
        self.table.remove_old_exports(now);
        self.table.remove_old(now);
        let removal = |job: &Job| job.facts.ended_at.map(|at| at.plus(ENDED_TIME));
        self.table.least(|job| {
            let dues = [until(job), self.table.end_of_export(job), removal(job)];
            dues.into_iter().flatten().filter(|at| *at > now).min()
        })
    }

    /// Answers the requests that came while a job worked. Returns whether the job still works.
    pub(crate) fn take_requests(&self, id: JobId) -> bool {
        for (control, answer) in self.table.take_pending(id) {
            let has_ended = self.table.state(id).is_some_and(JobState::is_end);
            if has_ended && control == JobControl::Undo {
                // The end of the job makes it possible.
                self.table.with(id, |entry| entry.pending.push((control, answer)));
            } else {
                answer.send(self.control(id, control)).ok();
            }
        }
        self.table.state(id) == Some(JobState::Running)
    }

    /// Ends the work of a task on a job.
    pub(crate) fn release(self: &Rc<Self>, id: JobId) {
        self.take_requests(id);
        self.table.with(id, |entry| entry.is_busy = false);
        self.spawn_end_if_due(id);
        self.has_changes.notify_one();
    }

    /// Carries out steps until the job pauses or ends.
    async fn run_job(&self, id: JobId) {
        let Some(wake) = self.table.with(id, |entry| Arc::clone(&entry.wake)) else { return };
        let mut retries = 0;
        // Begin of a step whose messages are leaving, and the time until the next look at them.
        let mut open: Option<(Timestamp, TimeSpan)> = None;
        let mut asked_at = None;
        let mut originals = Originals::default();
        while self.waits_for_results(id, open.is_some(), &mut asked_at) || self.take_requests(id) {
            let Some(job) = self.table.get(id) else { return };
            let now = self.broker.now();
            let began_at = open.map_or(now, |(began_at, _)| began_at);
            let next_at = self.table.with(id, |entry| entry.next_at).flatten();
            if let Some(next_at) = next_at.filter(|at| *at > now) {
                // A request ends the wait, and the job waits again if it still works.
                self.wait_or_wake(next_at, &wake).await;
                continue;
            }
            let mut is_full = false;
            let record = match (self.entity(&job), job.next_step()) {
                (Err(error), _) => self.end(EndState::Failed, Some(error.detail().to_owned())),
                (Ok(_), None) => self.end(EndState::Done, job.refusal.as_deref().map(Into::into)),
                (Ok(entity), Some(act)) => {
                    let sequences = act.sequences.clone();
                    match self.act(&job, &entity, act, &mut originals).await {
                        Ok(Outcome::Acted(messages)) => {
                            if has(&messages, ActResult::Leaving) {
                                if now.since(began_at) >= LEAVING_TIME_MAX {
                                    open = None;
                                    let look_at = now.plus(DELAY);
                                    self.table.with(id, |entry| entry.next_at = Some(look_at));
                                    self.make_way(id, IS_LEAVING);
                                    continue;
                                }
                                let span = open.map_or(LOOK_TIME, |(_, span)| span);
                                open = Some((began_at, span.plus(span).min(LOOK_TIME_MAX)));
                                let look_at = now.plus(span);
                                self.table.with(id, |entry| entry.next_at = Some(look_at));
                                continue;
                            }
                            let (kept, problem) = match self.note(&job, &mut originals, &messages) {
                                Ok(noted) => noted,
                                Err(error) if self.delays(id, &error) => continue,
                                Err(_) => return,
                            };
                            is_full = has(&messages, ActResult::DestinationFull);
                            job.step(&messages, kept, problem)
                        }
                        Ok(_) => Record::Paused { problem: Some("unexpected answer".to_owned()) },
                        Err(error) if error.condition() == Condition::EntityNotFound => {
                            self.end(EndState::Failed, Some(error.detail().to_owned()))
                        }
                        Err(error) if may_succeed_later(&error) => {
                            // The step has a receipt, so it can be repeated.
                            retries += 1;
                            let is_last = retries == RETRY_COUNT_MAX;
                            let delay = if is_last { DELAY } else { RETRY_TIME };
                            self.table.with(id, |entry| {
                                entry.job.facts.problem = Some(error.detail().into());
                                entry.next_at = Some(now.plus(delay));
                                if is_last {
                                    entry.job.facts.state = JobState::Waiting;
                                }
                            });
                            continue;
                        }
                        // The same step would be refused again.
                        Err(error) if error.condition() == Condition::ArgumentOutOfRange => {
                            job.refused_step(&sequences, error.detail())
                        }
                        Err(error) => Record::Paused { problem: Some(error.detail().to_owned()) },
                    }
                }
            };
            let count = match &record {
                Record::Step(step) => step.tried,
                _ => 0,
            };
            match self.table.write(id, &record) {
                Ok(()) => {}
                Err(error) if self.delays(id, &error) => continue,
                Err(_) => return,
            }
            (retries, open) = (0, None);
            if is_full {
                let next_at = now.plus(if count > 0 { RETRY_TIME } else { DELAY });
                self.table.with(id, |entry| {
                    (entry.next_at, entry.is_step_open) = (Some(next_at), false);
                });
                self.wait_for_room(id, job.waits);
                continue;
            }
            let ms = count.saturating_mul(1_000) / u64::from(job.facts.rate.max(1));
            let pace = TimeSpan::from_ms(i64::try_from(ms).unwrap_or(i64::MAX));
            if count > 0 {
                self.table.with(id, |entry| {
                    (entry.next_at, entry.is_step_open) = (Some(began_at.plus(pace)), false);
                });
            }
        }
    }

    /// Lets a job wait whose file could not be written. Returns false if the state of the files is
    /// unknown until the next start.
    fn delays(&self, id: JobId, error: &Rejection) -> bool {
        self.table.set_problem(id, error.detail());
        let retry_at = self.broker.now().plus(RETRY_TIME);
        self.table.with(id, |entry| entry.next_at = Some(retry_at));
        self.table.check().is_ok()
    }

    /// Lets a job make way until its destination may have room. After too many waits it pauses.
    fn wait_for_room(&self, id: JobId, waits: u32) {
        if waits >= WAIT_COUNT_MAX {
            let paused = Record::Paused { problem: Some(IS_FULL.to_owned()) };
            if let Err(error) = self.table.write(id, &paused) {
                self.table.set_problem(id, error.detail());
            }
            return;
        }
        self.make_way(id, IS_FULL);
    }

    /// Lets a job that works wait for its next step, so that others may run.
    fn make_way(&self, id: JobId, problem: &str) {
        self.table.with(id, |entry| {
            let facts = &mut entry.job.facts;
            if facts.state == JobState::Running {
                (facts.state, facts.problem) = (JobState::Waiting, Some(problem.into()));
            }
        });
    }

    /// Whether requests still wait for the results of messages that are leaving, so that the line
    /// of their step comes before a pause or the end. `asked_at` is the instant of the first
    /// request.
    fn waits_for_results(
        &self,
        id: JobId,
        is_leaving: bool,
        asked_at: &mut Option<Timestamp>,
    ) -> bool {
        let is_asked = self.table.with(id, |entry| !entry.pending.is_empty()) == Some(true);
        if !is_leaving || !is_asked {
            *asked_at = None;
            return false;
        }
        let now = self.broker.now();
        now.since(*asked_at.get_or_insert(now)) < RESULT_TIME
    }

    async fn wait_or_wake(&self, at: Timestamp, wake: &Notify) {
        tokio::select! {
            () = self.broker.sleep_until(at) => {}
            () = wake.notified() => {}
        }
    }

    /// Returns the entity of a job, if it is still the same.
    pub(crate) fn entity(&self, job: &Job) -> Result<Entity, BrokerError> {
        let path = &*job.facts.path;
        let entity = self.broker.entity(path)?;
        match entity.id() == job.entity {
            true => Ok(entity),
            false => Err(self.broker.refuse(Rejection::entity_not_found(path), path)),
        }
    }

    /// Completes the end of a job that has ended, unless that is done, and answers requests that
    /// waited for that.
    fn spawn_end_if_due(self: &Rc<Self>, id: JobId) {
        let is_due = |entry: &mut Entry| entry.job.needs_completion() || !entry.pending.is_empty();
        if self.table.with(id, is_due) == Some(true) {
            self.spawn_end(id);
        }
    }

    /// Completes the end of a job if it has ended, and repeats that until it succeeds. Then answers
    /// requests.
    fn spawn_end(self: &Rc<Self>, id: JobId) {
        let begin = |entry: &mut Entry| {
            entry.is_busy = true;
            Arc::clone(&entry.wake)
        };
        let Some(wake) = self.table.with(id, begin) else { return };
        let engine = Rc::clone(self);
        spawn_local(async move {
            let mut is_logged = false;
            while let Err(error) = engine.complete(id).await {
                if !is_logged {
                    tracing::error!(%error, job = %id, "the end of a job is delayed");
                    is_logged = true;
                }
                if engine.table.check().is_err() {
                    break;
                }
                let again_at = engine.broker.now().plus(RETRY_TIME);
                while engine.broker.now() < again_at {
                    engine.answer(id).await;
                    engine.wait_or_wake(again_at, &wake).await;
                }
            }
            engine.answer(id).await;
            engine.table.with(id, |entry| entry.is_busy = false);
            engine.has_changes.notify_one();
        });
    }

    /// Answers the requests for a job that does not work.
    async fn answer(&self, id: JobId) {
        loop {
            let pending = self.table.take_pending(id);
            if pending.is_empty() {
                return;
            }
            for (control, answer) in pending {
                let answered = match control {
                    JobControl::Undo => self.undo(id).await,
                    _ => self.control(id, control),
                };
                answer.send(answered).ok();
            }
        }
    }

    /// Completes the end of a job: its entity forgets the receipt, the trail gets the result, and
    /// its file loses the selection.
    async fn complete(&self, id: JobId) -> Result<(), BrokerError> {
        let Some(job) = self.table.get(id).filter(Job::needs_completion) else { return Ok(()) };
        let refuse = |rejection| self.broker.refuse(rejection, &job.facts.path);
        self.table.check().map_err(refuse)?;
        self.note_open_step(&job).await?;
        // Also a step without a line may have left a receipt.
        if job.facts.started_at.is_some()
            && !job.is_export()
            && let Ok(entity) = self.entity(&job)
        {
            let forget = Command::OfOperator(OperatorCommand::ForgetJob(id));
            if let Err(error) = entity.call(forget).await {
                tracing::warn!(%error, job = %id, "the receipt of an ended job stays for a day");
            }
        }
        let was_recorded = self.table.with(id, |entry| entry.is_end_recorded) == Some(true);
        if job.facts.started_at.is_some() && !was_recorded {
            let result = match job.facts.state {
                JobState::Failed => AuditResult::Failed(Condition::InvalidOperation),
                JobState::Cancelled => AuditResult::Failed(Condition::OperationCancelled),
                _ => AuditResult::Done,
            };
            self.broker.record_job_end(&job.facts, result).await;
            self.table.with(id, |entry| entry.is_end_recorded = true);
        }
        let written = self.release_export(&job).and_then(|()| self.table.compact(id));
        written.map_err(|error| refuse(Rejection::server_busy(error.to_string())))
    }
}

fn has(messages: &[ActedMessage], result: ActResult) -> bool {
    messages.iter().any(|message| message.result == result)
}

/// Whether the step may succeed later: an overload, a full store or queue, or an unknown outcome.
fn may_succeed_later(error: &BrokerError) -> bool {
    error.retryable() || error.condition() == Condition::QuotaExceeded
}
