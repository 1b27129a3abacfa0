//! Contract of a keeper of jobs, which carries out an operator's deeds on many messages (CON-12 to
//! CON-21). The broker checks rights and writes the audit trail before it asks the keeper. Without
//! a keeper there are no jobs, and new ones are refused. `job_runner.rs` has its start.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Rejection;
use crate::ids::{EntityId, JobId};
use crate::jobs::{JobControl, JobDraft, JobExportPart, JobFacts, JobFailurePage};

/// Keeps jobs and carries them out. Its methods may be called in any runtime, and must not block.
#[async_trait]
pub trait JobKeeper: Send + Sync {
    /// Ends the work, and waits until no job acts on messages. The next start continues the jobs.
    async fn end(&self);

    /// Returns the path of the entity or sub-queue of a job; none for a job that is unknown.
    fn path(&self, job: JobId) -> Option<Arc<str>>;

    /// Returns the entity that had this path when the messages of a job were selected; none before,
    /// and for a job that is unknown.
    fn entity(&self, job: JobId) -> Option<EntityId>;

    /// Returns all jobs with the paths of their entities, newest first.
    fn list(&self) -> Vec<(JobId, Arc<str>)>;

    /// Returns a job.
    fn describe(&self, job: JobId) -> Option<JobFacts>;

    /// Makes a job. The draft was checked ([`JobDraft::check`]).
    ///
    /// # Errors
    /// `QuotaExceeded` for too many jobs, `ServerBusy` if it cannot be kept.
    async fn create(&self, path: &str, draft: JobDraft) -> Result<JobFacts, Rejection>;

    /// Changes the state of a job. The change is durable when the call returns.
    ///
    /// # Errors
    /// `EntityNotFound` for an unknown job, `InvalidOperation` in another state, `UpdateConflict`
    /// for another digest or too late a start, `ServerBusy` if the change cannot be kept.
    async fn control(&self, job: JobId, control: JobControl) -> Result<JobFacts, Rejection>;

    /// Returns failures of a job.
    ///
    /// # Errors
    /// `EntityNotFound` for an unknown job, `ServerBusy` if they cannot be read.
    async fn failures(
        &self,
        job: JobId,
        skip: u32,
        count_max: u32,
    ) -> Result<JobFailurePage, Rejection>;

    /// Returns at most `length` bytes of the file that a job has exported, from a position on.
    ///
    /// # Errors
    /// `EntityNotFound` for an unknown job, `InvalidOperation` if it has no such file or has not
    /// ended, `ServerBusy` if the file cannot be read.
    async fn export(&self, job: JobId, from: u64, length: u64) -> Result<JobExportPart, Rejection>;
}
