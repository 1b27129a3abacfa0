//! Jobs of the broker that `dlq resubmit` and `dlq purge` run: the found messages by number, in jobs
//! one after the other, each with a bar of progress (CON-12, CON-15).

use peeklock::command::{ActResult, ActedMessage, Deed};
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{
    Found, JOB_FAILURE_PAGE_MAX, JOB_NUMBER_COUNT_MAX, JOB_RATE_MAX, JobControl, JobDraft,
    JobQuery, JobSelection, JobState, Question,
};

use super::super::connect::CommandConnection;
use super::super::deed::problem;
use super::super::inspect::ask;
use super::super::job::{Watched, failure_of, select, watch, works};
use super::super::message::messages;
use super::super::terminal::note;
use super::super::{Failure, exit};

/// Result of all jobs.
#[derive(Default)]
pub struct JobTotals {
    /// Messages whose deed is done.
    pub done: u64,
    /// Messages whose deed was not done.
    pub left: Vec<ActedMessage>,
    /// Why the rest was not tried.
    pub stopped_by: Option<Failure>,
    /// Whether a job continues without the command, so that its result is not known.
    pub is_unknown: bool,
}

impl JobTotals {
    /// Number of messages with a result.
    pub fn count(&self, result: ActResult) -> usize {
        self.left.iter().filter(|message| message.result == result).count()
    }

    /// Prints how many messages stay in `path`, by reason.
    pub fn report(&self, path: &str) {
        for result in ActResult::ALL {
            let mut with_it = self.left.iter().filter(|message| message.result == result);
            let Some(first) = with_it.next() else { continue };
            let count = messages(with_it.count() as u64 + 1);
            let reason = match result {
                ActResult::Locked => {
                    "a receiver holds it; run the command again when its lock has ended"
                }
                result => problem(result),
            };
            let number = first.sequence;
            note(&format!("error: {count} left in `{path}`, such as {number}: {reason}"));
        }
    }

    /// Result of a command, unless messages are missing.
    pub fn result(self) -> Result<(), Failure> {
        match self.stopped_by {
            Some(Failure::Ended { text, .. }) if self.done > 0 => {
                Err(Failure::ended(exit::IN_PART, text))
            }
            Some(failure) => Err(failure),
            None if !self.left.is_empty() => Err(Failure::Reported(exit::IN_PART)),
            None => Ok(()),
        }
    }
}

/// Runs a deed on these messages.
pub async fn run(
    session: &CommandConnection,
    path: &str,
    numbers: &[u64],
    deed: &Deed,
    label: &'static str,
) -> JobTotals {
    let mut totals = JobTotals::default();
    for numbers in numbers.chunks(JOB_NUMBER_COUNT_MAX) {
        let job = run_one(session, path, numbers, deed, label, &mut totals).await;
        if let Err(failure) = job {
            totals.stopped_by = Some(failure);
        }
        if totals.stopped_by.is_some() {
            break;
        }
    }
    totals
}

async fn run_one(
    session: &CommandConnection,
    path: &str,
    numbers: &[u64],
    deed: &Deed,
    label: &'static str,
    totals: &mut JobTotals,
) -> Result<(), Failure> {
    let admin = session.client.admin();
    let draft = JobDraft {
        selection: JobSelection::Numbers(numbers.iter().copied().map(SequenceNumber).collect()),
        deed: deed.clone(),
        breaks_locks: false,
        rate: JOB_RATE_MAX,
        trial: None,
    };
    let job = select(session, path, draft).await?;
    let Some(preview) = &job.preview else { return Err(failure_of(&job)) };
    let job = admin.control_job(job.id, JobControl::Start(preview.digest)).await?;
    let (id, total) = (job.id, Some(numbers.len() as u64));
    let watched = watch(session, job, label, total, works).await.inspect_err(|_| {
        totals.is_unknown = true;
        note(&format!("the job may still run; `peeklock job show {id}` shows it"));
    });
    let job = match watched? {
        Watched::Reached(job) => job,
        Watched::Interrupted(job) => {
            totals.stopped_by = Some(Failure::Reported(exit::INTERRUPTED));
            // The job may have ended meanwhile.
            match admin.control_job(job.id, JobControl::Cancel).await {
                Ok(job) => job,
                Err(_) => admin.job(job.id).await?,
            }
        }
    };
    if totals.stopped_by.is_some()
        && let Some(why) = &job.problem
    {
        note(&format!("error: job {}: {why}", job.id));
    }
    totals.done += job.progress.done;
    let query = JobQuery::Failures { job: job.id, skip: 0, count_max: JOB_FAILURE_PAGE_MAX };
    let page = |found: &Found| match found {
        Found::JobFailures(page) => Some(page.clone()),
        _ => None,
    };
    let (page, _) = ask(session, "", Question::Jobs(query), page).await?;
    totals.left.extend(page.failures);
    if job.state != JobState::Done && totals.stopped_by.is_none() {
        return Err(failure_of(&job));
    }
    Ok(())
}
