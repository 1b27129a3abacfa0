//! Jobs of operators on many messages (CON-12 to CON-19). `api/mod.rs` routes requests to it.

use actix_web::body::{BoxBody, SizedStream};
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Bytes};
use futures_util::stream;
use peeklock_core::Access;
use peeklock_core::command::Deed;
use peeklock_core::contract::Action;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{
    Found, JOB_EXPORT_PART_BYTES_MAX, JobControl, JobDigest, JobQuery, JobSelection, Question,
};
use peeklock_core::management::{Managed, Management};
use peeklock_json::{
    Guid, JobFailurePageView, JobForm, JobPageView, JobQueryForm, JobSamplePageView, JobStartForm,
    JobView, QuestionForm,
};
use utoipa::OpenApi;

use super::content::{self, STREAMED_BYTES};
use super::number;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::route::parameter;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    paths(create, list, describe, samples, failures, export, start, pause, resume, cancel, undo),
    components(schemas(
        JobForm,
        JobStartForm,
        JobView,
        JobPageView,
        JobSamplePageView,
        JobFailurePageView
    ))
)]
pub(super) struct Operations;

pub(super) const LIST: &[&str] = &["after", "top"];
pub(super) const FAILURES: &[&str] = &["skip", "top"];

const OPERATIONS: [&str; 5] = ["start", "pause", "resume", "cancel", "undo"];

/// Returns the methods of `/jobs/{job}/{operation}`; none if there is no such operation.
pub(super) fn methods(operation: &str) -> Option<&'static str> {
    OPERATIONS.contains(&operation).then_some("POST, OPTIONS")
}

/// Make a job: one change of many messages.
///
/// The messages are selected and counted first, and nothing changes: the job is `selecting`, then
/// `ready` with its `preview`. Start it within 10 minutes with the `digest` of the preview.
/// Messages that arrive later are not part of the job. At most 4 jobs run and 32 wait. Needs the
/// rights Send and Listen.
#[utoipa::path(post, operation_id = "create_job", path = "/queues/{queue}/jobs", tag = "jobs",
    params(("queue" = String, Path)), request_body = JobForm,
    responses((status = 201, body = JobView), (status = "default", body = Problem)))]
pub(super) async fn create(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    exchange.allow(Action::Operate, path).await?;
    let (form, _room): (JobForm, _) = body::read_json(exchange, payload).await?;
    let draft = form.to_draft(exchange.site.broker.now())?;
    if draft.deed == Deed::Delete && matches!(draft.selection, JobSelection::Matching { .. }) {
        super::refuse_protected_path(exchange, path, false)?;
    }
    super::manage::manage(exchange, path, Management::CreateJob(Box::new(draft))).await
}

/// List jobs, newest first.
///
/// The list has the jobs on entities that you may read. Ended jobs are kept for 7 days, at most
/// 1,000.
#[utoipa::path(get, operation_id = "list_jobs", path = "/jobs", tag = "jobs",
    params(("after" = Option<String>, Query, description = "`next` of an earlier page"),
        ("top" = Option<u32>, Query, description = "1 to 100, by default 100")),
    responses((status = 200, body = JobPageView), (status = "default", body = Problem)))]
pub(super) async fn list(exchange: &Exchange) -> Answer {
    let after = parameter(exchange.query(), "after").map(|text| parse(&text)).transpose()?;
    let after = after.map(|job| Guid(job.0));
    ask(exchange, JobQueryForm::List { after, top: number(exchange, "top")? }).await
}

/// Describe a job with its progress.
#[utoipa::path(get, operation_id = "get_job", path = "/jobs/{job}", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
pub(super) async fn describe(exchange: &Exchange, job: &str) -> Answer {
    ask(exchange, JobQueryForm::One { job: Guid(parse(job)?.0) }).await
}

/// Read the first messages of a job as its deed would store them.
///
/// At most 20, with their properties after the change and the first 256 bytes of their bodies. They
/// are read for each request: a message that is no longer there is left out.
#[utoipa::path(get, operation_id = "list_job_samples", path = "/jobs/{job}/samples", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobSamplePageView), (status = "default", body = Problem)))]
pub(super) async fn samples(exchange: &Exchange, job: &str) -> Answer {
    ask(exchange, JobQueryForm::Samples { job: Guid(parse(job)?.0) }).await
}

/// List the messages of a job whose deed was not done.
///
/// At most 10,000 are kept. Their numbers can be the `sequenceNumbers` of a next job.
#[utoipa::path(get, operation_id = "list_job_failures", path = "/jobs/{job}/failures",
    tag = "jobs",
    params(("job" = String, Path),
        ("skip" = Option<u32>, Query, description = "`next` of an earlier page; by default 0"),
        ("top" = Option<u32>, Query, description = "1 to 10,000, by default 10,000")),
    responses((status = 200, body = JobFailurePageView), (status = "default", body = Problem)))]
pub(super) async fn failures(exchange: &Exchange, job: &str) -> Answer {
    let job = Guid(parse(job)?.0);
    let skip = number(exchange, "skip")?.unwrap_or(0);
    ask(exchange, JobQueryForm::Failures { job, skip, top: number(exchange, "top")? }).await
}

/// Download the file that a job with the deed `export` has made.
///
/// The job has ended, and has `exportBytes`. The file has a message as JSON on each line, as
/// `peeklock send` reads it, or is a table as CSV. It is kept as long as the job, unless newer
/// exports need its room.
#[utoipa::path(get, operation_id = "get_job_export", path = "/jobs/{job}/export", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = [u8], content_type = "application/octet-stream"),
        (status = "default", body = Problem)))]
pub(super) async fn export(exchange: &Exchange, job: &str) -> Answer {
    let job = parse(job)?;
    exchange.access.allow_job(Action::Inspect, job).await?;
    let room = exchange.room_of(STREAMED_BYTES).await?;
    // The first part is read before the answer begins, so that its error has a status.
    let mut file = ExportedFile { access: exchange.access.clone(), job, from: 0, next: None };
    let length = file.read().await?;
    if let Some(room) = room {
        let held = usize::try_from(length).unwrap_or(usize::MAX).min(STREAMED_BYTES);
        exchange.hand_over(room, held, None);
    }
    let parts = stream::try_unfold(file, |mut file| async move {
        let part = file.part().await.inspect_err(|error| {
            tracing::warn!(%error, job = %file.job, "the download of an export is cut");
        })?;
        Ok::<_, BrokerError>(part.map(|part| (part, file)))
    });
    Ok(content::octets(StatusCode::OK)
        .insert_header((header::ACCEPT_RANGES, "none"))
        .body(BoxBody::new(SizedStream::new(length, Box::pin(parts)))))
}

/// The file of an export. Its next part is read when the socket has taken the last one.
struct ExportedFile {
    access: Access,
    job: JobId,
    /// Position of the next part.
    from: u64,
    next: Option<Bytes>,
}

impl ExportedFile {
    /// Returns the next part; none at the end.
    async fn part(&mut self) -> Result<Option<Bytes>, BrokerError> {
        if self.next.is_none() {
            self.read().await?;
        }
        Ok(self.next.take().filter(|part| !part.is_empty()))
    }

    /// Reads the next part. Returns the length of the file.
    async fn read(&mut self) -> Result<u64, BrokerError> {
        let (job, from, length) = (self.job, self.from, JOB_EXPORT_PART_BYTES_MAX);
        let question = Question::Jobs(JobQuery::Export { job, from, length });
        let managed = self.access.manage("", Management::Inspect(Box::new(question))).await?;
        if let Managed::Findings(findings) = managed
            && let Found::JobExport(part) = findings.found
        {
            self.from += part.bytes.len() as u64;
            self.next = Some(part.bytes);
            return Ok(part.length);
        }
        Ok(0)
    }
}

/// Dispatches `/jobs/{job}/{operation}`.
pub(super) async fn control(
    exchange: &Exchange,
    payload: &mut web::Payload,
    job: &str,
    operation: &str,
) -> Answer {
    let job = parse(job)?;
    match operation {
        "start" => start(exchange, payload, job).await,
        "pause" => pause(exchange, payload, job).await,
        "resume" => resume(exchange, payload, job).await,
        "cancel" => cancel(exchange, payload, job).await,
        "undo" => undo(exchange, payload, job).await,
        _ => Err(Refusal::no_resource()),
    }
}

/// Start a job whose preview has this digest.
///
/// A job waits for its turn if 4 others run, or one on the same sub-queue. A repeated start of a
/// started job changes nothing. Needs the rights Send and Listen.
#[utoipa::path(post, operation_id = "start_job", path = "/jobs/{job}/start", tag = "jobs",
    params(("job" = String, Path)), request_body = JobStartForm,
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
async fn start(exchange: &Exchange, payload: &mut web::Payload, job: JobId) -> Answer {
    exchange.access.allow_job(Action::Operate, job).await?;
    let (form, _room): (JobStartForm, _) = body::read_json(exchange, payload).await?;
    carry_out(exchange, job, JobControl::Start(JobDigest(form.digest.0))).await
}

/// Pause a job after its current step.
#[utoipa::path(post, operation_id = "pause_job", path = "/jobs/{job}/pause", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
async fn pause(exchange: &Exchange, payload: &mut web::Payload, job: JobId) -> Answer {
    body::discard(exchange, payload).await?;
    carry_out(exchange, job, JobControl::Pause).await
}

/// Resume a paused job.
#[utoipa::path(post, operation_id = "resume_job", path = "/jobs/{job}/resume", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
async fn resume(exchange: &Exchange, payload: &mut web::Payload, job: JobId) -> Answer {
    body::discard(exchange, payload).await?;
    carry_out(exchange, job, JobControl::Resume).await
}

/// End a job after its current step.
///
/// Its changes stay. A job that has not begun changes nothing.
#[utoipa::path(post, operation_id = "cancel_job", path = "/jobs/{job}/cancel", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
async fn cancel(exchange: &Exchange, payload: &mut web::Payload, job: JobId) -> Answer {
    body::discard(exchange, payload).await?;
    carry_out(exchange, job, JobControl::Cancel).await
}

/// Undo a job that has ended, in another job.
///
/// The answer is the new job, which is started. It puts the messages back as they were before the
/// deed, except messages that a receiver has changed meanwhile. While that job works, and when it
/// has put back everything, a repetition returns it; otherwise it makes a job for the rest. Jobs
/// that delete, dead-letter or undefer can be undone if `undoable` is true in their preview, until
/// `undoUntilUtc`. Needs the rights Send and Listen.
#[utoipa::path(post, operation_id = "undo_job", path = "/jobs/{job}/undo", tag = "jobs",
    params(("job" = String, Path)),
    responses((status = 200, body = JobView), (status = "default", body = Problem)))]
async fn undo(exchange: &Exchange, payload: &mut web::Payload, job: JobId) -> Answer {
    body::discard(exchange, payload).await?;
    carry_out(exchange, job, JobControl::Undo).await
}

async fn carry_out(exchange: &Exchange, job: JobId, control: JobControl) -> Answer {
    super::manage::manage(exchange, "", Management::ControlJob(job, control)).await
}

async fn ask(exchange: &Exchange, form: JobQueryForm) -> Answer {
    let question: Question = QuestionForm::Jobs(form).to_question(exchange.site.broker.now())?;
    super::manage::manage(exchange, "", Management::Inspect(Box::new(question))).await
}

pub(super) fn parse(job: &str) -> Result<JobId, Refusal> {
    JobId::parse(job).ok_or_else(|| Refusal::argument("the job must be a GUID"))
}
