//! `peeklock job`: an operator changes many messages in a job of the broker (CON-12 to CON-19).
//! `cli.rs` dispatches to it; `job/selection.rs` has the flags that select messages, `job/list.rs`
//! lists jobs, `job/messages.rs` messages of a job, and `job/export.rs` exports messages.

mod export;
mod list;
mod messages;
mod selection;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::command::Deed;
use peeklock::ids::JobId;
use peeklock::inspect::{
    JOB_RATE_DEFAULT, JobControl, JobDigest, JobDraft, JobFacts, JobPreview, JobState,
};
use peeklock::time::TimeSpan;
use peeklock_json::{JobStateName, JobView, JsonName as _};

use super::arguments::{When, new_instant, span_of, when};
use super::connect::{CommandConnection, Common, Output, Patience};
use super::deed::{EditFlags, deed_text, problem};
use super::inspect::Rows;
use super::message::{counted, instant};
use super::search::where_help;
use super::terminal::{Bar, note, object, sheet};
use super::{Failure, exit};
use export::{DownloadFlags, EXPORT_HELP, ExportFlags, export_form};
use selection::SelectionFlags;

/// Time until the second look at a job; it doubles up to [`LOOK_EVERY`].
const LOOK_FIRST: Duration = Duration::from_millis(15);
/// Maximum time between two looks at a job.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock job create orders delete --where 'subject=test before:-1d'
  peeklock job start 0f8fad5b-d9cb-469f-a165-70867728950e 7c9e6679-7425-40de-944b-e07fc1f90ae7
  peeklock job list
  peeklock job failures 0f8fad5b-d9cb-469f-a165-70867728950e

A job changes many messages, each exactly once, even if the broker is killed meanwhile. `create` \
selects the messages and shows a preview with a digest; nothing changes until `start` presents \
this digest, within 10 minutes. Messages that arrive later are not part of the job. Ended jobs are \
kept for 7 days.

",
    exit_codes!()
);

const CREATE_HELP: &str = concat!(
    "\
Examples:
  peeklock job create orders delete --where 'subject=test before:-1d'
  peeklock job create orders -d delete --where 'reason:timeout' --trial 10
  peeklock job create orders dead-letter --where 'body.$.order.id=17' --reason NotAnOrder
  peeklock job create orders reschedule --where '' --state scheduled --later 1h
  peeklock job create orders undefer --number 1001 --number 1002
  peeklock job create orders -d resubmit --where 'reason:timeout' --set retried:bool=true
  peeklock job create orders move --where 'subject=return' --to returns
  peeklock job create orders -d resubmit --where '' --merge-patch '{\"currency\":\"EUR\"}'
  peeklock job create orders delete --where '' --start       without a look at the preview
  peeklock job create orders -d export --where '' --csv --start

",
    where_help!(),
    "

",
    exit_codes!()
);

const START_HELP: &str = concat!(
    "\
Examples:
  peeklock job start JOB DIGEST              start, and wait for the end
  peeklock job start JOB DIGEST --no-wait    start only

`peeklock job create` prints JOB and DIGEST. If you interrupt the command, the job goes on.

",
    exit_codes!()
);

#[derive(Subcommand)]
pub enum JobCommand {
    /// Select messages for a job and show its preview; nothing changes
    #[command(after_help = CREATE_HELP)]
    Create(Box<CreateFlags>),
    /// List jobs, newest first
    #[command(after_help = HELP)]
    List(ListFlags),
    /// Show a job with its progress
    #[command(after_help = HELP)]
    Show(JobFlags),
    /// Start a job with the digest of its preview, and wait for its end
    #[command(after_help = START_HELP)]
    Start(StartFlags),
    /// Pause a job after its current step
    #[command(after_help = HELP)]
    Pause(JobFlags),
    /// Continue a paused job, and wait for its end
    #[command(after_help = HELP)]
    Resume(ResumeFlags),
    /// End a job after its current step; its changes stay
    #[command(after_help = HELP)]
    Cancel(JobFlags),
    /// Undo a job that has ended with another one, and wait for its end
    #[command(after_help = HELP)]
    Undo(ResumeFlags),
    /// Show the first messages of a job as it would store them
    #[command(after_help = HELP)]
    Samples(JobFlags),
    /// List the messages that a job has left alone, with the reasons
    #[command(after_help = HELP)]
    Failures(JobFlags),
    /// Export messages to a file with a job: select, start, wait and download
    #[command(after_help = EXPORT_HELP)]
    Export(ExportFlags),
    /// Download the file that a job with the change `export` has made
    #[command(after_help = EXPORT_HELP)]
    Download(DownloadFlags),
}

#[derive(Args)]
pub struct CreateFlags {
    /// Queue, such as `orders`, sub-queue, topic or subscription
    entity: String,
    /// Change of each message
    deed: DeedName,
    #[command(flatten)]
    selection: SelectionFlags,
    /// Break the locks of receivers, except in sessions, without counting deliveries as failed
    #[arg(long)]
    break_locks: bool,
    /// Change at most this many messages per second
    #[arg(long, value_name = "N", default_value_t = JOB_RATE_DEFAULT)]
    rate: u32,
    /// Pause after this many messages, so that you can look at the result
    #[arg(long, value_name = "N")]
    trial: Option<u32>,
    /// Dead-letter reason, for dead-letter
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Dead-letter description, for dead-letter
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// New time, for reschedule, such as +1h or 2026-05-01T12:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = when)]
    at: Option<When>,
    /// Move the time to this much later, for reschedule, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = span_of, conflicts_with = "at")]
    later: Option<TimeSpan>,
    /// Move the time to this much earlier, for reschedule, such as 10m
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = span_of,
        conflicts_with_all = ["at", "later"]
    )]
    earlier: Option<TimeSpan>,
    /// Queue, topic or subscription for move and resubmit [default for resubmit: the entity in
    /// which each message was dead-lettered]
    #[arg(long, value_name = "ENTITY")]
    to: Option<String>,
    #[command(flatten)]
    edit: EditFlags,
    /// Write a table of the messages without their bodies as CSV, for export
    #[arg(long)]
    csv: bool,
    /// Start the job when its preview is ready, and wait for its end
    #[arg(long)]
    start: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeedName {
    /// Delete messages in any state
    Delete,
    /// Move active or deferred messages to the dead-letter queue
    DeadLetter,
    /// Make deferred messages active again, at their place in the queue
    Undefer,
    /// Give scheduled messages another time
    Reschedule,
    /// Send dead letters to where they were dead-lettered, or to another entity
    Resubmit,
    /// Move active messages to another queue, topic or subscription
    Move,
    /// Write messages in any state to a file of the broker, and change nothing
    Export,
}

#[derive(Args)]
pub struct ListFlags {
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct JobFlags {
    /// Id of the job
    #[arg(value_parser = job_id)]
    job: JobId,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct StartFlags {
    /// Id of the job
    #[arg(value_parser = job_id)]
    job: JobId,
    /// Digest of the preview
    #[arg(value_parser = digest)]
    digest: JobDigest,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct ResumeFlags {
    /// Id of the job
    #[arg(value_parser = job_id)]
    job: JobId,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

fn job_id(text: &str) -> Result<JobId, String> {
    JobId::parse(text).ok_or_else(|| "expected the id of a job, a GUID".to_owned())
}

fn digest(text: &str) -> Result<JobDigest, String> {
    let id =
        JobId::parse(text).ok_or_else(|| "expected the digest of a preview, a GUID".to_owned());
    id.map(|id| JobDigest(id.0))
}

pub fn run(command: &JobCommand) -> Result<(), Failure> {
    let changed = |flags: &JobFlags, control| {
        flags.common.run(Patience::Limited, async |session| {
            let job = session.client.admin().control_job(flags.job, control).await?;
            show(session, flags.common.output, job)
        })
    };
    let controlled = |flags: &ResumeFlags, control| {
        flags.common.run(Patience::Limited, async |session| {
            let job = session.client.admin().control_job(flags.job, control).await?;
            end(session, flags.common.output, job, flags.no_wait).await
        })
    };
    match command {
        JobCommand::Create(flags) => {
            flags.common.run(Patience::Limited, async |session| create(flags, session).await)
        }
        JobCommand::List(flags) => {
            flags.common.run(Patience::Limited, async |session| list::list(flags, session).await)
        }
        JobCommand::Show(flags) => flags.common.run(Patience::Limited, async |session| {
            let job = session.client.admin().job(flags.job).await?;
            let until = job.undo_until.filter(|_| flags.common.output == Output::Table);
            show(session, flags.common.output, job)?;
            if let Some(until) = until.map(instant) {
                note(&format!("until {until}, `peeklock job undo {}` undoes it", flags.job));
            }
            Ok(())
        }),
        JobCommand::Start(flags) => flags.common.run(Patience::Limited, async |session| {
            let start = JobControl::Start(flags.digest);
            let job = session.client.admin().control_job(flags.job, start).await?;
            end(session, flags.common.output, job, flags.no_wait).await
        }),
        JobCommand::Pause(flags) => changed(flags, JobControl::Pause),
        JobCommand::Resume(flags) => controlled(flags, JobControl::Resume),
        JobCommand::Cancel(flags) => changed(flags, JobControl::Cancel),
        JobCommand::Undo(flags) => controlled(flags, JobControl::Undo),
        JobCommand::Samples(flags) => flags
            .common
            .run(Patience::Limited, async |session| messages::samples(flags, session).await),
        JobCommand::Failures(flags) => flags
            .common
            .run(Patience::Limited, async |session| messages::failures(flags, session).await),
        JobCommand::Export(flags) => flags
            .common
            .run(Patience::Limited, async |session| export::export(flags, session).await),
        JobCommand::Download(flags) => flags
            .common
            .run(Patience::Limited, async |session| export::download(flags, session).await),
    }
}

impl CreateFlags {
    fn deed(&self, session: &CommandConnection) -> Result<Deed, Failure> {
        let has_texts = self.reason.is_some() || self.description.is_some();
        let has_times = self.at.is_some() || self.later.is_some() || self.earlier.is_some();
        if has_texts && self.deed != DeedName::DeadLetter {
            return Err(Failure::usage(
                "--reason and --description are for dead-letter".to_owned(),
            ));
        }
        if has_times && self.deed != DeedName::Reschedule {
            return Err(Failure::usage(
                "--at, --later and --earlier are for reschedule".to_owned(),
            ));
        }
        let sends = matches!(self.deed, DeedName::Resubmit | DeedName::Move);
        if !sends && (self.to.is_some() || self.edit.is_given()) {
            return Err(Failure::usage(
                "--to, --set, --remove, --ttl, --new-id, --body, --body-file and --merge-patch are \
                 for resubmit and move"
                    .to_owned(),
            ));
        }
        if self.csv && self.deed != DeedName::Export {
            return Err(Failure::usage("--csv is for export".to_owned()));
        }
        let (to, edit) = (self.to.as_deref().map(Into::into), self.edit.edit()?);
        Ok(match self.deed {
            DeedName::Export => Deed::Export(export_form(self.csv)),
            DeedName::Resubmit => Deed::Resubmit { to, edit },
            DeedName::Move => {
                let to = to.ok_or_else(|| {
                    Failure::usage("move needs the destination; give it with --to".to_owned())
                })?;
                Deed::Move { to, edit }
            }
            DeedName::Delete => Deed::Delete,
            DeedName::DeadLetter => {
                let text = |text: &Option<String>| text.as_deref().map(Into::into);
                let (reason, description) = (text(&self.reason), text(&self.description));
                Deed::DeadLetter { reason, description }
            }
            DeedName::Undefer => Deed::Undefer,
            DeedName::Reschedule => {
                let now = session.client.now();
                Deed::Reschedule(new_instant(self.at, self.later, self.earlier, now))
            }
        })
    }

    fn draft(&self, session: &CommandConnection) -> Result<JobDraft, Failure> {
        Ok(JobDraft {
            selection: self.selection.selection(session)?,
            deed: self.deed(session)?,
            breaks_locks: self.break_locks,
            rate: self.rate,
            trial: self.trial,
        })
    }
}

async fn create(flags: &CreateFlags, session: &CommandConnection) -> Result<(), Failure> {
    let path = flags.selection.path(&flags.entity);
    let job = select(session, &path, flags.draft(session)?).await?;
    let Some(preview) = &job.preview else {
        // The selection has failed or was cancelled.
        show(session, flags.common.output, job)?;
        return Err(Failure::Reported(exit::FAILURE));
    };
    if flags.start {
        let start = JobControl::Start(preview.digest);
        let job = session.client.admin().control_job(job.id, start).await?;
        return end(session, flags.common.output, job, false).await;
    }
    let (id, digest, until) = (job.id, JobId(preview.digest.0), instant(preview.until));
    show(session, flags.common.output, job)?;
    if flags.common.output == Output::Table {
        note(&format!(
            "nothing is changed yet; `peeklock job samples {id}` shows the first messages as they \
             would be stored; until {until}, `peeklock job start {id} {digest}` starts the job"
        ));
    }
    Ok(())
}

/// Makes a job, and waits for its preview. An interrupt cancels it.
pub async fn select(
    session: &CommandConnection,
    path: &str,
    draft: JobDraft,
) -> Result<JobFacts, Failure> {
    let admin = session.client.admin();
    let job = admin.create_job(path, draft).await?;
    let is_selecting = |job: &JobFacts| job.state == JobState::Selecting;
    match watch(session, job, "selecting", None, is_selecting).await? {
        Watched::Reached(job) => Ok(job),
        Watched::Interrupted(job) => {
            admin.control_job(job.id, JobControl::Cancel).await?;
            Err(Failure::Reported(exit::INTERRUPTED))
        }
    }
}

/// Whether a started job continues by itself.
pub const fn works(job: &JobFacts) -> bool {
    matches!(job.state, JobState::Waiting | JobState::Running)
}

/// Failure of a job that did not try all messages.
pub fn failure_of(job: &JobFacts) -> Failure {
    let state = match job.state {
        JobState::Paused => "is paused",
        JobState::Cancelled => "was cancelled",
        _ => "has failed",
    };
    let why = job.problem.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let (id, code) = (job.id, exit::IN_PART);
    Failure::ended(code, format!("job {id} {state}{why}; `peeklock job show {id}` shows it"))
}

/// The end of a watch.
pub enum Watched {
    Reached(JobFacts),
    Interrupted(JobFacts),
}

/// Looks at a job while a condition holds, with a progress bar. Prints why it waits.
pub async fn watch(
    session: &CommandConnection,
    mut job: JobFacts,
    label: &'static str,
    total: Option<u64>,
    goes_on: impl Fn(&JobFacts) -> bool,
) -> Result<Watched, Failure> {
    let bar = Bar::new(label, total);
    let (mut seen, mut every) = (0, LOOK_FIRST);
    let mut problem = None;
    loop {
        bar.advance(job.progress.tried.saturating_sub(seen));
        seen = job.progress.tried.max(seen);
        if !goes_on(&job) {
            return Ok(Watched::Reached(job));
        }
        let waits_for = job.problem.as_ref().filter(|_| job.state == JobState::Waiting);
        if let Some(waits_for) = waits_for.filter(|why| problem.as_ref() != Some(*why)) {
            note(&format!("the job waits: {waits_for}"));
            problem = Some(waits_for.clone());
        }
        tokio::select! {
            biased;
            () = session.interrupt.hit() => return Ok(Watched::Interrupted(job)),
            () = tokio::time::sleep(every) => {}
        }
        every = (every * 2).min(LOOK_EVERY);
        job = session.client.admin().job(job.id).await?;
    }
}

/// Waits for the end or a pause of a started job, and shows it.
async fn end(
    session: &CommandConnection,
    output: Output,
    job: JobFacts,
    no_wait: bool,
) -> Result<(), Failure> {
    if no_wait {
        return show(session, output, job);
    }
    let total = job.preview.as_ref().map(|preview| preview.count);
    let label = if matches!(job.deed, Deed::Export(_)) { "exporting" } else { "changing" };
    match watch(session, job, label, total, works).await? {
        Watched::Interrupted(job) => {
            note(&format!("the job goes on; `peeklock job cancel {}` ends it", job.id));
            Err(Failure::Reported(exit::INTERRUPTED))
        }
        Watched::Reached(job) => {
            let (id, state, progress) = (job.id, job.state, job.progress);
            let has_file = job.export_bytes.is_some();
            show(session, output, job)?;
            if has_file && output == Output::Table {
                note(&format!("`peeklock job download {id} --to FILE` writes the file"));
            }
            if progress.failed > 0 && output == Output::Table {
                note(&format!("`peeklock job failures {id}` lists the messages that stay"));
            }
            match (state, progress.done, progress.failed) {
                (JobState::Failed | JobState::Cancelled, ..) => {
                    Err(Failure::Reported(exit::IN_PART))
                }
                (JobState::Done, 0, 1..) => Err(Failure::Reported(exit::NOTHING)),
                (JobState::Done, _, 1..) => Err(Failure::Reported(exit::IN_PART)),
                _ => Ok(()),
            }
        }
    }
}

fn show(session: &CommandConnection, output: Output, job: JobFacts) -> Result<(), Failure> {
    if output != Output::Table {
        let view = serde_json::to_string(&JobView::from(job)).unwrap_or_default();
        return session.out.print(&object(&view, output));
    }
    let mut rows = vec![
        ("job", job.id.to_string()),
        ("entity", job.path.to_string()),
        ("change", deed_text(&job.deed)),
        ("state", state_text(&job)),
    ];
    if let Some(JobPreview { digest, count, bytes, oldest_at, newest_at, .. }) = &job.preview {
        let cut = job.preview.as_ref().is_some_and(|preview| preview.is_cut);
        let more = if cut { ", and more that the job does not take" } else { "" };
        let messages = counted(*count, "message");
        rows.push(("selected", format!("{messages}, {}{more}", BinaryBytes(*bytes))));
        if let (Some(oldest), Some(newest)) = (oldest_at, newest_at) {
            rows.push(("enqueued", format!("{} to {}", instant(*oldest), instant(*newest))));
        }
        if job.state == JobState::Ready {
            let can = job.preview.as_ref().is_some_and(|preview| preview.can_be_undone);
            let undo = match (&job.deed, can) {
                (Deed::Export(_), _) => "not needed, since nothing changes",
                (_, true) => "possible for 24 h after the end",
                (_, false) => "not possible",
            };
            rows.push(("undo", undo.to_owned()));
            rows.push(("digest", JobId(digest.0).to_string()));
        }
    }
    let trial = job.trial.map(|trial| format!(", pause after {trial}")).unwrap_or_default();
    rows.push(("rate", format!("{} per second{trial}", job.rate)));
    for (result, count) in job.preview.iter().flat_map(|preview| &preview.refused) {
        rows.push(("would stay", format!("{}: {}", counted(*count, "message"), problem(*result))));
    }
    for (reason, count) in job.preview.iter().flat_map(|preview| &preview.reasons) {
        if let Some(reason) = reason {
            rows.push(("reason", format!("{}: {reason}", counted(*count, "message"))));
        }
    }
    if job.started_at.is_some() {
        let progress = &job.progress;
        rows.push(("done", counted(progress.done, "message")));
        rows.push(("left alone", counted(progress.failed, "message")));
    }
    if let Some(bytes) = job.export_bytes {
        rows.push(("file", BinaryBytes(bytes).to_string()));
    }
    session.out.print(&sheet(&rows, &session.out))
}

fn state_text(job: &JobFacts) -> String {
    let state = JobStateName::from(job.state).text();
    match &job.problem {
        Some(problem) => format!("{state}: {problem}"),
        None => state.to_owned(),
    }
}
